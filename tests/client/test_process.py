"""How a worker comes back after its relay was gone."""

from itertools import islice

from nodrop.client.transports.connecting import Process
from nodrop.model.limits import DEFAULT


def test_a_worker_is_back_before_its_lease_could_lapse() -> None:
    """A relay that returns gives every process its whole lease anew."""
    process = Process(id="p", heartbeat_seconds=0.5)
    longest = max(islice(process.policy.delays(), 40))
    assert longest < DEFAULT.lease_heartbeats * process.heartbeat_seconds
    assert longest <= process.heartbeat_seconds


def test_a_patient_worker_does_not_wait_longer_than_others() -> None:
    longest = max(islice(Process(id="p", heartbeat_seconds=600).policy.delays(), 40))
    assert longest <= 5

"""The cost of a cycle, measured for real in small."""

from pathlib import Path

from nodrop_proof.bench import cycle_cost
from nodrop_proof.bench.cycle import PAYLOAD_BYTES, RESULT_BYTES


async def test_every_process_has_its_share_of_the_cost(tmp_path: Path) -> None:
    [cost] = await cycle_cost.measure(tmp_path, callers=(4,), count=20)
    assert cost.callers == 4
    assert set(cost.by_process) == {"relay", "worker", "requester"}
    assert all(used.cpu_us > 0 for used in cost.by_process.values())
    worker, requester = cost.by_process["worker"], cost.by_process["requester"]
    # The payload goes out from the one and in to the other, and the result comes back.
    assert requester.bytes_out > PAYLOAD_BYTES
    assert worker.bytes_in > PAYLOAD_BYTES
    assert worker.bytes_out > RESULT_BYTES
    assert requester.bytes_in > RESULT_BYTES

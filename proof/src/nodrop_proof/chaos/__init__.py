"""Faults on real parts under load, and a count of what was lost, duplicated or run again.

Each fault is a module with `async def run(plan, progress) -> Report`. What it counts comes from the
clients' own records and the exported log, never from the relay's opinion of itself; the counting is
`check`. Nothing here is part of a relay, and no relay has a switch for it.
"""

import importlib
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.report import Report

Progress = Callable[[int, int], None]
"""Hears how many faults are done, and of how many."""

Fault = Callable[[Plan, Progress], Coroutine[Any, Any, Report]]

FAULTS: Final[dict[str, str]] = {
    "relay-kill": "kill -9 of the relay while callers and workers go on",
    "worker-kill": "kill -9 of workers in the middle of their work, and workers that stall",
    "queue-kill": "kill -9 of agents with one slot and a queue: what they acknowledged as queued is void",
    "power-cut": "power cuts that drop, tear and reorder what was not synced",
    "disk-full": "no room on the disk, and room again",
    "network-cut": "connections that are cut, reset, half-open or slow",
    "slow-consumer": "one of fifty readers at a hundredth of the speed",
    "node-kill": "kill -9 of relays that serve one PostgreSQL, while callers and workers go on",
    "failover": "kill -9 of the PostgreSQL primary, its synchronous standby promoted",
    "patroni": "the same under Patroni and etcd, which promote by themselves (they must be installed)",
    "store-cut": "connections between relays and their PostgreSQL that are cut, reset or half-open",
    "mix": "relay kills, worker kills and network cuts, at random",
    "six-hours": "30 agents left alone with chains, while workers and the relay are killed",
}
"""What can be done to a relay, by name."""

COUNT: Final = 10
COUNTS: Final[dict[str, int]] = {"six-hours": 2_000}
"""How many, where nobody says: of faults, or of what a fault counts instead."""


def load(fault: str) -> Fault:
    """Return what runs a fault. Loaded one by one: each needs other parts of the package."""
    module = importlib.import_module(f"{__name__}.{fault.replace('-', '_')}")
    return cast("Fault", module.run)

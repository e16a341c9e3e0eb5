"""Workers are killed with -9 in the middle of their work; now and then one stalls instead.

Each step of a worker appends a line to a file: the effect outside the relay. A stalled worker stands
still for longer than its lease and then goes on as if nothing had been: fencing keeps it from acting
on what another worker has by then, and asking the relay first keeps it from running a recorded step.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from typing import Final

from nodrop_proof.chaos import export
from nodrop_proof.chaos.callers import calling
from nodrop_proof.chaos.crew import Crew
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess, ServedRelay
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.worker import PROCESS_CONCURRENCY, UNASKED

WORKERS: Final = 4
"""Every second one has a single slot, so that much waits in the queue."""
FLOW_ANSWERS: Final = 16
FLOW_SECONDS: Final = 0.25
STALL_SHARE: Final = 0.5
"""So many kills have a stall beside them."""


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Kill workers `plan.count` times."""
    async with RelayProcess(plan.folder / "relay") as relay:
        return await torment(plan, progress, relay)


async def torment(
    plan: Plan,
    progress: Callable[[int, int], None],
    relay: ServedRelay,
    *,
    workers: int = WORKERS,
    name: str = "ask",
) -> Report:
    """Kill, and stall, the workers of `relay`; `name` is for what they are asked."""
    began = time.monotonic()
    chance = random.Random(plan.seed)  # noqa: S311  # to be repeated, not to be secret
    control = next(iter(plan.controls & {UNASKED}), "")
    slots = itertools.cycle((str(PROCESS_CONCURRENCY), "1"))
    roles = [{"--control": control, "--concurrency": next(slots)} for _ in range(workers)]
    with Record(plan.folder / "records.jsonl") as record:
        async with (
            Crew(relay, record.path, roles=roles) as crew,
            calling(relay, record, callers=plan.callers, name=name) as callers,
        ):
            for number in range(plan.count):
                await callers.flowing(FLOW_ANSWERS)
                await asyncio.sleep(chance.uniform(0, FLOW_SECONDS))
                if chance.random() < STALL_SHARE:
                    crew.stall_one(chance)
                await crew.kill_one(chance)
                progress(number + 1, plan.count)
            loaded = time.monotonic()
    async with relay.operator() as me:
        verdict = await export.check(record.path, me)
    return verdict.report(
        plan,
        count=plan.count,
        seconds=time.monotonic() - began,
        extras={
            "stalls": crew.stalls,
            "kills_per_minute": round(plan.count / (loaded - began) * 60, 1),
        },
    )

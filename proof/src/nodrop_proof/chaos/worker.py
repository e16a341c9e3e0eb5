"""The worker that runs are made with: steps with an effect outside the relay, then a result.

`python -m nodrop_proof.chaos.worker` is a process that is one; who starts and kills those is `crew`.
"""

import argparse
import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from nodrop.client.agent import Agent
from nodrop.client.transports.transport import DeliveryStream
from nodrop.client.working.queueing import Queueing
from nodrop.client.working.task import Task
from nodrop_proof.chaos.record import Ran, Record, Recorded
from nodrop_proof.chaos.relay_process import ServedRelay

NAME: Final = "worker"
CONCURRENCY: Final = 64
PROCESS_CONCURRENCY: Final = 8
PROCESS_STEPS: Final = 2
PAUSE_SECONDS_MAX: Final = 0.1
"""How long a worker process takes after a step, so that a kill finds it in the middle."""
UNASKED: Final = "unasked"
"""CONTROL: after a stall a step is run without asking the relay first."""

UNQUEUED: Final = "unqueued"
"""CONTROL: what waits for a free slot is not acknowledged."""

Once = Callable[[Task, str, Callable[[], int]], Awaitable[object]]
"""Runs a step unless it is recorded, and records it."""


def worker(
    record: Record,
    *,
    name: str = NAME,
    steps: int = 1,
    pause: Callable[[], float] = lambda: 0.0,
    concurrency: int = CONCURRENCY,
    once: Once = Task.once,
) -> Agent:
    """Return an agent that does `steps` steps, pauses after each, and answers what was asked."""
    agent = Agent(name, concurrency=concurrency)

    @agent.handler
    async def work(task: Task) -> dict[str, Any]:
        for number in range(steps):
            await step(task, record, f"step-{number}", once=once)
            await asyncio.sleep(pause())
        payload: dict[str, Any] = task.payload
        origin: dict[str, Any] = payload.get("origin") or payload
        return {"ask": origin["ask"], "attempt": task.attempt}

    return agent


async def step(task: Task, record: Record, name: str, *, once: Once = Task.once) -> None:
    """Do a step that is recorded, and write both down; not what an earlier attempt has done."""
    did = False
    asked_at = time.monotonic()

    def effect() -> int:
        nonlocal did
        did = True
        after = round(time.monotonic() - asked_at, 3)
        record.write(Ran(handoff_id=task.id, step=name, attempt=task.attempt, after_seconds=after))
        return task.attempt

    await once(task, name, effect)
    if did:
        record.write(Recorded(handoff_id=task.id, step=name, attempt=task.attempt))


async def _once_unasked(task: Task, name: str, effect: Callable[[], int]) -> None:
    if name not in task.steps:
        await task.record(name, effect())


@asynccontextmanager
async def working(agent: Agent, relay: ServedRelay) -> AsyncGenerator[None]:
    """Have `agent` work in this process."""
    serving = asyncio.create_task(agent.serve(relay.url, home=relay.home))
    await asyncio.sleep(0)  # it would not hear a stop before it began
    try:
        yield
        agent.stop()
        await serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def _leave_waiting(self: Queueing, stream: DeliveryStream) -> None:
    """Acknowledge nothing that waits."""
    del self, stream


def main() -> None:
    """Work until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--heartbeat-seconds", type=float, required=True)
    parser.add_argument("--name", default=NAME)
    parser.add_argument("--concurrency", type=int, default=PROCESS_CONCURRENCY)
    parser.add_argument("--pause", type=float, help="seconds after each step; else a random time")
    parser.add_argument("--control", default="")
    asked = parser.parse_args()
    if asked.control == UNQUEUED:
        Queueing.run = _leave_waiting
    chance = random.Random(os.getpid())  # noqa: S311  # how long work takes is no secret

    def pause() -> float:
        return chance.uniform(0, PAUSE_SECONDS_MAX) if asked.pause is None else asked.pause

    with Record(asked.record) as record:
        agent = worker(
            record,
            name=asked.name,
            steps=PROCESS_STEPS,
            pause=pause,
            concurrency=asked.concurrency,
            once=_once_unasked if asked.control == UNASKED else Task.once,
        )
        agent.run(asked.url, heartbeat_seconds=asked.heartbeat_seconds)


if __name__ == "__main__":
    main()

"""Several agents of a team in one process, whose work has a fate that was decided before.

`python -m nodrop_proof.chaos.staff` is such a process; `six_hours` decides about fates, starts and
kills it. Whatever becomes of a leg, its steps come first and are recorded.
"""

import argparse
import asyncio
import os
import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from nodrop.client.agent import Agent, serve
from nodrop.client.endings import Fail
from nodrop.client.working.task import Task
from nodrop_proof.chaos.record import Ran, Record, Recorded
from nodrop_proof.chaos.worker import PAUSE_SECONDS_MAX, PROCESS_STEPS, step

FINE: Final = "fine"
FAILS: Final = "fails"
ASKS: Final = "asks"
"""What becomes of a leg: a result; a failure; a question to a person, who is away."""
TOLD_TO_FAIL: Final = "told_to_fail"
"""The reason of whatever fails."""
PERSON: Final = "me"
CONCURRENCY: Final = 8
FORGETFUL: Final = "forgetful"
"""CONTROL: steps are done again although they are recorded."""


def member(
    name: str, record: Record, *, pause: Callable[[], float], controls: Collection[str] = ()
) -> Agent:
    """Return an agent that does its steps, and then what its payload says."""
    agent = Agent(name, concurrency=CONCURRENCY)
    do = _again if FORGETFUL in controls else step

    @agent.handler
    async def work(task: Task) -> dict[str, Any]:
        for number in range(PROCESS_STEPS):
            await do(task, record, f"step-{number}")
            await asyncio.sleep(pause())
        match task.payload["fate"]:
            case "fails":
                raise Fail("it was told to", code=TOLD_TO_FAIL)
            case "asks":
                await task.park("Shall I go on?", to=PERSON)
            case _:
                pass
        return {"ask": task.payload["ask"], "attempt": task.attempt}

    return agent


async def _again(task: Task, record: Record, name: str) -> None:
    record.write(Ran(handoff_id=task.id, step=name, attempt=task.attempt))
    await task.record(name, task.attempt)
    record.write(Recorded(handoff_id=task.id, step=name, attempt=task.attempt))


def main() -> None:
    """Work until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--heartbeat-seconds", type=float, required=True)
    parser.add_argument("--agents", required=True, help="their names, with commas")
    parser.add_argument("--control", default="")
    asked = parser.parse_args()
    chance = random.Random(os.getpid())  # noqa: S311  # how long work takes is no secret

    def pause() -> float:
        return chance.uniform(0, PAUSE_SECONDS_MAX)

    with Record(asked.record) as record:
        agents = [
            member(name, record, pause=pause, controls=(asked.control,))
            for name in asked.agents.split(",")
        ]
        asyncio.run(serve(*agents, address=asked.url, heartbeat_seconds=asked.heartbeat_seconds))


if __name__ == "__main__":
    main()

"""Connections fail under load: cut, reset, half open, slow or far away, some or all of them at once.

A relay runs as a process of its own. Callers and workers reach it through a proxy, half of them over
WebSocket and half over HTTP, and the SDK finds its way back by itself: nobody here connects again.
Besides what every run is checked for, no handler may run twice for one attempt, and no attempt may
be lost to a lease unless the network was down for as long.

CONTROL `keyless`: offers carry neither an idempotency key nor a command id, so that what the SDK
sends again after a lost answer is another handoff.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec

from nodrop.client.agent import Agent
from nodrop.client.client import Client
from nodrop.client.transports.connecting import TransportName, connect
from nodrop_proof.chaos import export, record
from nodrop_proof.chaos.between import behind_proxy, mend
from nodrop_proof.chaos.caller import Caller
from nodrop_proof.chaos.callers import FINISH_SECONDS_MAX, KEYLESS, Callers
from nodrop_proof.chaos.check import Verdict
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import AnyLine, Ran, Record
from nodrop_proof.chaos.relay_process import RelayProcess, ServedRelay
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.worker import worker
from nodrop_proof.kit.proxy import Trouble

TRANSPORTS: Final[tuple[TransportName, ...]] = ("websocket", "http")
CONNECTIONS: Final = 4
"""Clients of each transport; callers share them."""
HEARTBEAT_SECONDS: Final = 2.0
"""Short, so that a run sees many of them; a lease is three."""
CONCURRENCY: Final = 32
STEPS: Final = 2
WORK_SECONDS_MAX: Final = 0.3
FLOW_ANSWERS: Final = 8
"""Load flows again when so many offers were answered since the last fault."""
FLOW_SECONDS: Final = 0.5
"""The fault comes at random within this time of flowing load."""


async def run(
    plan: Plan,
    progress: Callable[[int, int], None],
    *,
    troubles: Sequence[Trouble] = tuple(Trouble),
) -> Report:
    """Make connections fail `plan.count` times, each time by one of `troubles`."""
    began = time.monotonic()
    chance = random.Random(plan.seed)  # noqa: S311  # to be repeated, not to be secret
    struck: Counter[str] = Counter()
    async with RelayProcess(plan.folder / "relay") as relay:
        with Record(plan.folder / "records.jsonl") as records:
            async with (
                behind_proxy(relay, plan.folder / "clients") as (proxy, reached),
                _working(records, reached, random.Random(plan.seed)),  # noqa: S311  # same
                _calling(records, reached, callers=plan.callers, controls=plan.controls) as callers,
            ):
                for number in range(plan.count):
                    await callers.flowing(FLOW_ANSWERS)
                    await asyncio.sleep(chance.uniform(0, FLOW_SECONDS))
                    struck[proxy.strike_at_random(chance, troubles)] += 1
                    progress(number + 1, plan.count)
                mend(proxy)
        async with relay.operator() as me:
            verdict = await export.check(records.path, me)
    again = _ran_again(record.read(records.path))
    return _with(verdict, again).report(
        plan,
        count=plan.count,
        seconds=time.monotonic() - began,
        extras={"connections": proxy.accepted, "troubles": dict(sorted(struck.items()))},
    )


@asynccontextmanager
async def _working(
    records: Record, relay: ServedRelay, chance: random.Random
) -> AsyncGenerator[None]:
    """Have one worker for each transport work in this process."""

    def pause() -> float:
        return chance.uniform(0, WORK_SECONDS_MAX)

    agents = [
        worker(records, steps=STEPS, pause=pause, concurrency=CONCURRENCY) for _ in TRANSPORTS
    ]
    serving = [
        asyncio.create_task(_serve(agent, relay, transport))
        for agent, transport in zip(agents, TRANSPORTS, strict=True)
    ]
    try:
        yield
        for agent in agents:
            agent.stop()
        await asyncio.wait(serving, timeout=FINISH_SECONDS_MAX)
    finally:
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _serve(agent: Agent, relay: ServedRelay, transport: TransportName) -> None:
    await agent.serve(
        relay.url, home=relay.home, transport=transport, heartbeat_seconds=HEARTBEAT_SECONDS
    )


@asynccontextmanager
async def _calling(
    records: Record, relay: ServedRelay, *, callers: int, controls: Collection[str]
) -> AsyncGenerator[Callers]:
    async with AsyncExitStack() as stack:
        clients: list[Client] = [
            await stack.enter_async_context(
                connect(relay.url, agent=f"caller-{number}", home=relay.home, transport=transport)
            )
            for number in range(CONNECTIONS)
            for transport in TRANSPORTS
        ]
        keyless = KEYLESS in controls
        load = Callers([Caller(c, records, keyless=keyless) for c in clients], name="ask")
        async with load.at_work(callers):
            yield load


def _ran_again(lines: Iterable[AnyLine]) -> list[str]:
    """Return the steps that ran twice in one attempt: what was delivered twice was begun twice."""
    times = Counter((ran.handoff_id, ran.step, ran.attempt) for ran in _runs(lines))
    return [
        f"{handoff_id}: {step} ran {count} times in attempt {attempt}"
        for (handoff_id, step, attempt), count in times.items()
        if count > 1
    ]


def _runs(lines: Iterable[AnyLine]) -> Iterable[Ran]:
    return (line for line in lines if isinstance(line, Ran))


def _with(verdict: Verdict, ran_again: Iterable[str]) -> Verdict:
    rerun: Any = (*verdict.steps_rerun, *ran_again)
    return msgspec.structs.replace(verdict, steps_rerun=rerun)

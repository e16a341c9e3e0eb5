"""Connections between relays and their PostgreSQL fail under load: cut, reset, or half open.

Each relay reaches the database through a proxy of its own. A relay that is cut off answers that it
is worth asking again, or not at all; its clients go on elsewhere or wait. No attempt may be given
out twice, nothing may be acknowledged that is not there, and nobody repairs anything.

CONTROL `keyless`: offers carry neither an idempotency key nor a command id, so that what the SDK
sends again after a lost answer is another handoff.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from nodrop_proof.chaos import export
from nodrop_proof.chaos.between import balance, behind_proxy, mend
from nodrop_proof.chaos.callers import calling
from nodrop_proof.chaos.nodes import FLOW_ANSWERS, nodes_at, postgres
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.worker import worker, working
from nodrop_proof.kit.proxy import Proxy, Trouble

FLOW_SECONDS: Final = 0.5
"""The fault comes at random within this time of flowing load."""
TROUBLES: Final = (
    *(Trouble.CUT, Trouble.RESET),
    *(Trouble.HALF_OPEN, Trouble.HALF_OPEN_UP, Trouble.HALF_OPEN_DOWN),
)
"""What is merely far away makes a relay slow, and is no cut."""


async def run(
    plan: Plan,
    progress: Callable[[int, int], None],
    *,
    troubles: Sequence[Trouble] = TROUBLES,
) -> Report:
    """Make connections to the database fail `plan.count` times, each time by one of `troubles`."""
    began = time.monotonic()
    chance = random.Random(plan.seed)  # noqa: S311  # to be repeated, not to be secret
    struck: Counter[str] = Counter()
    async with _nodes(plan) as (nodes, proxies):
        with Record(plan.folder / "records.jsonl") as record:
            async with (
                behind_proxy(nodes[0], plan.folder / "clients") as (proxy, reached),
                working(worker(record), reached),
                calling(
                    reached, record, callers=plan.callers, controls=plan.controls, fill=plan.open
                ) as callers,
            ):
                balance(proxy, nodes)
                for number in range(plan.count):
                    await callers.flowing(FLOW_ANSWERS)
                    await asyncio.sleep(chance.uniform(0, FLOW_SECONDS))
                    struck[chance.choice(proxies).strike_at_random(chance, troubles)] += 1
                    progress(number + 1, plan.count)
                for each in proxies:
                    mend(each)
        async with nodes[0].operator() as me:
            verdict = await export.check(record.path, me)
    return verdict.report(
        plan,
        count=plan.count,
        seconds=time.monotonic() - began,
        extras={"nodes": plan.nodes, "troubles": dict(sorted(struck.items()))},
    )


@asynccontextmanager
async def _nodes(plan: Plan) -> AsyncGenerator[tuple[list[RelayProcess], list[Proxy]]]:
    """Run a PostgreSQL, and relays that each reach it through a proxy."""
    async with postgres() as server, AsyncExitStack() as stack:
        proxies = [
            await stack.enter_async_context(Proxy.open("127.0.0.1", server.port))
            for _ in range(plan.nodes)
        ]
        addresses = [server.address(port=proxy.port) for proxy in proxies]
        async with nodes_at(plan.folder, addresses) as nodes:
            yield nodes, proxies

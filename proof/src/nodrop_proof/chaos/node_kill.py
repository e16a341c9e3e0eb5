"""Relays that serve one PostgreSQL are killed with -9 under load, one after the other.

Callers and a worker reach them through something like a load balancer, and are at another relay the
next time they connect: nothing ties them to one. All the while, handoffs that nobody takes run out
of time; whichever relay sees it, each expires once.

CONTROL `keyless`: offers carry neither an idempotency key nor a command id, so that what the SDK
sends again after a lost answer is another handoff.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from nodrop.client.client import Client
from nodrop_proof.chaos import export
from nodrop_proof.chaos.between import balance, behind_proxy
from nodrop_proof.chaos.callers import NOBODY, Callers, calling, connected
from nodrop_proof.chaos.check import Verdict
from nodrop_proof.chaos.nodes import FLOW_ANSWERS, nodes_at, postgres
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.worker import worker, working
from nodrop_proof.kit.proxy import Proxy, Trouble

FLOW_SECONDS: Final = 0.25
"""The kill comes at random within this time of flowing load."""
UNHEARD_SHARE: Final = 0.25
"""So many kills come when the relay can no longer be heard."""
UNHEARD_SECONDS: Final = (0.0, 0.05)
DOWN_SECONDS: Final = 1.0
"""A relay stays down for at most so long; the others serve meanwhile."""
TIMER_SECONDS: Final = 2.0
"""Each of the handoffs that nobody takes has so long."""
TIMERS_EVERY_SECONDS: Final = 0.2
EXPIRED_SECONDS_MAX: Final = 60.0


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Kill relays `plan.count` times, of `plan.nodes` that serve one database."""
    began = time.monotonic()
    async with (
        postgres() as server,
        nodes_at(plan.folder, [server.address()] * plan.nodes) as nodes,
    ):
        with Record(plan.folder / "records.jsonl") as record:
            async with (
                behind_proxy(nodes[0], plan.folder / "clients") as (proxy, reached),
                working(worker(record), reached),
                calling(
                    reached, record, callers=plan.callers, controls=plan.controls, fill=plan.open
                ) as callers,
                connected(reached, count=1) as [timekeeper],
            ):
                balance(proxy, nodes)
                timers = asyncio.create_task(_time(timekeeper))
                killer = _Killer(nodes, proxy, callers, seed=plan.seed)
                try:
                    for number in range(plan.count):
                        await killer.kill()
                        progress(number + 1, plan.count)
                    await killer.recover()
                finally:
                    timers.cancel()
                    [ids] = await asyncio.gather(timers, return_exceptions=True)
                timed = ids if isinstance(ids, list) else []
                late = await _unexpired(timekeeper, timed)
        async with nodes[0].operator() as me:
            verdict = await export.check(record.path, me)
    return _with_timers(verdict, late).report(
        plan,
        count=plan.count,
        seconds=time.monotonic() - began,
        restarts_ms=killer.restarts_ms,
        extras={"nodes": plan.nodes, "unheard": killer.unheard, "timers": len(timed)},
    )


# --- timers -------------------------------------------------------------------------------------


async def _time(client: Client) -> list[str]:
    """Hand off again and again what nobody takes, until cancelled; return the ids."""
    ids: list[str] = []
    try:
        while True:
            handoff = await client.hand_off(NOBODY, title="too late", deadline=TIMER_SECONDS)
            ids.append(handoff.id)
            await asyncio.sleep(TIMERS_EVERY_SECONDS)
    except asyncio.CancelledError:
        return ids


async def _unexpired(client: Client, ids: list[str]) -> list[str]:
    """Return which of them did not expire, though they had more than enough time to."""
    left = set(ids)
    until = time.monotonic() + EXPIRED_SECONDS_MAX
    while left and time.monotonic() < until:
        for handoff_id in list(left):
            if (await client.handoff(handoff_id)).state == "expired":
                left.discard(handoff_id)
        await asyncio.sleep(TIMERS_EVERY_SECONDS)
    return sorted(left)


def _with_timers(verdict: Verdict, late: list[str]) -> Verdict:
    """Add what did not expire. What expired twice the checker finds by itself."""
    found = tuple(f"{handoff_id}: its time is over, and nobody noticed" for handoff_id in late)
    return replace(verdict, wrong=verdict.wrong + found)


class _Killer:
    """Who kills relays, and starts them again."""

    def __init__(
        self, nodes: list[RelayProcess], proxy: Proxy, callers: Callers, *, seed: int
    ) -> None:
        self.restarts_ms: list[float] = []
        self.unheard = 0
        self._up = list(nodes)
        self._starting: set[asyncio.Task[None]] = set()
        self._proxy = proxy
        self._callers = callers
        self._chance = random.Random(seed)  # noqa: S311  # to be repeated, not to be secret

    async def kill(self) -> None:
        """Kill one of the relays while load flows; another one serves on, if there is one."""
        await self._callers.flowing(FLOW_ANSWERS)
        await asyncio.sleep(self._chance.uniform(0, FLOW_SECONDS))
        while len(self._up) <= 1 and self._starting:
            await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED)
        node = self._up.pop(self._chance.randrange(len(self._up)))
        if self._chance.random() < UNHEARD_SHARE:
            self.unheard += 1
            await self._callers.offering()
            links = self._proxy.links
            self._proxy.strike(Trouble.HALF_OPEN_DOWN, links)
            await asyncio.sleep(self._chance.uniform(*UNHEARD_SECONDS))
            await node.kill()
            self._proxy.strike(Trouble.RESET, links)
        else:
            await node.kill()
        starting = asyncio.create_task(self._start(node, self._chance.uniform(0, DOWN_SECONDS)))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)

    async def recover(self) -> None:
        """Return when all of them serve again."""
        await asyncio.gather(*self._starting)

    async def _start(self, node: RelayProcess, after_seconds: float) -> None:
        await asyncio.sleep(after_seconds)
        self.restarts_ms.append(await node.start())
        self._up.append(node)

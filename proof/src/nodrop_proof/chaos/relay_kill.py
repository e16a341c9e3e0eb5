"""The relay is killed with -9 under load, and started again on the same home and port.

Callers and a worker go on in this process; the SDK finds its way back to the relay by itself. Some
kills come a moment after the way back was closed: what was committed in that moment was never
answered, and is sent again.

CONTROL `keyless`: offers carry neither an idempotency key nor a command id, so that what the SDK
sends again after a lost answer is another handoff.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from nodrop_proof.chaos import export
from nodrop_proof.chaos.between import behind_proxy
from nodrop_proof.chaos.callers import Callers, calling
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.worker import worker, working
from nodrop_proof.kit.proxy import Proxy, Trouble

FLOW_ANSWERS: Final = 64
"""Load flows again when so many offers were answered since the restart."""
FLOW_SECONDS: Final = 0.25
"""The kill comes at random within this time of flowing load."""
UNHEARD_SHARE: Final = 0.25
"""So many kills come when the relay can no longer be heard."""
UNHEARD_SECONDS: Final = (0.0, 0.05)
STILLBORN_SHARE: Final = 0.1
"""So many kills are followed by another one while the relay starts."""
START_SECONDS: Final = 0.5


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Kill the relay `plan.count` times, with `plan.open` handoffs that wait all the while."""
    began = time.monotonic()
    async with RelayProcess(plan.folder / "relay") as relay:
        with Record(plan.folder / "records.jsonl") as record:
            async with (
                behind_proxy(relay, plan.folder / "clients") as (proxy, reached),
                working(worker(record), reached),
                calling(
                    reached, record, callers=plan.callers, controls=plan.controls, fill=plan.open
                ) as callers,
            ):
                loaded = time.monotonic()
                killer = _Killer(relay, proxy, callers, seed=plan.seed)
                for number in range(plan.count):
                    await killer.kill()
                    progress(number + 1, plan.count)
                seconds = time.monotonic() - loaded
        async with relay.operator() as me:
            verdict = await export.check(record.path, me)
    return verdict.report(
        plan,
        count=plan.count,
        seconds=time.monotonic() - began,
        restarts_ms=killer.restarts_ms,
        extras={
            "unheard": killer.unheard,
            "stillborn": killer.stillborn,
            "kills_per_minute": round(plan.count / seconds * 60, 1),
        },
    )


class _Killer:
    """Who kills a relay, and starts it again."""

    def __init__(self, relay: RelayProcess, proxy: Proxy, callers: Callers, *, seed: int) -> None:
        self.restarts_ms: list[float] = []
        self.unheard = 0
        self.stillborn = 0
        self._relay = relay
        self._proxy = proxy
        self._callers = callers
        self._chance = random.Random(seed)  # noqa: S311  # to be repeated, not to be secret

    async def kill(self) -> None:
        """Kill the relay while load flows; return when it serves again."""
        await self._callers.flowing(FLOW_ANSWERS)
        await asyncio.sleep(self._chance.uniform(0, FLOW_SECONDS))
        links = self._proxy.links
        if self._chance.random() < UNHEARD_SHARE:
            self.unheard += 1
            await self._callers.offering()
            self._proxy.strike(Trouble.HALF_OPEN_DOWN, links)
            await asyncio.sleep(self._chance.uniform(*UNHEARD_SECONDS))
        await self._relay.kill()
        self._proxy.strike(Trouble.RESET, links)  # what was said and not heard is gone with it
        if self._chance.random() < STILLBORN_SHARE:
            self.stillborn += 1
            await self._relay.spawn()
            await asyncio.sleep(self._chance.uniform(0, START_SECONDS))
            await self._relay.kill()
        self.restarts_ms.append(await self._relay.start())

"""The PostgreSQL primary is killed with -9 under load, and its synchronous standby promoted.

Relays have both addresses and find the one that takes writes by themselves. In between, callers get
errors that say that it is worth asking again, which the SDK does. After each failover the place of
the dead primary is taken by a new standby.

CONTROL `asynchronous`: the primary answers without its standby. Whatever was answered and not yet
sent on when it dies is lost.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from nodrop.model.errors import UnavailableError
from nodrop_proof.chaos import export
from nodrop_proof.chaos.between import balance, behind_proxy
from nodrop_proof.chaos.callers import calling
from nodrop_proof.chaos.nodes import FLOW_ANSWERS, nodes_at
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.worker import worker, working
from nodrop_proof.kit.postgres_server import PostgresServer, free_port

ASYNCHRONOUS: Final = "asynchronous"
"""CONTROL: commits are answered without the standby."""
FOLLOWED_SECONDS_MAX: Final = 60.0


class Cluster(Protocol):
    """A primary and what takes its place."""

    @property
    def address(self) -> str:
        """All of them; whoever connects takes the one that takes writes."""
        ...

    async def fail_over(self) -> None:
        """Kill the primary, and see to it that another one comes."""
        ...

    async def recover(self) -> None:
        """Return when there is a standby again, and commits wait for it."""
        ...


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Kill the primary `plan.count` times, under `plan.nodes` relays."""
    synchronously = ASYNCHRONOUS not in plan.controls
    async with _pair(synchronously=synchronously) as pair:
        return await kill_primaries(pair, plan, progress, lag=None if synchronously else pair.lag)


async def kill_primaries(
    pair: Cluster,
    plan: Plan,
    progress: Callable[[int, int], None],
    *,
    lag: Callable[[], Awaitable[None]] | None = None,
) -> Report:
    """Kill the primary of a cluster `plan.count` times, under `plan.nodes` relays.

    `lag` lets the standby fall behind; something is lost then.
    """
    began = time.monotonic()
    without_ms: list[float] = []
    async with nodes_at(plan.folder, [pair.address] * plan.nodes) as nodes:
        with Record(plan.folder / "records.jsonl") as record:
            async with (
                behind_proxy(nodes[0], plan.folder / "clients") as (proxy, reached),
                working(worker(record), reached),
                calling(reached, record, callers=plan.callers, fill=plan.open) as callers,
            ):
                balance(proxy, nodes)
                for number in range(plan.count):
                    await callers.flowing(FLOW_ANSWERS)
                    if lag is not None:
                        await lag()
                        await callers.flowing(FLOW_ANSWERS)
                    killed = time.monotonic()
                    await pair.fail_over()
                    if lag is None:  # else each may wait for something that is gone
                        await callers.flowing(1)
                    without_ms.append((time.monotonic() - killed) * 1_000)
                    if number + 1 < plan.count:
                        await pair.recover()
                    progress(number + 1, plan.count)
        async with nodes[0].operator() as me:
            verdict = await export.check(record.path, me)
    return verdict.report(
        plan,
        count=plan.count,
        seconds=time.monotonic() - began,
        extras={"nodes": plan.nodes, "without_service_ms": [round(ms) for ms in without_ms]},
    )


class _Pair:
    """A primary and its standby, on two ports that stay theirs."""

    def __init__(self, *, synchronously: bool) -> None:
        self._synchronously = synchronously
        self._ports = (free_port(), free_port())
        self._servers: list[PostgresServer] = []

    @property
    def address(self) -> str:
        """Both of them; whoever connects takes the one that takes writes."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://postgres@{hosts}/postgres"

    def start(self) -> None:
        primary = PostgresServer(port=self._ports[0])
        self._servers.append(primary)
        primary.start()

    async def lag(self) -> None:
        """Let the standby fall behind."""
        await asyncio.to_thread(self._servers[1].follow_no_more)

    async def fail_over(self) -> None:
        """Kill the primary, and promote the standby."""
        primary, standby = self._servers
        await asyncio.to_thread(primary.kill)
        # Nothing follows the new one yet: it answers alone until something does.
        await asyncio.to_thread(standby.promote)
        await asyncio.to_thread(standby.followed, synchronously=False)

    async def recover(self) -> None:
        """Put a standby behind the only server, and return when commits wait for it."""
        if len(self._servers) > 1:
            dead = self._servers.pop(0)
            await asyncio.to_thread(dead.__exit__, None, None, None)
        [primary] = self._servers
        port = next(port for port in self._ports if port != primary.port)
        standby = await asyncio.to_thread(primary.standby, port=port)
        self._servers.append(standby)
        await asyncio.to_thread(standby.start)
        if self._synchronously:
            await asyncio.to_thread(primary.followed, synchronously=True)
            until = time.monotonic() + FOLLOWED_SECONDS_MAX
            while not await asyncio.to_thread(primary.is_followed):
                if time.monotonic() > until:
                    raise UnavailableError("the standby does not follow")
                await asyncio.sleep(0.1)

    async def end(self) -> None:
        for server in self._servers:
            await asyncio.to_thread(server.__exit__, None, None, None)


@asynccontextmanager
async def _pair(*, synchronously: bool) -> AsyncGenerator[_Pair]:
    pair = _Pair(synchronously=synchronously)
    try:
        await asyncio.to_thread(pair.start)
        await pair.recover()
        yield pair
    finally:
        await pair.end()

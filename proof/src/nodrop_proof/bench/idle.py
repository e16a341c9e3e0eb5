"""What a relay costs while nothing happens, and how soon an idle worker has what is offered.

Memory is what the relay's process has resident; processor time is its own, over a while in which
nobody says anything. The clients here are bare connections: it is the relay that is looked at.
"""

import asyncio
import os
import resource
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from nodrop.client.client import Client
from nodrop.client.transports.connecting import Process, connect, open_client
from nodrop.model.errors import UnavailableError
from nodrop.model.limits import DEFAULT
from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench import past
from nodrop_proof.bench.cpu import used_seconds
from nodrop_proof.bench.cycle import REQUESTER, WORKER
from nodrop_proof.bench.figures import quantile
from nodrop_proof.bench.machine import Machine
from nodrop_proof.bench.system import Progress
from nodrop_proof.chaos.relay_process import RelayProcess, rss_mb

_AT_ONCE: Final = 64
_SETTLE_SECONDS: Final = 1.0
_SPARE_FILES: Final = 1_000
_STEPS: Final = 4


class IdlePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How many of what."""

    folder: Path
    now_ms: int
    open: int = 100_000
    """Open handoffs."""
    agents: int = 10_000
    """Connected agents."""
    waiting: int = 1_000
    """Callers that wait for an outcome."""
    deliveries: int = 300
    """Offers to an idle worker, one at a time."""
    seconds: float = 10.0
    """How long processor time is watched."""


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Shares of processor time are of one core."""

    machine: Machine
    idle_mb: float
    open: int
    open_mb: float
    agents: int
    agents_mb: float
    agents_cpu: float
    waiting: int
    waiting_mb: float
    waiting_cpu: float
    deliveries: int
    delivery_p50_ms: float
    """From the answer to an offer, which leaves after its commit, to the delivery at the worker."""
    delivery_p99_ms: float

    @property
    def ok(self) -> bool:
        """True: what cannot be looked at to the end raises instead."""
        return True

    def document(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {"ok": self.ok, **msgspec.to_builtins(self)}


async def run(plan: IdlePlan, progress: Progress) -> Idle:
    """Look at a relay in one state after the other."""
    machine = Machine.look(plan.folder)
    progress("an idle relay, and deliveries", 0, _STEPS)
    async with RelayProcess(plan.folder / "idle") as relay:
        idle_mb = _resident(relay)
        delays = await _deliveries(relay, plan.deliveries)
    progress(f"{plan.waiting:,} callers that wait", 1, _STEPS)
    async with RelayProcess(plan.folder / "waiting") as relay, _waiting(relay, plan.waiting):
        waiting_cpu = await _share(relay, plan.seconds)
        waiting_mb = _resident(relay)
    progress(f"{plan.agents:,} connected agents", 2, _STEPS)
    _allow_files(plan.agents + _SPARE_FILES)
    async with RelayProcess(plan.folder / "agents") as relay, _connected(relay, plan.agents):
        agents_cpu = await _share(relay, plan.seconds)
        agents_mb = _resident(relay)
    progress(f"{plan.open:,} open handoffs", 3, _STEPS)
    open_mb = await _open_handoffs(plan)
    return Idle(
        machine=machine,
        idle_mb=idle_mb,
        open=plan.open,
        open_mb=open_mb,
        agents=plan.agents,
        agents_mb=agents_mb,
        agents_cpu=agents_cpu,
        waiting=plan.waiting,
        waiting_mb=waiting_mb,
        waiting_cpu=waiting_cpu,
        deliveries=len(delays),
        delivery_p50_ms=quantile(delays, 0.5) * 1_000,
        delivery_p99_ms=quantile(delays, 0.99) * 1_000,
    )


async def _deliveries(relay: RelayProcess, count: int) -> list[float]:
    """Offer one at a time to a worker that has nothing else to do; return the delays, sorted."""
    arrived: dict[str, float] = {}
    process = Process(id=WORKER, heartbeat_seconds=DEFAULT.heartbeat_seconds)
    worker = await open_client(relay.url, agent=WORKER, home=relay.home, process=process)

    async def take() -> None:
        stream = await worker.transport.deliveries(
            process=process.id, heartbeat_seconds=process.heartbeat_seconds, credit=1
        )
        async for delivery in stream:
            handoff = delivery["handoff"]["id"]
            arrived[handoff] = time.perf_counter()
            told = {"attempt": delivery["attempt"]}
            await worker.call("ack", told, handoff=handoff)
            await worker.call("complete", told, handoff=handoff)
            stream.grant(1)

    taking = asyncio.create_task(take())
    delays: list[float] = []
    async with connect(relay.url, agent=REQUESTER, home=relay.home) as me:
        for number in range(count + 1):
            handoff = await me.hand_off(to=WORKER, payload=cycles.payload(cycles.fresh_key()))
            answered = time.perf_counter()
            await handoff.result(wait="30s")
            if number:  # the first one waited for the worker to come
                delays.append(max(arrived[handoff.id] - answered, 0.0))
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await worker.close()
    return sorted(delays)


@asynccontextmanager
async def _waiting(relay: RelayProcess, count: int) -> AsyncGenerator[None]:
    """Have callers wait for outcomes that do not come, all on one connection."""
    async with connect(relay.url, agent=REQUESTER, home=relay.home) as me:
        offers = [me.hand_off(to=WORKER, payload={}) for _ in range(count)]
        handoffs = await asyncio.gather(*offers)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(handoff.result()) for handoff in handoffs]
            yield
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def _connected(relay: RelayProcess, count: int) -> AsyncGenerator[None]:
    """Have agents connected, each with a token of its own and credit for deliveries.

    Raises:
        UnavailableError: not all of them stayed connected.
    """
    names = iter(range(count))
    channel = f"{relay.url}/v1/channel"
    async with AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        operator = await stack.enter_async_context(relay.operator())
        reading: list[asyncio.Task[None]] = []

        async def connect_some() -> None:
            for number in names:
                token = await _token(operator, f"agent-{number}")
                socket = await session.ws_connect(channel)
                await socket.send_json({"id": 1, "op": "hello", "token": token})
                await socket.receive_json()
                await socket.send_json({"id": 2, "op": "credit", "n": 1})
                await socket.receive_json()
                reading.append(asyncio.create_task(_read(socket)))

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(connect_some())
        yield
        gone = sum(task.done() for task in reading)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        if gone:
            raise UnavailableError(f"the relay closed {gone} of {count} idle connections")


async def _token(operator: Client, agent: str) -> str:
    return (await operator.call("create_token", {"agent": agent}))["token"]


async def _read(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Answer pings until the connection is closed."""
    async for _ in socket:
        pass


async def _open_handoffs(plan: IdlePlan) -> float:
    """Return the memory of a relay that has looked at its many open handoffs, and goes on."""
    folder = plan.folder / "open"
    template = await past.record(finished=False, now_ms=plan.now_ms)
    await asyncio.to_thread(past.filled, {plan.open: folder}, template, now_ms=plan.now_ms)
    async with RelayProcess(folder / "home") as relay:
        async with connect(relay.url, agent=REQUESTER, home=relay.home) as me:
            offers = [me.hand_off(to="somebody", payload={}) for _ in range(_AT_ONCE)]
            await asyncio.gather(*offers)
        return _resident(relay)


async def _share(relay: RelayProcess, seconds: float) -> float:
    """Return the share of a core that the relay uses while nothing is said."""
    await asyncio.sleep(min(_SETTLE_SECONDS, seconds))
    began, before = time.perf_counter(), used_seconds([relay.pid])
    await asyncio.sleep(seconds)
    return (used_seconds([relay.pid]) - before) / (time.perf_counter() - began)


def _resident(relay: RelayProcess) -> float:
    resident = rss_mb(relay.pid)
    assert resident is not None, "the relay runs, on a system that shows it"
    return resident


def _allow_files(count: int) -> None:
    """Let this process, and those it starts, have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count and os.name == "posix":
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))

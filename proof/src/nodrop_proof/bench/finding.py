"""How long finding takes in a large team.

Ten thousand agents with five capabilities each are put into a store, a relay starts on it, and is
asked for a capability with a shape to send and a shape to get, and to route handoffs by capability.
"""

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Changes, Team
from nodrop.model.contract import Agent, Manifest
from nodrop.protocol import requests
from nodrop.relay.relay import Caller, Relay
from nodrop_proof.bench.machine import Machine
from nodrop_proof.bench.system import Progress
from nodrop_proof.simulate.ids import NoSigner, SeededIds

TEAM: Final = "default"
_CALLER: Final = Caller(team=TEAM, agent="me", operator=True)


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, in milliseconds."""

    agents: int
    offering: int
    """Agents that offer the capability asked for."""
    start_ms: float
    find_ms: float
    """Median of a capability-and-shape query, for shapes that were not asked about before."""
    find_again_ms: float
    """The same for shapes that were."""
    route_ms: float
    """Median of an offer routed by capability, commit included."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it, for capabilities that few offer and for one that everybody does."""

    machine: Machine
    timings: tuple[Timings, ...]

    @property
    def ok(self) -> bool:
        """True: there is nothing to lose here."""
        return True

    def document(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {"ok": self.ok, **msgspec.to_builtins(self)}


class FindingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How many of what."""

    folder: Path
    agents: int = 10_000
    capabilities: int = 5
    queries: int = 100


async def run(plan: FindingPlan, progress: Progress) -> Finding:
    """Measure a team in which a hundredth offers a capability, and one in which all do."""
    machine = Machine.look(plan.folder)
    timings: list[Timings] = []
    kinds = (plan.capabilities * 100, plan.capabilities)
    for done, names in enumerate(kinds):
        progress(f"{plan.agents:,} agents, {names} capabilities", done, len(kinds))
        timings.append(
            await measure(
                agents=plan.agents,
                capabilities=plan.capabilities,
                names=names,
                queries=plan.queries,
            )
        )
    return Finding(machine=machine, timings=tuple(timings))


class _Clock:
    def now(self) -> int:
        return time.monotonic_ns() // 1_000_000

    async def sleep_until(self, at: int) -> None:
        await asyncio.sleep(max(at - self.now(), 0) / 1_000)

    processor_seconds = staticmethod(time.thread_time)


async def measure(
    *, agents: int = 10_000, capabilities: int = 5, names: int = 500, queries: int = 100
) -> Timings:
    """Return how long a team of `agents` takes to find and to route among.

    Args:
        agents: how many there are.
        capabilities: how many each offers.
        names: how many different ones there are: the fewer, the more offer each.
        queries: how often each thing is measured.
    """
    store = MemoryStore()
    await store.create_team(Team(id=TEAM, digest_key=b"key", created_at=0))
    made = [_agent(number, capabilities, names) for number in range(agents)]
    async with store.transaction() as tx:
        await tx.append(Changes(agents=made))
    began = time.perf_counter()
    clock = _Clock()
    ids = SeededIds(clock, Random(0))  # noqa: S311  # ids of a measurement guard nothing
    relay = await Relay.start(store, clock=clock, ids=ids, signer=NoSigner())
    started = time.perf_counter()
    try:
        turns = itertools.count()

        async def find(shape: int) -> Any:
            wanted = requests.ListAgents(
                capability=_name(next(turns) % names),
                input=json.dumps({"query": "string", "depth": "int", f"more_{shape}": "string"}),
                output=json.dumps({"summary": "string"}),
                limit=20,
            )
            return (await relay.call(_CALLER, "agents", wanted)).answer

        async def route(_: int) -> Any:
            offer = requests.Offer(
                capability=_name(next(turns) % names), payload={"query": "q", "depth": 1}
            )
            return await relay.call(_CALLER, "offer", offer)

        return Timings(
            agents=agents,
            offering=agents * capabilities // names,
            start_ms=round((started - began) * 1_000, 1),
            find_ms=await _median(queries, find),
            find_again_ms=await _median(queries, lambda _: find(0)),
            route_ms=await _median(queries, route),
        )
    finally:
        await relay.stop()


async def _median(queries: int, ask: Callable[[int], Awaitable[Any]]) -> float:
    took: list[float] = []
    for number in range(queries):
        began = time.perf_counter()
        await ask(number)
        took.append(time.perf_counter() - began)
    return round(statistics.median(took) * 1_000, 3)


def _name(number: int) -> str:
    return f"capability-{number:04d}"


def _agent(number: int, capabilities: int, names: int) -> tuple[Agent, bytes]:
    offered = [
        {
            "name": _name((number * capabilities + turn) % names),
            "input_schema": {"query": "string", "depth": "int"},
            # Every agent's own, so that no comparison answers for two agents.
            "output_schema": {"sources": "array", "summary": "string", f"of_{number}": "string"},
            "timeout_seconds": 300,
            "reliability_sla": 0.95,
        }
        for turn in range(capabilities)
    ]
    manifest = msgspec.json.encode({"agent_id": f"agent-{number:05d}", "capabilities": offered})
    read = msgspec.json.decode(manifest, type=Manifest)
    agent = Agent(team=TEAM, id=read.agent_id, version=1, manifest=read, registered_at=0)
    return agent, manifest

"""Six hours with nobody there, an hour in a minute: chains, and kill -9 of workers and the relay.

Six requesters and 24 agents at work, each in two of six processes, pass 2,000 chains of two to four
legs on. Some legs fail, some ask a person, who is away: a fallback goes on, or the chain is a dead
letter. What is to become of each chain is decided before it begins, so that it can be held against
what its requester was told, and what waits for the person when it comes back. At last `nodrop
verify` reads the log.

CONTROLS `keyless`, of `callers`; `forgetful`, of `staff`.
"""

import asyncio
import logging
import random
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from nodrop.client.client import Client
from nodrop_proof.chaos import export, staff
from nodrop_proof.chaos.caller import Caller
from nodrop_proof.chaos.callers import KEYLESS, connected
from nodrop_proof.chaos.check import Verdict
from nodrop_proof.chaos.crew import Crew
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import Record, Told, read
from nodrop_proof.chaos.relay_process import RelayProcess, environment
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.staff import ASKS, FAILS, FINE, FORGETFUL, PERSON, TOLD_TO_FAIL

HOURS: Final = 6
HOUR_SECONDS: Final = 60.0
HOUR_SECONDS_MIN: Final = 1.0
CHAINS: Final = 2_000
"""In six hours of that length; fewer chains come in as much less time."""
REQUESTERS: Final = 6
AGENTS: Final = tuple(f"agent-{number:02}" for number in range(24))
PROCESSES: Final = 6
LEGS: Final = (2, 4)
FALLBACK_SHARE: Final = 0.3
"""So many legs have somebody behind them who goes on when they do not."""
FAILS_SHARE: Final = 0.05
ASKS_SHARE: Final = 0.03
RELAY_KILL_SECONDS: Final = (4.0, 20.0)
WORKER_KILL_SECONDS: Final = (0.0, 6.0)
"""A random time of this length lies between two kills."""
DEADLINE_SECONDS_MIN: Final = 120.0
"""A busy machine is not to decide what becomes of a chain."""
FINISH_SECONDS_MAX: Final = 180.0
VERIFY_SECONDS_MAX: Final = 600.0
PAGE: Final = 500

_LOG: Final = logging.getLogger("nodrop.chaos")


class Leg(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's part in a chain."""

    agent: str
    fate: str = FINE
    fallback: bool = False


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """Work that is passed on, and when it begins, in seconds."""

    ask: str
    at: float
    legs: tuple[Leg, ...]

    @property
    def ends(self) -> str:
        """What must become of it."""
        for number, leg in enumerate(self.legs):
            behind = self.legs[number + 1 : number + 2]
            if leg.fate != FINE and not (behind and behind[0].fallback):
                return "failed" if leg.fate == FAILS else "expired"
        return "completed"


class Hours(msgspec.Struct, frozen=True, kw_only=True):
    """How long an hour is here, and what that makes of the terms."""

    hour: float

    def terms(self, chain: Chain) -> dict[str, Any]:
        """Return what is offered beyond the usual."""
        first, *later = chain.legs
        return {
            "payload": {"ask": chain.ask, "fate": first.fate},
            "then": [self._leg(leg) for leg in later],
            "accept_within": self.hour / 4,
            "update_every": self.hour / 2,
            "deadline": max(2 * HOURS * self.hour, DEADLINE_SECONDS_MIN),
            "backoff": {"first": self.hour / 60, "max": self.hour / 12},
            "escalation": [
                {"when": "unacknowledged", "after": self.hour, "notify": PERSON},
                {"when": "blocked", "after": self.hour / 2, "notify": PERSON},
                {"when": "dead", "notify": PERSON},
            ],
        }

    def _leg(self, leg: Leg) -> dict[str, Any]:
        said: dict[str, Any] = {
            "to": leg.agent,
            "payload": {"ask": "${origin.ask}", "fate": leg.fate},
        }
        if leg.fallback:
            said["on"] = "failed"
        if leg.fate == ASKS:
            said["deadline"] = self.hour  # nobody is there to answer
        return said


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Pass `plan.count` chains on, in six hours that take `plan.seconds`."""
    began = time.monotonic()
    chance = random.Random(plan.seed)  # noqa: S311  # to be repeated, not to be secret
    hours = Hours(hour=_hour_seconds(plan))
    chains = list(draw(plan.count, chance, within=HOURS * hours.hour))
    control = next(iter(plan.controls & {FORGETFUL}), "")
    async with RelayProcess(plan.folder / "relay") as relay:
        with Record(plan.folder / "records.jsonl") as record:
            roles = [{"--agents": ",".join(names), "--control": control} for names in _shifts()]
            async with (
                Crew(relay, record.path, module=staff.__name__, roles=roles) as crew,
                connected(relay, count=REQUESTERS) as clients,
            ):
                keyless = KEYLESS in plan.controls
                callers = [Caller(client, record, keyless=keyless) for client in clients]
                nemesis = _Nemesis(relay, crew, chance)
                await nemesis.among(_pass_on(chains, callers, hours, progress))
        async with relay.operator() as me:
            verdict = await export.check(record.path, me)
            waiting = await _dead_letters(me)
            shown = await _inbox(me)
        verified = await _verified(relay)
    told = {line.ask: line.state for line in read(record.path) if isinstance(line, Told)}
    wrong = (*_otherwise(chains, told), *_unexplained(chains, waiting))
    if not verified["holds"]:
        wrong = (*wrong, f"the log does not hold: {verified['finding']}")
    return _with(verdict, wrong).report(
        plan,
        count=len(nemesis.restarts_ms) + crew.kills,
        seconds=time.monotonic() - began,
        restarts_ms=nemesis.restarts_ms,
        extras={
            "agents": REQUESTERS + len(AGENTS),
            "chains": len(chains),
            "relay_kills": len(nemesis.restarts_ms),
            "worker_kills": crew.kills,
            "completed": Counter(told.values())["completed"],
            "dead_letters": len(waiting),
            "waits_for_the_person": shown,
            "entries_verified": verified["entries"],
        },
    )


def draw(count: int, chance: random.Random, *, within: float) -> Iterable[Chain]:
    """Yield chains that begin within so many seconds, in that order."""
    for number, at in enumerate(sorted(chance.uniform(0, within) for _ in range(count))):
        names = iter(chance.sample(AGENTS, k=2 * LEGS[1]))
        legs: list[Leg] = []
        for place in range(chance.randint(*LEGS)):
            drawn = chance.random()
            fate = FAILS if drawn < FAILS_SHARE else FINE
            # The deadline of the first is the chain's: only a later leg may have one of its own.
            if place and FAILS_SHARE <= drawn < FAILS_SHARE + ASKS_SHARE:
                fate = ASKS
            legs.append(Leg(agent=next(names), fate=fate))
            if chance.random() < FALLBACK_SHARE:
                legs.append(Leg(agent=next(names), fallback=True))
        yield Chain(ask=f"chain-{number}", at=at, legs=tuple(legs))


def _hour_seconds(plan: Plan) -> float:
    if plan.seconds is not None:
        return plan.seconds / HOURS
    return max(HOUR_SECONDS * plan.count / CHAINS, HOUR_SECONDS_MIN)


def _shifts() -> Iterable[Sequence[str]]:
    """Yield who works in each process: everybody works in two, and with others in each."""
    size = 2 * len(AGENTS) // PROCESSES
    for number in range(PROCESSES):
        start = number * size // 2
        yield [AGENTS[place % len(AGENTS)] for place in range(start, start + size)]


# --- six hours ----------------------------------------------------------------------------------


async def _pass_on(
    chains: Sequence[Chain],
    callers: Sequence[Caller],
    hours: Hours,
    progress: Callable[[int, int], None],
) -> None:
    """Begin every chain at its time, and stay until each requester has its outcome."""
    began = time.monotonic()
    done = 0

    async def live(chain: Chain, caller: Caller) -> None:
        nonlocal done
        await asyncio.sleep(chain.at - (time.monotonic() - began))
        first = chain.legs[0]
        handoff = await caller.hand_off(
            chain.ask, to=first.agent, legs=len(chain.legs), terms=hours.terms(chain)
        )
        await caller.outcome(chain.ask, handoff)
        done += 1
        progress(done, len(chains))

    tasks = [
        asyncio.create_task(live(chain, callers[number % len(callers)]))
        for number, chain in enumerate(chains)
    ]
    try:
        await asyncio.wait(tasks, timeout=(HOURS + 2) * hours.hour + FINISH_SECONDS_MAX)
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                _LOG.error("a requester gave up", exc_info=ended)


class _Nemesis:
    """Kills the relay, and workers, each in its own time."""

    def __init__(self, relay: RelayProcess, crew: Crew, chance: random.Random) -> None:
        self.restarts_ms: list[float] = []
        self._relay = relay
        self._crew = crew
        self._chance = chance
        self._serving = True

    async def among(self, work: Coroutine[Any, Any, None]) -> None:
        """Kill until `work` is done; the relay serves then."""
        killing = [asyncio.create_task(each()) for each in (self._relays, self._workers)]
        try:
            await work
        finally:
            for task in killing:
                task.cancel()
            await asyncio.gather(*killing, return_exceptions=True)
        if not self._serving:
            await self._relay.kill()
            self.restarts_ms.append(await self._relay.start())

    async def _relays(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(*RELAY_KILL_SECONDS))
            self._serving = False
            await self._relay.kill()
            self.restarts_ms.append(await self._relay.start())
            self._serving = True

    async def _workers(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(*WORKER_KILL_SECONDS))
            await self._crew.kill_one(self._chance)


# --- what came of it ----------------------------------------------------------------------------


async def _dead_letters(me: Client) -> dict[str, Mapping[str, Any]]:
    """Return what waits for a decision, by its chain."""
    found: dict[str, Mapping[str, Any]] = {}
    async for page in _pages(me, "dead_letters"):
        found |= {view["correlation_id"]: view for view in page}
    return found


async def _pages(me: Client, operation: str) -> AsyncGenerator[list[dict[str, Any]]]:
    before: dict[str, str] = {}
    while views := (await me.call(operation, {"limit": PAGE, **before}))["handoffs"]:
        yield views
        before = {"before": views[-1]["id"]}


async def _inbox(me: Client) -> int:
    """Return how many things the person finds when it is back."""
    seen, after = 0, -1
    page: dict[str, Any] = {"items": (), "after": 0}
    while page["after"] > after:  # a page may hold nothing that still waits, and the next one may
        after = page["after"]
        page = await me.call("inbox", {"after": after, "limit": PAGE})
        seen += len(page["items"])
    return seen


async def _verified(relay: RelayProcess) -> dict[str, Any]:
    """Return what `nodrop verify` says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nodrop.cli", "verify", "--json"),
        stdin=DEVNULL,
        stdout=PIPE,
        env=environment(relay.home),
        cwd=relay.home,
    )
    try:
        async with asyncio.timeout(VERIFY_SECONDS_MAX):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return msgspec.json.decode(said)


def _otherwise(chains: Sequence[Chain], told: Mapping[str, str]) -> Iterable[str]:
    """Yield the chains whose requesters were told something else than what was to be."""
    for chain in chains:
        state = told.get(chain.ask)
        if state is not None and state != chain.ends:
            yield f"{chain.ask}: {state}, and it was to be {chain.ends}"


def _unexplained(
    chains: Sequence[Chain], waiting: Mapping[str, Mapping[str, Any]]
) -> Iterable[str]:
    """Yield the chains that are neither complete nor dead letters with their reason."""
    for chain in chains:
        view = waiting.get(chain.ask)
        if chain.ends == "completed":
            if view is not None:
                yield f"{chain.ask}: complete, and a dead letter"
        elif view is None:
            yield f"{chain.ask}: {chain.ends}, and nobody is to decide about it"
        elif view["state"] == "failed" and view["outcome"]["code"] != TOLD_TO_FAIL:
            yield f"{chain.ask}: failed with {view['outcome']['code']}"


def _with(verdict: Verdict, wrong: Iterable[str]) -> Verdict:
    all_of_it: Any = (*verdict.wrong, *wrong)
    return msgspec.structs.replace(verdict, wrong=all_of_it)

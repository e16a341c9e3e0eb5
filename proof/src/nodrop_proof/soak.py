"""The soak: a relay as a user runs it, many agents with tokens of their own, for hours.

Requesters hand off and wait, workers record steps, others talk, read inboxes and follow the log.
Tokens are rotated and revoked, connections are closed and opened again. All of that is steady, so
nothing of the relay's may grow but its database: a line through the second half of the run shows what
memory and descriptors would gain. Handoffs are counted from outside: live, by a follower of the log,
and at the end by the checker of `chaos`, from what clients wrote down and what the relay shows.

CONTROL `leak`: connections that nobody closes, and that are not counted as anybody's.
"""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from nodrop.client.client import Client
from nodrop.client.transports.connecting import connect, open_client
from nodrop.model.errors import UnauthenticatedError, UnavailableError
from nodrop_proof.chaos import export
from nodrop_proof.chaos.caller import AGAIN_SECONDS, Caller
from nodrop_proof.chaos.plan import Plan as ChaosPlan
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess, rss_mb
from nodrop_proof.chaos.report import Report, quantile
from nodrop_proof.chaos.worker import worker

LOST_AFTER_SECONDS: Final = 30.0
"""Answered as stored so long ago, and not in the log: lost."""
TOPICS: Final = 8
ROTATE_EVERY: Final = 20
"""A requester has another token after so many handoffs, and another connection after half of them."""
LEAKS_PER_SECOND: Final = 10.0
"""Connections that the control opens and never closes."""
FINISH_SECONDS_MAX: Final = 60.0
SAMPLES_MIN: Final = 8
GROWTH_SHARE: Final = 0.1
"""So much of what there was at half-time may be gained in the second half: noise."""
MEMORY_MB_MIN: Final = 16.0
FILLING_SECONDS: Final = 1_800.0
"""In a shorter run the relay's caches, which are bounded, are still being filled in its second half."""
FILLING_MB: Final = 64.0
DESCRIPTORS_MIN: Final = 16.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is run."""

    folder: Path
    seconds: float
    agents: int = 200
    rate: float = 20.0
    """Handoffs per second that all requesters together begin."""
    every: float = 60.0
    """Seconds between two lines of the report."""
    seed: int = 1
    leak: bool = False


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The relay's process at one moment."""

    at: float
    memory_mb: float
    descriptors: int
    """Beyond one for each connection that an agent holds."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One minute."""

    at: float
    """Seconds since the beginning."""
    rate: float
    """Outcomes per second."""
    p50_ms: float
    p99_ms: float
    """From handing off to the outcome, as the requester sees it."""
    memory_mb: float
    descriptors: int
    database_mb: float
    open: int
    """Handoffs whose requesters wait."""
    lost: int
    duplicated: int
    """Both since the beginning, as a follower of the log sees them."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """What one figure gained in the second half, by a line through its samples."""

    gained: float
    allowed: float

    @property
    def ok(self) -> bool:
        """Whether that is noise."""
        return self.gained <= self.allowed


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    report: Report
    memory_mb: Growth
    descriptors: Growth
    lost: int
    duplicated: int
    rotations: int
    reconnects: int
    talk: int
    """Messages and statuses."""

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, doubled or run again, and nothing grew."""
        counted = not self.lost and not self.duplicated and self.report.ok
        return counted and self.memory_mb.ok and self.descriptors.ok


def growth(samples: Sequence[tuple[float, float]], *, allowed_min: float) -> Growth:
    """Return what (time, figure) gained in the second half: least squares over it."""
    half = samples[-1][0] / 2
    late = [sample for sample in samples if sample[0] >= half]
    if len(late) < SAMPLES_MIN:
        raise ValueError(f"{len(late)} samples are too few to say anything")
    mean_at = sum(at for at, _ in late) / len(late)
    mean = sum(figure for _, figure in late) / len(late)
    spread = sum((at - mean_at) ** 2 for at, _ in late)
    slope = sum((at - mean_at) * (figure - mean) for at, figure in late) / spread
    gained = slope * (late[-1][0] - late[0][0])
    return Growth(gained=round(gained, 2), allowed=max(GROWTH_SHARE * mean, allowed_min))


async def run(plan: Plan, tell: Callable[[Line], None] = lambda _: None) -> Result:
    """Soak a relay; `tell` hears of every line."""
    async with RelayProcess(plan.folder / "relay") as relay:
        with Record(plan.folder / "records.jsonl") as record:
            soak = _Soak(plan, relay, record, tell)
            await soak.run()
        async with relay.operator() as me:
            verdict = await export.check(record.path, me)
    chaos = ChaosPlan(fault="soak", count=0, seed=plan.seed, folder=plan.folder)
    memory = [(s.at, s.memory_mb) for s in soak.samples]
    descriptors = [(s.at, float(s.descriptors)) for s in soak.samples]
    return Result(
        report=verdict.report(chaos, count=0, seconds=plan.seconds),
        memory_mb=growth(
            memory, allowed_min=FILLING_MB if plan.seconds < FILLING_SECONDS else MEMORY_MB_MIN
        ),
        descriptors=growth(descriptors, allowed_min=DESCRIPTORS_MIN),
        lost=soak.ledger.lost(),
        duplicated=soak.ledger.duplicated,
        rotations=soak.rotations,
        reconnects=soak.reconnects,
        talk=soak.talk,
    )


class Ledger:
    """What requesters were told, beside what a follower of the log saw."""

    def __init__(self) -> None:
        self.duplicated = 0
        self._stored: dict[str, float] = {}
        """Handoffs answered as stored and not seen in the log, since when."""
        self._seen: set[str] = set()
        """Handoffs seen in the log before their requester was answered."""
        self._open: dict[str, str] = {}
        """Unfinished handoffs, by what was asked for."""

    def stored(self, handoff_id: str) -> None:
        """A requester was answered."""
        if handoff_id in self._seen:
            self._seen.discard(handoff_id)
        else:
            self._stored[handoff_id] = time.monotonic()

    def see(self, kind: str, handoff_id: str | None, ask: str | None) -> None:
        """An entry was committed."""
        if handoff_id is None or ask is None:
            return
        if kind == "handoff.offered.v1":
            if self._open.setdefault(ask, handoff_id) != handoff_id:
                self.duplicated += 1
            if self._stored.pop(handoff_id, None) is None:
                self._seen.add(handoff_id)
        elif kind == "handoff.completed.v1" and self._open.pop(ask, None) is None:
            self.duplicated += 1

    def lost(self) -> int:
        """Return how many were answered as stored a while ago, and are not in the log."""
        now = time.monotonic()
        return sum(now - at > LOST_AFTER_SECONDS for at in self._stored.values())


class _Member:
    """An agent with a token of its own."""

    def __init__(self, soak: "_Soak", name: str) -> None:
        self.name = name
        self.client: Client
        self._soak = soak
        self._token: dict[str, str] = {}

    async def come(self) -> None:
        """Get a token, and connect."""
        self._token = await self._soak.me.call("create_token", {"agent": self.name})
        await self._connect()

    async def go(self) -> None:
        """Close the connection."""
        await self.client.close()
        self._soak.connections -= 1

    async def come_again(self) -> None:
        """Close the connection, and open another."""
        await self.go()
        await self._connect()
        self._soak.reconnects += 1

    async def rotate(self) -> None:
        """Take another token, and have the first one revoked: it must be worth nothing then."""
        before = self._token
        await self.go()
        await self.come()
        await self._soak.me.call("revoke_token", {}, name=before["token_id"])
        self._soak.rotations += 1
        with suppress(UnauthenticatedError, UnavailableError):
            async with connect(
                self._soak.url, agent=self.name, token=before["token"], transport="http"
            ) as stale:
                await stale.call("inbox", {})
            raise AssertionError("a revoked token was let in")

    async def _connect(self) -> None:
        self.client = await self._soak.connect(self.name, self._token["token"])
        self._soak.connections += 1


class _Soak:
    def __init__(
        self, plan: Plan, relay: RelayProcess, record: Record, tell: Callable[[Line], None]
    ) -> None:
        self.me: Client
        self.url = relay.url
        self.home = relay.home
        self.ledger = Ledger()
        self.samples: list[Sample] = []
        self.connections = 0
        self.rotations = 0
        self.reconnects = 0
        self.talk = 0
        self._plan = plan
        self._relay = relay
        self._record = record
        self._tell = tell
        self._chance = random.Random(plan.seed)  # noqa: S311  # to be repeated, not to be secret
        self._asks = itertools.count()
        self._open = 0
        self._latencies_ms: list[float] = []
        self._reported_at = 0.0
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Let everybody come, work for the time, and finish."""
        plan = self._plan
        workers = [f"worker-{n}" for n in range(max(plan.agents // 4, 1))]
        roles = [self._request, self._request, self._read, self._follow, self._speak]
        async with AsyncExitStack() as stack:
            self.me = await stack.enter_async_context(self._relay.operator())
            for name in workers:
                await stack.enter_async_context(self._working(name))
            members = [_Member(self, f"agent-{n}") for n in range(plan.agents - len(workers))]
            for member in members:
                await member.come()
                stack.push_async_callback(member.go)
            async with asyncio.TaskGroup() as group:
                ledger = group.create_task(self._keep_ledger())
                tasks = [
                    group.create_task(roles[number % len(roles)](member, workers, members))
                    for number, member in enumerate(members)
                ]
                leaking = group.create_task(self._leak(stack)) if plan.leak else None
                await self._measure()
                self._stopping.set()
                await asyncio.wait(tasks, timeout=FINISH_SECONDS_MAX)
                for task in (ledger, leaking, *tasks):
                    if task is not None:
                        task.cancel()

    @asynccontextmanager
    async def _working(self, name: str) -> AsyncGenerator[None]:
        token = (await self.me.call("create_token", {"agent": name}))["token"]
        agent = worker(self._record, name=name)
        serving = asyncio.create_task(agent.serve(self.url, token=token, home=self.home))
        self.connections += 1
        await asyncio.sleep(0)  # it would not hear a stop before it began
        try:
            yield
            agent.stop()
            await serving
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def connect(self, name: str, token: str) -> Client:
        """Connect an agent, however long the machine keeps the relay from running."""
        while True:
            with suppress(UnavailableError):
                return await open_client(self.url, agent=name, token=token, home=self.home)
            await asyncio.sleep(AGAIN_SECONDS)

    # --- what agents do ---

    async def _request(
        self, member: _Member, workers: Sequence[str], members: Sequence[_Member]
    ) -> None:
        """Hand off, wait, and now and then change connection and token."""
        pause = len(members) * 2 / 5 / self._plan.rate
        for done in itertools.count(1):
            if await self._stopped(self._chance.uniform(0, 2 * pause)):
                return
            ask = f"soak-{next(self._asks)}"
            caller = Caller(member.client, self._record)
            began = time.monotonic()
            self._open += 1
            handoff = await caller.hand_off(ask, to=self._chance.choice(workers))
            self.ledger.stored(handoff.id)
            await caller.outcome(ask, handoff)
            self._open -= 1
            self._latencies_ms.append((time.monotonic() - began) * 1_000)
            if done % ROTATE_EVERY == 0:
                await member.rotate()
            elif done % ROTATE_EVERY == ROTATE_EVERY // 2:
                await member.come_again()

    async def _speak(self, member: _Member, _: Sequence[str], members: Sequence[_Member]) -> None:
        while not await self._stopped(self._chance.uniform(0, 2)):
            topic = f"topic-{self._chance.randrange(TOPICS)}"
            others = [each.name for each in members if each is not member]
            await member.client.say("steady", to=self._chance.choice(others))
            await member.client.status("working", topic=topic)
            self.talk += 2

    async def _read(self, member: _Member, _: Sequence[str], __: Sequence[_Member]) -> None:
        """Read the inbox, and hear of one topic after the other."""
        after = 0
        for number in itertools.count():
            if await self._stopped(0):
                return
            await member.client.subscribe(f"topic-{number % TOPICS}")
            after = (await member.client.inbox(after, wait=1)).after
            await member.client.unsubscribe(f"topic-{number % TOPICS}")
            if number % ROTATE_EVERY == ROTATE_EVERY - 1:
                await member.come_again()

    async def _follow(self, member: _Member, _: Sequence[str], __: Sequence[_Member]) -> None:
        """Follow the log from its end, for a while; then again, from another connection."""
        while not await self._stopped(0):
            head = (await self.me.call("checkpoints", {}))["size"]
            with suppress(TimeoutError):
                async with asyncio.timeout(self._chance.uniform(1, 10)):
                    async for _entry in member.client.follow_log(head):
                        pass
            await member.come_again()

    async def _leak(self, stack: AsyncExitStack) -> None:
        token = (await self.me.call("create_token", {"agent": "leaky"}))["token"]
        while True:
            client = await self.connect("leaky", token)
            stack.push_async_callback(client.close)
            # The control's pace: as fast as it can it would run out of descriptors, not grow.
            await asyncio.sleep(1 / LEAKS_PER_SECOND)

    async def _stopped(self, seconds: float) -> bool:
        """Wait for so long; return whether it is time to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    # --- what is measured ---

    async def _keep_ledger(self) -> None:
        async for entry in self.me.follow_log():
            self.ledger.see(entry.type, entry.handoff_id, entry.correlation_id)

    async def _measure(self) -> None:
        began = time.monotonic()
        pace = min(1.0, self._plan.every / 10)
        due = self._plan.every
        while (at := time.monotonic() - began) < self._plan.seconds:
            self.samples.append(self._sample(at))
            if at >= due:
                self._report(at)
                due += self._plan.every
            await asyncio.sleep(pace)
        self._report(time.monotonic() - began)

    def _sample(self, at: float) -> Sample:
        held = len(list(Path(f"/proc/{self._relay.pid}/fd").iterdir()))
        memory = rss_mb(self._relay.pid) or 0.0
        return Sample(at=at, memory_mb=memory, descriptors=held - self.connections)

    def _report(self, at: float) -> None:
        latencies, self._latencies_ms = self._latencies_ms or [0.0], []
        seconds, self._reported_at = max(at - self._reported_at, 0.001), at
        last = self.samples[-1]
        files = [file.stat().st_size for file in self.home.glob("*.db*")]
        self._tell(
            Line(
                at=round(at, 1),
                rate=round(len(latencies) / seconds, 1),
                p50_ms=round(quantile(latencies, 0.5), 1),
                p99_ms=round(quantile(latencies, 0.99), 1),
                memory_mb=round(last.memory_mb, 1),
                descriptors=last.descriptors + self.connections,
                database_mb=round(sum(files) / 1_048_576, 2),
                open=self._open,
                lost=self.ledger.lost(),
                duplicated=self.ledger.duplicated,
            )
        )

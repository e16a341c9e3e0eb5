"""Findings: follows a team's log and tells the person about patterns that need one.

Behind the commits, like every follower: at its own pace, with a cursor in the store. A finding is an
entry of the log and a notice to `me` with the command that stops it; what was told is told again only
after a while. Where the log grows faster than is read here, the oldest part is skipped.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from nodrop.log.port import Key, LogPage, Mail, Store, Wanted
from nodrop.model.commands import RELAY
from nodrop.model.errors import CursorUnknownError, NodropError
from nodrop.model.following import undecided
from nodrop.model.handoff import Handoff, State
from nodrop.model.limits import DAY, HOUR, MINUTE, SECOND
from nodrop.model.mail import Kind
from nodrop.protocol import bodies, canonical
from nodrop.protocol.entries import Draft, Entry
from nodrop.relay.batch import Batch
from nodrop.relay.coordination.patterns import Found, Patterns, Recent, Repeats, livelock
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.endings import ENDINGS, Endings
from nodrop.relay.jobs import FunctionJob, Job
from nodrop.relay.ports import Clock

log = logging.getLogger("nodrop.findings")

RAISED: Final = "finding.raised.v1"
NAME: Final = "findings"
PERSON: Final = "me"
COOL_DOWN_MS: Final = HOUR
"""Until the same is told again, if it goes on."""
COOL_DOWN_SLOW_MS: Final = DAY
"""Same, of what changes slowly."""
ORPHAN_GRACE: Final = 1.25
"""Times the time that a requester has for an outcome."""
PACE_MS: Final = SECOND
PAGES_MAX: Final = 4
"""Pages that are read in one go, before the pace is kept."""
BEHIND_MAX: Final = 20_000
"""Entries; beyond, what is oldest is skipped."""
WARM: Final = 5_000
"""Entries before the cursor that are read again after a start, so that a pattern goes on."""
STRIDE: Final = 1_000
"""Entries after which the cursor is kept."""
PAGE: Final = 500
TOGETHER: Final = 64
"""Entries that are read without a pause."""
ENDED_MAX: Final = 20_000
"""Outcomes whose collection is waited for."""
_SLOT_MS: Final = MINUTE
_SLOT_MAX: Final = 1_000
"""Handoffs that are looked at together; of those that ended within a minute."""
RAISED_MAX: Final = 10_000
_WAIT: Final = "60s"
_DIGEST_BYTES: Final = 8
_SLOW: Final = frozenset({"hot-spot", "orphan"})


class _Raised(msgspec.Struct):
    detector: str
    subject: str


class Findings:
    """Tells about the patterns of every team that is followed."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        endings: Endings,
        clock: Clock,
        tell: Callable[[Key, Mail], None],
        count: Callable[[str, str], None],
    ) -> None:
        """`tell` wakes those who wait for an inbox; `count` is called with team and detector."""
        self.outcome_within_ms = engine.limits.outcome_within_ms
        self._engine = engine
        self._count = count
        self._store = store
        self._endings = endings
        self._clock = clock
        self._tell = tell

    async def follow(self, team: str) -> None:
        """Follow a team's log, until cancelled."""
        follower = self.follower(team)
        while True:
            try:
                await follower.round()
            except CursorUnknownError as error:
                log.warning("following the log of %s from where the store says: %s", team, error)
                follower = self.follower(team)
            except NodropError as error:
                log.warning("could not follow the log of %s, trying again: %s", team, error)
            await self._clock.sleep_until(self._clock.now() + PACE_MS)

    def follower(self, team: str) -> "Follower":
        """Return what reads a team's log, from where the last one was."""
        return Follower(self, self._store, self._endings, team=team, clock=self._clock)

    async def raised(self, team: str, found: Found) -> None:
        """Write a finding down, and tell the person."""
        data = {
            "detector": found.detector,
            "subject": found.subject,
            "agents": list(found.agents),
            "entries": list(found.entries),
            "action": found.action,
            "to": [PERSON],
        }
        body = bodies.words(text=f"{found.says}. {_advice(found)}: {found.action}")
        at = 0

        def run(batch: Batch) -> Callable[[Sequence[int]], int]:
            nonlocal at
            at = batch.now
            index = batch.write(
                Draft(
                    team=team,
                    at=batch.now,
                    type=RAISED,
                    actor=RELAY.agent,
                    data=msgspec.Raw(canonical.dumps(data)),
                    body=body,
                    mail=((PERSON, Kind.NOTICE.value),),
                )
            )
            return lambda seqs: seqs[index]

        job: Job[object] = FunctionJob(Wanted(), run)
        seq = await self._engine.submit(job)
        assert isinstance(seq, int), "the engine fills in the sequence numbers"
        self._count(team, found.detector)
        item = Mail(
            seq=seq,
            kind=Kind.NOTICE.value,
            at=at,
            actor=RELAY.agent,
            type=RAISED,
            handoff_id=None,
            version=None,
        )
        self._tell((team, PERSON), item)


class Follower:
    """Reads one team's log."""

    def __init__(
        self, findings: Findings, store: Store, endings: Endings, *, team: str, clock: Clock
    ) -> None:
        self._findings = findings
        self._store = store
        self._endings = endings
        self._team = team
        self._clock = clock
        self._patterns = Patterns()
        self._told = Recent[int](RAISED_MAX)
        """When each finding was told last."""
        self._ended = Uncollected()
        self._read: int | None = None
        self._kept = 0

    async def round(self, *, wait: str = _WAIT) -> None:
        """Read what there is, wait if that is nothing, and tell."""
        if self._read is None:
            self._read = await self._begin()
        for _ in range(PAGES_MAX):
            page = await self._endings.after(self._team, self._read, wait=wait)
            if not page:
                break
            await self._read_page(page)
            self._read, wait = page[-1].seq, "0s"
        await self._raise_orphans()
        await self._keep(self._read)
        await self._skip()

    async def _begin(self) -> int:
        """Return where the last one was, with the entries before it read again."""
        cursor = self._kept = await self._endings.cursor(self._team, NAME)
        await self._endings.keep(self._team, NAME, cursor)
        after = max(cursor - WARM, 0)
        # The cursor may be behind what was told last.
        told = LogPage(team=self._team, after=after, limit=PAGE, type=RAISED)
        for entry in await self._store.log(told):
            self._take_in(entry)
        while after < cursor:
            page = await self._endings.after(self._team, after, wait="0s")
            async for entry in _in_turns(page):
                if entry.seq <= cursor:
                    self._take_in(entry)
            if not page:
                break
            after = page[-1].seq
        return cursor

    async def _keep(self, read: int) -> None:
        """Keep the cursor now and then: what is read twice is told once."""
        if read - self._kept >= STRIDE:
            self._kept = read
            await self._endings.keep(self._team, NAME, read)

    async def _skip(self) -> None:
        assert self._read is not None, "it has begun"
        head = (await self._store.head(self._team)).seq
        if head - self._read > BEHIND_MAX:
            log.info("skipping %d entries of %s", head - self._read - WARM, self._team)
            self._read = head - WARM

    # --- patterns ---

    def _take_in(self, entry: Entry) -> list[Found | Repeats]:
        if entry.type == RAISED:
            raised = msgspec.json.decode(entry.data, type=_Raised)
            found = Found(
                detector=raised.detector,
                subject=raised.subject,
                agents=(),
                says="",
                entries=(),
                action="",
            )
            self._told.put(found.about, entry.at)
            return []
        if entry.type in ENDINGS and entry.handoff_id is not None:
            given = self._findings.outcome_within_ms * ORPHAN_GRACE
            self._ended.add(round(entry.at + given), entry.handoff_id)
        return list(self._patterns.read(entry))

    async def _read_page(self, page: Iterable[Entry]) -> None:
        async for entry in _in_turns(page):
            for made in self._take_in(entry):
                found = await self._livelock(made) if isinstance(made, Repeats) else made
                if found is not None:
                    await self._raise(found, at=entry.at)

    async def _livelock(self, repeats: Repeats) -> Found | None:
        """Compare payloads. The digests in the log are salted, so the payloads themselves are read."""
        hops = repeats.hops
        wanted = [hop.seq for hop in hops if hop.payload is None]
        wanted += [h.result_seq for h in hops if h.result is None and h.result_seq is not None]
        words = await self._store.entry_bodies(self._team, wanted)
        for hop in hops:
            if (payload := words.get(hop.seq)) is not None:
                hop.payload = _digest(payload.body, "payload")
            if hop.result_seq is not None and (result := words.get(hop.result_seq)) is not None:
                hop.result = _digest(result.body, "result")
        return livelock(repeats)

    # --- chains that nobody carries on ---

    async def _raise_orphans(self) -> None:
        now = self._clock.now()
        due = self._ended.due(now)
        if not due:
            return
        found = await self._store.handoffs([(self._team, id_) for id_ in due])
        by_agent: defaultdict[str, list[Handoff]] = defaultdict(list)
        for handoff in found:
            if _left_alone(handoff):
                by_agent[handoff.origin].append(handoff)
        for agent, several in sorted(by_agent.items()):
            await self._raise(_orphans(agent, several), at=now)

    async def _raise(self, found: Found, *, at: int) -> None:
        before = self._told.get(found.about)
        cool_down = COOL_DOWN_SLOW_MS if found.detector in _SLOW else COOL_DOWN_MS
        if before is not None and at < before + cool_down:
            return
        self._told.put(found.about, at)
        await self._findings.raised(self._team, found)


class _Slot(msgspec.Struct):
    first_at: int
    due_at: int
    """When the last of them should have been collected."""
    ids: bytearray
    count: int = 0


class Uncollected:
    """Handoffs that ended lately, by when their outcomes should have been collected.

    The ids of about a minute are in one buffer. They are kept for a day: as values of their own, they would
    hold on to the memory around them, of which a wave of requests leaves nothing else.
    """

    def __init__(self) -> None:
        self._slots: deque[_Slot] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due_at: int, handoff_id: str) -> None:
        """Take in one that ended after the others; what ended longest ago makes room."""
        last = self._slots[-1] if self._slots else None
        if last is None or last.count >= _SLOT_MAX or due_at > last.first_at + _SLOT_MS:
            last = _Slot(first_at=due_at, due_at=due_at, ids=bytearray())
            self._slots.append(last)
        last.ids += handoff_id.encode() + b"\n"
        last.due_at = max(last.due_at, due_at)
        last.count += 1
        self._count += 1
        while self._count > ENDED_MAX and len(self._slots) > 1:
            self._count -= self._slots.popleft().count

    def due(self, now: int) -> list[str]:
        """Return those whose time is over, and forget them."""
        due: list[str] = []
        while self._slots and self._slots[0].due_at <= now:
            slot = self._slots.popleft()
            self._count -= slot.count
            due += slot.ids.decode().split()
        return due


async def _in_turns(page: Iterable[Entry]) -> AsyncGenerator[Entry]:
    """Yield entries, with a pause now and then in which others are served."""
    for number, entry in enumerate(page, 1):
        yield entry
        if number % TOGETHER == 0:
            await asyncio.sleep(0)


def _left_alone(handoff: Handoff) -> bool:
    """Whether an outcome was neither collected nor decided about."""
    if not handoff.final or handoff.settled_at is not None or handoff.state is State.CANCELLED:
        return False
    return handoff.state is State.COMPLETED or undecided(handoff)


def _orphans(agent: str, several: Sequence[Handoff]) -> Found:
    last = several[-1]
    many = "one outcome waits" if len(several) == 1 else f"{len(several)} outcomes wait"
    return Found(
        detector="orphan",
        subject=agent,
        agents=(agent,),
        says=f"{many} for {agent}, which never collected or decided",
        entries=(),
        action=f"nodrop trace {last.id}",
    )


def _advice(found: Found) -> str:
    return "To stop it" if found.action.startswith("nodrop cancel") else "To look into it"


def _digest(body: bytes, member: str) -> bytes | None:
    value = canonical.loads(body).get(member)
    if value is None:
        return None
    return blake2b(canonical.dumps(value), digest_size=_DIGEST_BYTES).digest()

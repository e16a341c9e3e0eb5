"""What callers are shown: handoffs, deliveries, inbox items and log entries, made for a reader.

Reads only. Who may see a handoff is decided here, and nowhere else.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

import msgspec

from nodrop.log.port import LARGE_BODY_BYTES, Body, Key, Mail, Store
from nodrop.model import mail
from nodrop.model.commands import Actor
from nodrop.model.errors import LimitReachedError, NotFoundError
from nodrop.model.handoff import DEAD, Answer, BodyRef, Handoff, State, Terms
from nodrop.model.limits import Limits
from nodrop.model.mail import Kind
from nodrop.model.roles import Role
from nodrop.protocol import canonical, showing, views
from nodrop.protocol.bodies import WITHHELD, decode_content
from nodrop.protocol.entries import Entry
from nodrop.protocol.identity import keys
from nodrop.protocol.times import format_time
from nodrop.relay import notices
from nodrop.relay.bodies import Bodies, BodyKey, MissingBodyError
from nodrop.relay.coordination.spoken import may_hear, summary
from nodrop.relay.delivery.leases import Leases
from nodrop.relay.delivery.queues import Queues
from nodrop.relay.identity.refusals import Refusal
from nodrop.relay.room import Turns

T = TypeVar("T")

KEPT_MAX: Final = 4_096
"""Handoffs whose lasting views are kept."""
KEPT_BYTES_MAX: Final = 4_096
"""Bytes of content up to which its view is kept."""
LARGE_BYTES: Final = 65_536
"""Bodies over this take a millisecond or more to read."""
FEW_MIN: Final = 2
FEW_MAX: Final = 16
"""How many are read at a time for a page: more could be more than it has room for."""


class Caller(Actor, frozen=True, kw_only=True):
    """Who asks, as the door authenticated it, and of which team."""

    team: str
    observer: bool = False
    token_id: str | None = None
    key_id: str | None = None
    invitation_id: str | None = None
    """The bearer of an invitation, who is nobody yet."""
    link_id: str | None = None
    """The link that the caller was signed in by."""
    viewer: bool = False
    """Signed in by a view link: an observer that may not even manage its own credentials."""
    payloads: bool = False
    """An observer that may read payloads, results and other bodies."""
    address: str | None = None
    """Where it asks from, if it came over a network."""

    @property
    def role(self) -> Role:
        """What its token lets it be."""
        if self.operator:
            return Role.OPERATOR
        return Role.OBSERVER if self.observer else Role.AGENT

    @property
    def sees_bodies(self) -> bool:
        """Whether it reads payloads, results and other bodies of what it may see."""
        return self.payloads or not self.observer

    @property
    def sees_team(self) -> bool:
        """Whether it sees that handoffs exist which it is no party to."""
        return self.operator or self.observer


def may_see(caller: Caller, handoff: Handoff) -> bool:
    """Whether `caller` is a party to `handoff`, or sees all of its team."""
    if handoff.team != caller.team:
        return False
    agent = caller.agent
    if agent == handoff.recipient or agent == handoff.origin:  # noqa: PLR1714  # most are one of the two: quicker than a tuple
        return True
    return caller.operator or caller.observer or agent in parties(handoff)


def may_read(caller: Caller, handoff: Handoff) -> bool:
    """Whether `caller` may read the words and data of `handoff` too."""
    return caller.sees_bodies and may_see(caller, handoff)


def may_read_loose(caller: Caller, entry: Entry) -> bool:
    """Whether `caller` may read the body of an entry that is about no handoff."""
    if caller.viewer:
        return caller.payloads
    return may_hear(entry, caller.agent, operator=caller.operator, observer=caller.observer)


def parties(handoff: Handoff) -> set[str]:
    """Return everybody whom a handoff concerns."""
    concerned = {handoff.sender, handoff.origin, *handoff.asked, *handoff.watchers}
    concerned.update(step.notify for step in handoff.escalation if step.notify)
    for question in (handoff.question, handoff.withdrawn):
        if question is not None:
            concerned.add(question.asked)
    return concerned


def require_sight(caller: Caller, handoff: Handoff | None) -> Handoff:
    """Return `handoff`; unknown and foreign ones cannot be told apart."""
    if handoff is None or not may_see(caller, handoff):
        raise unseen(handoff)
    return handoff


def unseen(handoff: Handoff | None) -> NotFoundError:
    """Return the refusal of a look at what is not there, or not for the caller."""
    error = NotFoundError("no such handoff")
    error.suspect = None if handoff is None else "foreign_handoff"
    return error


class Shows:
    """Makes views of what the store holds."""

    def __init__(
        self, store: Store, bodies: Bodies, leases: Leases, queues: Queues, limits: Limits
    ) -> None:
        self._store = store
        self._bodies = bodies
        self._leases = leases
        self._queues = queues
        self._page_bytes_max = limits.page_bytes_max
        self._left_bytes_max = limits.left_bytes_max
        self._turns = Turns(limits.reads_per_agent_max)
        self._waiting_max = limits.reads_waiting_per_agent_max
        self._kept: dict[Key, tuple[Terms, bytes | None, views.HandoffView]] = {}
        self._digest_keys: dict[str, bytes] = {}

    def _turn(self, team: str, reader: str) -> AbstractAsyncContextManager[None]:
        """Return what is entered when it is an agent's turn to be shown what it asked for."""
        return self._turns.turn((team, reader), waiting_max=self._waiting_max)

    async def handoff(
        self,
        handoff: Handoff,
        *,
        reader: str | None,
        warnings: tuple[views.WarningView, ...] = (),
    ) -> views.HandoffView:
        """Return one handoff as `reader` sees it."""
        shown = self.cached(handoff, reader=reader)
        if shown is None:
            async with self._turns.turn((handoff.team, reader or "")):
                shown = (await self.handoffs([handoff], reader=reader))[0]
        return msgspec.structs.replace(shown, warnings=warnings) if warnings else shown

    def brief(self, handoff: Handoff) -> views.BriefView:
        """Return where a handoff is."""
        return showing.brief_view(handoff, self._leases.until(handoff))

    def offered(
        self, handoff: Handoff, *, verified: bool, warnings: tuple[views.WarningView, ...] = ()
    ) -> views.OfferedView:
        """Return a handoff for whoever offered it."""
        lease = self._leases.until(handoff) if handoff.live else None
        return showing.offered_view(handoff, lease, verified=verified, warnings=warnings)

    def ended_cached(self, h: Handoff) -> views.EndedAnswer | None:
        """Return how a handoff ended, if that needs nothing from the store; None: ask for it."""
        assert h.outcome is not None, "it has ended"
        try:
            body = self._bodies.cached((h.team, h.id, h.outcome.version))
        except MissingBodyError:
            return None
        return showing.ended_answer(h, None if h.erased_at is not None else body)

    async def ended(self, h: Handoff) -> views.EndedAnswer:
        """Return how a handoff ended."""
        key = _outcome_key(h)
        async with self._turns.turn((h.team, h.origin)):
            body = (await self._bodies.fetch([key])).get(key)
        return showing.ended_answer(h, None if h.erased_at is not None else body)

    def cached(self, h: Handoff, *, reader: str | None) -> views.HandoffView | None:
        """Return a view that needs nothing from the store, as most do; None: ask for it."""
        if h.question is not None or (h.answers and reader == h.recipient):
            return None
        if h.queued is not None and self._queues.line(h.team, h.recipient) is None:
            return None
        try:
            said = showing.bodies_needed(h)
            keys = [(h.team, h.id, version) for version in (1, *said)]
            bodies = {key: self._bodies.cached(key) for key in keys}
        except MissingBodyError:
            return None
        return self._view(h, said, bodies, None, reader=reader)

    async def handoffs(
        self, handoffs: Sequence[Handoff], *, reader: str | None
    ) -> tuple[views.HandoffView, ...]:
        """Return several handoffs, reading all their bodies at once."""
        return (await self._measured(handoffs, reader=reader))[0]

    async def _measured(
        self, handoffs: Sequence[Handoff], *, reader: str | None
    ) -> tuple[tuple[views.HandoffView, ...], int]:
        """Return several handoffs, and how many bytes their bodies are."""
        wanted: set[BodyKey] = set()
        for h in handoffs:
            wanted.update(body_keys(h))
            if reader == h.recipient:
                wanted.update(_answer_keys(h))
        bodies = await self._bodies.fetch(wanted)
        seqs = await self._question_seqs(handoffs)
        await self._know_places(handoffs)
        shown: list[views.HandoffView] = []
        for h in handoffs:
            said = showing.bodies_needed(h)
            shown.append(self._view(h, said, bodies, seqs.get(h.id), reader=reader))
            if len(bodies.get((h.team, h.id, 1)) or b"") > LARGE_BYTES:
                await asyncio.sleep(0)  # others' requests are not to wait for all of them
        return tuple(shown), _size(bodies.values())

    async def seen(
        self, caller: Caller, handoffs: Sequence[Handoff]
    ) -> tuple[views.HandoffView, ...]:
        """Return handoffs as `caller` may see them."""
        if not caller.sees_bodies:
            return await self.outlines(handoffs)
        async with self._turn(caller.team, caller.agent):
            return await self.handoffs(handoffs, reader=None if caller.observer else caller.agent)

    async def page(
        self, caller: Caller, handoffs: Sequence[Handoff]
    ) -> tuple[views.HandoffView, ...]:
        """Return the first of these handoffs, as many as a page has room for."""
        if not caller.sees_bodies:
            return await self.outlines(handoffs)
        reader = None if caller.observer else caller.agent
        shown: list[views.HandoffView] = []
        async with self._turn(caller.team, caller.agent):
            few = _Few(handoffs, self._page_bytes_max)
            while chosen := few.next():
                more, bytes_more = await self._measured(chosen, reader=reader)
                shown += more
                few.took(bytes_more)
        return tuple(shown)

    async def outlines(self, handoffs: Sequence[Handoff]) -> tuple[views.HandoffView, ...]:
        """Return where handoffs stand, without their words and data."""
        seqs = await self._question_seqs(handoffs)
        await self._know_places(handoffs)
        return tuple(
            showing.outline(
                showing.handoff_view(
                    h,
                    showing.Known(
                        question_seq=seqs.get(h.id),
                        lease_until=self._leases.until(h),
                        place=self._place(h),
                    ),
                    showing.lasting_view(h, WITHHELD),
                )
            )
            for h in handoffs
        )

    async def _know_places(self, handoffs: Iterable[Handoff]) -> None:
        """Have the lines at hand in which these wait."""
        for team, agent in {(h.team, h.recipient) for h in handoffs if h.queued is not None}:
            await self._queues.know(team, agent)

    def _place(self, h: Handoff) -> tuple[int, int] | None:
        """Return the place of something that is acknowledged as queued, and of how many, counted now."""
        line = self._queues.line(h.team, h.recipient) if h.queued is not None else None
        if line is None or h.state is not State.OFFERED:
            return None
        return line.place(h), line.length

    def clear(self) -> None:
        """Forget every view that is kept: each can be made again."""
        self._kept.clear()

    def forget_handoff(self, team: str, handoff_id: str) -> None:
        """Forget what is kept of a handoff: it was erased."""
        self._kept.pop((team, handoff_id), None)

    def _view(
        self,
        h: Handoff,
        said: Sequence[int],
        bodies: dict[BodyKey, bytes | None],
        question_seq: int | None,
        *,
        reader: str | None,
    ) -> views.HandoffView:
        if h.erased_at is not None:
            bodies = {}
        needed = {
            version: canonical.loads(body)
            for version in said
            if (body := bodies.get((h.team, h.id, version))) is not None
        }
        lasting = self._lasting(h, bodies.get((h.team, h.id, 1)))
        known = showing.Known(
            bodies=needed,
            question_seq=question_seq,
            lease_until=self._leases.until(h) if h.live else None,
            place=None if h.queued is None else self._place(h),
            answers=_answers(h, bodies) if reader == h.recipient else {},
        )
        return showing.handoff_view(h, known, lasting)

    def _lasting(self, h: Handoff, body: bytes | None) -> views.HandoffView:
        """Return what does not change about a handoff, made once for as long as it is of use."""
        kept = self._kept.get((h.team, h.id))
        if kept is not None and kept[0] is h.terms and kept[1] is body:
            return kept[2]
        lasting = showing.lasting_view(h, decode_content(body))
        if len(body or b"") > KEPT_BYTES_MAX:
            return lasting
        self._kept[h.team, h.id] = (h.terms, body, lasting)
        while len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        return lasting

    async def _question_seqs(self, handoffs: Iterable[Handoff]) -> dict[str, int]:
        blocked = [h for h in handoffs if h.question is not None]
        seqs: dict[str, int] = {}
        for team in {h.team for h in blocked}:
            asked = [(h.id, h.question.version) for h in blocked if h.question and h.team == team]
            places = await self._store.places(team, asked)
            seqs.update({handoff_id: seq for (handoff_id, _), seq in places.items()})
        return seqs

    async def deliveries(self, handoffs: Sequence[Handoff]) -> tuple[views.DeliveryView, ...]:
        """Return deliveries, each with what earlier attempts left."""
        wanted: set[BodyKey] = set()
        for h in handoffs:
            wanted.update(body_keys(h))
            wanted.update(_left_keys(h))
        recipient = (handoffs[0].team, handoffs[0].recipient) if handoffs else ("", "")
        async with self._turns.turn(recipient):
            bodies = await self._bodies.fetch(wanted)
            seqs = await self._question_seqs(handoffs)
            return tuple(
                self._delivery(
                    h,
                    self._view(
                        h, showing.bodies_needed(h), bodies, seqs.get(h.id), reader=h.recipient
                    ),
                    bodies,
                )
                for h in handoffs
            )

    def pushes_cached(self, handoffs: Sequence[Handoff]) -> list[views.PushView] | None:
        """Return deliveries as they are pushed, if all they need is cached and small; None: ask for it."""
        pushes: list[views.PushView] = []
        size = 0
        for h in handoffs:
            if h.steps or h.answers or h.checkpoint is not None:
                return None  # what earlier attempts left
            try:
                body = self._bodies.cached((h.team, h.id, 1))
            except MissingBodyError:
                return None
            if body is not None:
                size += len(body)
                if size > LARGE_BYTES:
                    return None
            pushes.append(self._push(h, body))
        return pushes

    async def pushes(self, handoffs: Sequence[Handoff]) -> list[views.PushView]:
        """Return deliveries as they are pushed, each with what earlier attempts left."""
        wanted: set[BodyKey] = set()
        for h in handoffs:
            wanted.add((h.team, h.id, 1))
            wanted.update(_left_keys(h))
        bodies = await self._bodies.fetch(wanted)
        return [
            msgspec.structs.replace(
                self._push(h, bodies.get((h.team, h.id, 1))),
                checkpoint=_value(bodies, h, h.checkpoint, "checkpoint") if h.checkpoint else None,
                steps={step.name: _value(bodies, h, step.value, "value") for step in h.steps},
                answers=_answers(h, bodies),
            )
            for h in handoffs
        ]

    def _push(self, h: Handoff, body: bytes | None) -> views.PushView:
        """Return a delivery of what was offered with `body`, without what earlier attempts left."""
        lease = self._leases.until(h)
        return views.PushView(
            handoff=showing.task_view(h, decode_content(None if h.erased_at is not None else body)),
            attempt=h.attempt,
            lease_until=None if lease is None else format_time(lease),
        )

    def _delivery(
        self, h: Handoff, view: views.HandoffView, bodies: dict[BodyKey, bytes | None]
    ) -> views.DeliveryView:
        lease = self._leases.until(h)
        return views.DeliveryView(
            handoff=view,
            attempt=h.attempt,
            lease_until=None if lease is None else format_time(lease),
            checkpoint=_value(bodies, h, h.checkpoint, "checkpoint") if h.checkpoint else None,
            steps={step.name: _value(bodies, h, step.value, "value") for step in h.steps},
            answers=_answers(h, bodies),
        )

    async def step(self, handoff: Handoff, name: str) -> views.StepAnswer:
        """Return a recorded step, or that there is none."""
        step = next((s for s in handoff.steps if s.name == name), None)
        if step is None:
            return views.StepAnswer(name=name, recorded=False)
        bodies = await self._bodies.fetch([_key(handoff, step.value)])
        value = _value(bodies, handoff, step.value, "value")
        return views.StepAnswer(name=name, recorded=True, value=value)

    async def require_room(self, handoff: Handoff, value: Any) -> None:
        """Refuse one more large step or answer, where a delivery could not carry them all.

        Raises:
            LimitReachedError: they are as large as they may be.
        """
        if len(msgspec.json.encode(value)) <= LARGE_BODY_BYTES:
            return
        wanted = [(of, version) for _, of, version in _left_keys(handoff)]
        size = sum((await self._store.body_sizes(handoff.team, wanted)).values())
        if size >= self._left_bytes_max:
            raise LimitReachedError(
                f"the steps and answers of this handoff hold {size} bytes",
                next_step="Keep large values elsewhere, and record where they are.",
            )

    async def items(
        self,
        team: str,
        reader: str,
        mails: Sequence[Mail],
        *,
        everything: bool,
        each: bool = False,
        talk_since: int = 0,
    ) -> tuple[tuple[views.ItemView, ...], int]:
        """Return inbox items, and of how many of the mails: as many as a page has room for.

        Without `everything`, those that still wait for the reader. What was said waits for as long
        as it is younger than `talk_since`. Notices are gathered by their cause, unless `each`.
        """
        ids = {m.handoff_id for m in mails if m.handoff_id is not None}
        handoffs = {h.id: h for h in await self._store.handoffs([(team, i) for i in ids])}
        await self._know_places(handoffs.values())
        bodies: dict[BodyKey, bytes | None] = {}
        read = 0
        async with self._turn(team, reader):
            few = _Few(mails, self._page_bytes_max)
            while chosen := few.next():
                wanted = _named_by(chosen, team, handoffs) - bodies.keys()
                more = await self._bodies.fetch(wanted)
                bodies |= more
                read += len(chosen)
                few.took(_size(more.values()))
        mails = mails[:read]
        shown: list[views.ItemView] = []
        latest = {(m.kind, m.handoff_id): m.seq for m in mails if m.kind in _GATHERED}
        said_alone = [m.seq for m in mails if m.handoff_id is None]
        words = (
            await self._store.entry_bodies(team, said_alone) if said_alone else dict[int, Body]()
        )
        for m in mails:
            if m.handoff_id is None:
                is_open = m.at > talk_since
                if everything or is_open:
                    said = summary(m.type, words[m.seq].body if m.seq in words else None)
                    shown.append(_item(m, None, said, is_open=is_open, reader=reader))
                continue
            handoff = handoffs.get(m.handoff_id or "")
            is_open = handoff is not None and mail.is_open(Kind(m.kind), m.version, handoff, reader)
            stale = latest.get((m.kind, m.handoff_id), m.seq) != m.seq
            if everything or (is_open and not stale):
                said = _said(m, handoff, bodies)
                place = self._place(handoff) if handoff and m.kind == Kind.HANDOFF else None
                if place is not None:
                    said = f"{said} (queued {place[0]} of {place[1]})"
                reason = _reason(handoff, bodies) if m.kind == Kind.NOTICE else None
                shown.append(_item(m, handoff, said, is_open=is_open, reader=reader, reason=reason))
        return (tuple(shown) if everything or each else notices.gathered(shown, reader)), read

    async def entries(
        self, caller: Caller, entries: Sequence[Entry]
    ) -> tuple[views.EntryView, ...]:
        """Return the first of these log entries, as many as a page has room for.

        Bodies are there only where the caller is a party.
        """
        ids = {e.handoff_id for e in entries if e.handoff_id is not None}
        named = [(caller.team, i) for i in ids]
        seen = {h.id: h for h in await self._store.handoffs(named) if may_read(caller, h)}
        readable = {
            e.seq
            for e in entries
            if e.body_digest
            and (
                may_read_loose(caller, e)
                if e.version is None
                else e.handoff_id in seen and e.at > (seen[e.handoff_id].erased_at or 0)
            )
        }
        key = await self._digest_key(caller.team) if readable else b""
        shown: list[views.EntryView] = []
        async with self._turn(caller.team, caller.agent):
            few = _Few(entries, self._page_bytes_max)
            while chosen := few.next():
                seqs = [e.seq for e in chosen if e.seq in readable]
                bodies = await self._store.entry_bodies(caller.team, seqs)
                for e in chosen:
                    shown.append(_entry(e, found := bodies.get(e.seq), key))
                    if found is not None and len(found.body) > LARGE_BYTES:
                        await asyncio.sleep(0)  # others' requests are not to wait for all of them
                few.took(_size(found.body for found in bodies.values()))
        return tuple(shown)

    async def _digest_key(self, team: str) -> bytes:
        if team not in self._digest_keys:
            self._digest_keys = {each.id: each.digest_key for each in await self._store.teams()}
        return self._digest_keys[team]


class _Few(Generic[T]):
    """Slices of what a page is made of, small at first and where bodies are large.

    A page ends behind the slice with which it has `bytes_max`: it exceeds that by less than one body
    where all are about as large.
    """

    def __init__(self, them: Sequence[T], bytes_max: int) -> None:
        self._them = them
        self._bytes_max = bytes_max
        self._start, self._count = 0, FEW_MIN
        self._size = 0

    def next(self) -> Sequence[T]:
        """Return the next slice; an empty one: the page is full, or there are no more."""
        if self._size >= self._bytes_max:
            return ()
        few = self._them[self._start : self._start + self._count]
        self._start += len(few)
        return few

    def took(self, size: int) -> None:
        """Know how many bytes the last slice has."""
        self._size += size
        each = self._size // max(self._start, 1) + 1
        room = max((self._bytes_max - self._size) // each, 1)
        self._count = min(2 * self._count, FEW_MAX, room)


def _size(bodies: Iterable[bytes | None]) -> int:
    return sum(len(body) for body in bodies if body is not None)


def _named_by(mails: Sequence[Mail], team: str, handoffs: Mapping[str, Handoff]) -> set[BodyKey]:
    """Return the bodies that the summaries of inbox items are made of."""
    wanted = {(team, m.handoff_id, 1) for m in mails if m.handoff_id in handoffs}
    wanted |= {
        (team, m.handoff_id, m.version)
        for m in mails
        if m.kind == Kind.QUESTION and m.handoff_id is not None and m.version is not None
    }
    noticed = (handoffs.get(m.handoff_id or "") for m in mails if m.kind == Kind.NOTICE)
    wanted |= {_outcome_key(h) for h in noticed if h is not None and h.state in DEAD}
    return {(of, handoff, version) for of, handoff, version in wanted if handoff is not None}


def body_keys(h: Handoff) -> list[BodyKey]:
    """Return the bodies that a view of `h` shows, whoever sees it: content, and what was last said."""
    return [(h.team, h.id, version) for version in (1, *showing.bodies_needed(h))]


def _key(h: Handoff, ref: BodyRef) -> BodyKey:
    return (h.team, ref.of or h.id, ref.version)


def _outcome_key(h: Handoff) -> BodyKey:
    assert h.outcome is not None, "it has ended"
    return (h.team, h.id, h.outcome.version)


def _left_keys(h: Handoff) -> list[BodyKey]:
    """Return the bodies of what earlier attempts left."""
    keys = [_key(h, step.value) for step in h.steps] + _answer_keys(h)
    if h.checkpoint is not None:
        keys.append(_key(h, h.checkpoint))
    return keys


def _answer_keys(h: Handoff) -> list[BodyKey]:
    return [_key(h, ref) for a in h.answers for ref in (a.question, a.answer)]


def _value(bodies: dict[BodyKey, bytes | None], h: Handoff, ref: BodyRef, name: str) -> Any:
    body = bodies.get(_key(h, ref))
    return None if body is None else canonical.loads(body).get(name)


def _answers(h: Handoff, bodies: dict[BodyKey, bytes | None]) -> dict[str, Any]:
    return {
        _question_name(h, bodies, answer): _value(bodies, h, answer.answer, "answer")
        for answer in h.answers
    }


def _question_name(h: Handoff, bodies: dict[BodyKey, bytes | None], answer: Answer) -> str:
    name = _value(bodies, h, answer.question, "name")
    return name or _value(bodies, h, answer.question, "question") or str(answer.question.version)


_GATHERED = {Kind.HANDOFF.value, Kind.NOTICE.value}
"""A handoff that came back to the inbox is one thing to do, and two nudges are one reminder."""

_SUMMARIES = {
    Kind.HANDOFF: "{title}",
    Kind.OUTCOME: "{state}: {title}",
    Kind.QUESTION: "asks: {title}",
    Kind.COUNTER: "proposes other terms: {title}",
    Kind.NOTICE: "{title}",
    Kind.MESSAGE: "{title}",
}


def _said(m: Mail, handoff: Handoff | None, bodies: dict[BodyKey, bytes | None]) -> str:
    """Return the words that an item is best known by: the question, or the title."""
    if handoff is None:
        return "(gone)"
    asked = bodies.get((handoff.team, handoff.id, m.version or 0))
    if m.kind == Kind.QUESTION and asked is not None:
        return str(canonical.loads(asked).get("question"))
    content = decode_content(bodies.get((handoff.team, handoff.id, 1)))
    return content.title or content.trigger or handoff.capability or "(untitled)"


def _reason(handoff: Handoff | None, bodies: dict[BodyKey, bytes | None]) -> str | None:
    """Return why a dead letter ended, in the words of who ended it."""
    if handoff is None or handoff.state not in DEAD:
        return None
    body = bodies.get(_outcome_key(handoff))
    reason = None if body is None else canonical.loads(body).get("reason")
    return reason if isinstance(reason, str) else None


def _item(
    m: Mail,
    handoff: Handoff | None,
    named: str,
    *,
    is_open: bool,
    reader: str,
    reason: str | None = None,
) -> views.ItemView:
    told = _SUMMARIES[Kind(m.kind)] if m.handoff_id is not None else "{title}"
    told = told.format(title=named, state=handoff.state if handoff else "")
    notice = None
    if m.kind == Kind.NOTICE and handoff is not None:
        notice = notices.of(m, handoff, reader, title=named, reason=reason)
        told = notices.summary(notice)
    return views.ItemView(
        kind=m.kind,
        seq=m.seq,
        at=format_time(m.at),
        handoff_id=m.handoff_id,
        ref=showing.ref(handoff) if handoff else None,
        from_=handoff.sender if handoff and m.kind == Kind.HANDOFF else m.actor,
        state=handoff.state.value if handoff else None,
        summary=told,
        open=is_open,
        notice=notice,
    )


def _entry(e: Entry, found: Body | None, digest_key: bytes) -> views.EntryView:
    return views.EntryView(
        seq=e.seq,
        at=format_time(e.at),
        type=e.type,
        handoff_id=e.handoff_id,
        version=e.version,
        correlation_id=e.correlation_id,
        actor=e.actor,
        command_id=e.command_id,
        data=e.data,
        body=None if found is None else canonical.loads(found.body),
        body_salt=None if found is None else keys.encode(found.salt),
        body_mac=None if found is None else canonical.keyed_digest(digest_key, found.body),
        body_digest=e.body_digest,
        prev_hash=e.prev_hash,
        hash=e.hash,
    )


def shown_refusal(refusal: Refusal) -> views.RefusalView:
    """Return an entry of the security log as an operator sees it."""
    return views.RefusalView(
        first_at=format_time(refusal.first_at),
        last_at=format_time(refusal.last_at),
        count=refusal.count,
        team=refusal.team,
        actor=refusal.actor,
        operation=refusal.operation,
        code=refusal.code,
        reason=refusal.reason,
        detail=refusal.detail,
        address=refusal.address,
    )

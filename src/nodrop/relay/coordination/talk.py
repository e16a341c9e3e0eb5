"""Talk: messages and statuses. In the log and in inboxes, and no contract: no clocks, no holder.

Whom a message reaches is decided when it is said, and written with it. Its words are for those, for
its author and for operators; that it was said is for the team. A status is for everybody.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from nodrop.log.port import Key, LogPage, Mail, Store, Wanted
from nodrop.model.errors import InvalidRequestError, LimitReachedError, NotFoundError, Problem
from nodrop.model.handoff import Handoff
from nodrop.model.mail import Kind
from nodrop.protocol import bodies, canonical
from nodrop.protocol.coordination import talk_requests, talk_views
from nodrop.protocol.entries import Draft, Entry
from nodrop.protocol.times import format_time, parse_due
from nodrop.relay.batch import Batch
from nodrop.relay.coordination.spoken import SAID, STATUS, may_hear, read
from nodrop.relay.coordination.topics import Topics, record
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.reading import Reading
from nodrop.relay.handoffs.repeats import done_before, request_digest
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import FunctionJob, Job
from nodrop.relay.ports import Ids
from nodrop.relay.shows import Caller

_TALK: Final = frozenset({SAID, STATUS})
_THREAD_ENTRIES_MAX: Final = 500


class Talk:
    """What agents say to each other beside their handoffs."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        reading: Reading,
        intake: Intake,
        ids: Ids,
        tell: Callable[[Key, Mail], None],
    ) -> None:
        self.topics = Topics()
        self._subscribing = asyncio.Lock()
        self._engine = engine
        self._store = store
        self._reading = reading
        self._intake = intake
        self._ids = ids
        self._tell = tell

    # --- saying ---

    async def say(self, caller: Caller, request: talk_requests.Say) -> talk_views.SaidAnswer:
        """Say something to an agent, in a thread, or to whom a handoff concerns."""
        self._intake.agent(request.to, "to")
        self._intake.name(request.thread, "thread")
        self._words(request.text)
        await self._require_own(caller, request.supersedes)
        about = await self._about(caller, request.about)
        thread = request.thread or (about.correlation_id if about else self._ids.new())
        readers: set[str] = {request.to} if request.to else set()
        if request.to is None and request.thread is not None:
            readers = await self._participants(caller.team, request.thread)
        if request.to is None and about is not None:
            readers |= {about.sender, about.origin, about.recipient}
        readers.discard(caller.agent)
        if not readers:
            problem = Problem(
                path="to", message="name an agent, a thread that exists, or a handoff"
            )
            raise InvalidRequestError("nobody would hear it", errors=(problem,))
        data = _data(to=sorted(readers), about=about and about.id, supersedes=request.supersedes)
        body = self._body(request, text=request.text)
        seq = await self._write(caller, SAID, data, body, thread=thread, request=request)
        return talk_views.SaidAnswer(seq=seq, to=tuple(sorted(readers)), thread=thread)

    async def tell_status(
        self, caller: Caller, request: talk_requests.TellStatus
    ) -> talk_views.SaidAnswer:
        """Tell everybody who needs to know: requester, chain, watchers, subscribers."""
        self._intake.name(request.topic, "topic")
        self._words(request.status, "status")
        self._intake.text(request.text, "text")
        await self._require_own(caller, request.supersedes)
        about = await self._about(caller, request.about)
        readers: set[str] = set()
        if about is not None:
            readers |= {about.sender, about.origin, about.recipient, *about.watchers}
            readers |= {leg.agent for leg in about.legs_done}
            readers |= {leg.to for leg in about.legs if leg.to is not None}
        for topic in (request.topic, caller.agent):
            # Who subscribes to an agent's name hears of everything that it tells.
            readers |= self.topics.of(caller.team, topic) if topic else set()
        readers.discard(caller.agent)
        data = _data(
            to=sorted(readers),
            about=about and about.id,
            topic=request.topic,
            supersedes=request.supersedes,
        )
        body = self._body(request, status=request.status, text=request.text)
        thread = about.correlation_id if about else None
        seq = await self._write(caller, STATUS, data, body, thread=thread, request=request)
        return talk_views.SaidAnswer(seq=seq, to=tuple(sorted(readers)), thread=thread)

    async def _write(
        self,
        caller: Caller,
        kind: str,
        data: dict[str, Any],
        body: bytes,
        *,
        thread: str | None,
        request: talk_requests.Say | talk_requests.TellStatus,
    ) -> int:
        mail = Kind.MESSAGE if kind == SAID else Kind.NOTICE
        wanted = Wanted()
        command_id = request.command_id
        asked = None
        if command_id is not None:
            wanted = Wanted(commands=frozenset({(caller.team, caller.agent, command_id)}))
            asked = request_digest(request)
        at = 0

        def run(batch: Batch) -> Callable[[Sequence[int]], int]:
            nonlocal at
            if places := done_before(
                batch, caller, command_id, leaves=frozenset({kind}), request=asked
            ):
                before = places[0].seq
                return lambda _: before
            index = batch.written(caller.team, caller.agent, command_id)
            at = batch.now
            if index is None:
                index = batch.write(
                    Draft(
                        team=caller.team,
                        at=batch.now,
                        type=kind,
                        actor=caller.agent,
                        correlation_id=thread,
                        command_id=command_id,
                        data=msgspec.Raw(canonical.dumps(data)),
                        body=body,
                        mail=tuple((reader, mail.value) for reader in data["to"]),
                    )
                )
            return lambda seqs: seqs[index]

        job: Job[object] = FunctionJob(wanted, run, by=(caller.team, caller.agent))
        seq = await self._engine.submit(job)
        assert isinstance(seq, int), "the engine fills in the sequence numbers"
        item = Mail(
            seq=seq,
            kind=mail.value,
            at=at,
            actor=caller.agent,
            type=kind,
            handoff_id=None,
            version=None,
        )
        for reader in data["to"] if at else ():
            self._tell((caller.team, reader), item)
        return seq

    def _words(self, text: str, path: str = "text") -> None:
        self._intake.text(text, path)
        if not text.strip():
            problem = Problem(path=path, message="must say something")
            raise InvalidRequestError("nothing was said", errors=(problem,))

    def _body(
        self, request: talk_requests.Say | talk_requests.TellStatus, **said: str | None
    ) -> bytes:
        composed: int | None = None
        if request.composed_at is not None:
            now = self._engine.now()
            try:
                composed = min(parse_due(request.composed_at, now=now), now)
            except (ValueError, OverflowError) as error:
                problem = Problem(path="composed_at", message=str(error))
                raise InvalidRequestError("no such time", errors=(problem,)) from error
        made = bodies.words(composed_at=composed, **said)
        assert made is not None, "something is said"
        return self._intake.bounded(made)

    async def _require_own(self, caller: Caller, seq: int | None) -> None:
        """Refuse to put something in the place of what somebody else said, or nobody."""
        if seq is None:
            return
        if 0 < seq <= (await self._store.head(caller.team)).seq:
            page = LogPage(team=caller.team, after=seq - 1, limit=1)
            [*found] = await self._store.log(page)
            if any((e.seq, e.actor) == (seq, caller.agent) and e.type in _TALK for e in found):
                return
        message = "expected the number of something that you said or told"
        problem = Problem(path="supersedes", message=message)
        raise InvalidRequestError(f"supersedes: {message}", errors=(problem,))

    async def _about(self, caller: Caller, reference: str | None) -> Handoff | None:
        if reference is None:
            return None
        return await self._reading.find(caller, await self._reading.resolve(caller, reference))

    async def _participants(self, team: str, thread: str) -> set[str]:
        page = LogPage(team=team, correlation_id=thread, type=SAID, limit=_THREAD_ENTRIES_MAX)
        found: set[str] = set()
        for entry in await self._store.log(page):
            found |= {entry.actor, *read(entry).get("to", ())}
        return found

    # --- reading ---

    async def messages(
        self, caller: Caller, request: talk_requests.ListMessages
    ) -> talk_views.MessagesAnswer:
        """Return what was said to or by the caller after a cursor, oldest first."""
        limit = self._intake.limit(request.limit)
        await self._reading.require_cursor(caller.team, request.after, request.after_hash)
        found: list[Entry] = []
        after = request.after
        for kind in sorted(_TALK):
            page = LogPage(
                team=caller.team,
                after=request.after,
                limit=limit,
                correlation_id=request.thread,
                actor=request.from_,
                type=kind,
            )
            found += await self._store.log(page)
        found.sort(key=lambda entry: entry.seq)
        for_caller = [entry for entry in found[:limit] if _heard(caller, entry, request.topic)]
        after = found[:limit][-1].seq if found else after
        found_bodies = await self._store.entry_bodies(caller.team, [e.seq for e in for_caller])
        words = {seq: found.body for seq, found in found_bodies.items()}
        return talk_views.MessagesAnswer(
            messages=_shown(for_caller, words),
            after=after,
            after_hash=await self._reading.hash_at(caller.team, after),
        )

    # --- topics ---

    async def subscribe(
        self,
        caller: Caller,
        request: talk_requests.SubscribeTopic | talk_requests.UnsubscribeTopic,
        topic: str,
    ) -> talk_views.TopicAnswer:
        """Have the caller hear of a topic from now on, or no longer.

        The answer is about that topic alone: with all of them in each, a thousand would be a million.
        """
        self._intake.name(topic, "topic")
        async with self._subscribing:
            # One after the other: each is made of what the one before has left.
            who = await self._subscribed(caller, request, topic)
            self.topics.put(record(caller.team, topic, who))
        return talk_views.TopicAnswer(topic=topic, subscribed=caller.agent in who)

    async def _subscribed(
        self,
        caller: Caller,
        request: talk_requests.SubscribeTopic | talk_requests.UnsubscribeTopic,
        topic: str,
    ) -> set[str]:
        """Return who hears of a topic once the caller does, or does no longer."""
        joins = isinstance(request, talk_requests.SubscribeTopic)
        most = self._engine.limits.topics_max
        before = self.topics.of(caller.team, topic)
        if joins and not before and self.topics.count(caller.team) >= most:
            raise LimitReachedError(f"{most} topics are subscribed to already")
        if not joins and caller.agent not in before:
            raise NotFoundError("no such subscription")
        who = before | {caller.agent} if joins else before - {caller.agent}

        def run(batch: Batch) -> set[str]:
            batch.keep_record(record(caller.team, topic, who))
            name = "topic.subscribed.v1" if joins else "topic.unsubscribed.v1"
            batch.write(
                Draft(
                    team=caller.team,
                    at=batch.now,
                    type=name,
                    actor=caller.agent,
                    command_id=request.command_id,
                    data=msgspec.Raw(canonical.dumps({"topic": topic})),
                )
            )
            return who

        return await self._engine.submit(FunctionJob(Wanted(), run))

    def heard(self, caller: Caller) -> talk_views.TopicsAnswer:
        """Return the topics that the caller hears of."""
        return talk_views.TopicsAnswer(topics=self.topics.heard_by(caller.team, caller.agent))


# --- entries ------------------------------------------------------------------------------------


def _heard(caller: Caller, entry: Entry, topic: str | None) -> bool:
    audible = may_hear(entry, caller.agent, operator=caller.operator, observer=caller.observer)
    return audible and topic in {None, read(entry).get("topic")}


def _data(**said: Any) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


def _shown(
    entries: Sequence[Entry], words: Mapping[int, bytes]
) -> tuple[talk_views.MessageView, ...]:
    superseded = {
        (old, e.actor): e.seq for e in entries if (old := read(e).get("supersedes")) is not None
    }
    later: Counter[tuple[object, ...]] = Counter()
    newer: dict[int, int] = {}
    for entry in reversed(entries):
        subject = _subject(entry)
        newer[entry.seq] = later[subject]
        later[subject] += 1
    shown: list[talk_views.MessageView] = []
    for entry in entries:
        data = read(entry)
        body = words.get(entry.seq)
        said: dict[str, Any] = {} if body is None else canonical.loads(body)
        shown.append(
            talk_views.MessageView(
                seq=entry.seq,
                at=format_time(entry.at),
                kind="message" if entry.type == SAID else "status",
                from_=entry.actor,
                to=tuple(data.get("to", ())),
                thread=entry.correlation_id,
                topic=data.get("topic"),
                handoff_id=data.get("about"),
                status=said.get("status"),
                text=said.get("text"),
                composed_at=format_time(said.get("composed_at") or entry.at),
                supersedes=data.get("supersedes"),
                superseded_by=superseded.get((entry.seq, entry.actor)),
                newer=newer[entry.seq],
            )
        )
    return tuple(shown)


def _subject(entry: Entry) -> tuple[object, ...]:
    """Return what a later entry of the same subject makes old: a thread, or an author's status."""
    if entry.type == SAID:
        return (entry.type, entry.correlation_id)
    data = read(entry)
    return (entry.type, entry.actor, data.get("about"), data.get("topic"))

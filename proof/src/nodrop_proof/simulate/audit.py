"""After every step: is every promise still kept?

The audit follows the log as it grows. It keeps a `Trail` of every handoff, folds the entries
itself, and compares with the store's rows and with what agents were told.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from nodrop.audit import ledger
from nodrop.audit.ledger import Ledger
from nodrop.log.port import LogPage
from nodrop.model.handoff import Handoff, State
from nodrop.model.limits import SECOND
from nodrop.model.machine import evolve
from nodrop.protocol import events as wire_events
from nodrop.protocol.entries import Entry, Head
from nodrop.protocol.views import HandoffView
from nodrop_proof.simulate.signs import Signs
from nodrop_proof.simulate.trail import BEATS, RELAY, Trail
from nodrop_proof.simulate.violation import Violation
from nodrop_proof.simulate.world import TEAM, World

_PAGE: Final = 10_000
GONE_MS: Final = 60 * SECOND
"""How long an agent may be silent that has something in its queue."""
PATIENCE_MS: Final = SECOND
"""How long after a failed commit the relay may leave a due time alone: until it tries again."""


class Audit:
    """Everything that is known about the team, from the log and from the agents."""

    def __init__(self, world: World) -> None:
        self.head = Head()
        self.entries: list[Entry] = []
        self.trails: dict[str, Trail] = {}
        self.folded: dict[str, Handoff] = {}
        self._world = world
        self._open: dict[str, Handoff] = {}
        self._signs: dict[str, Signs] = {}
        self._answered: dict[str, None] = {}
        self._unchecked: list[str] = []
        self._failed_at = 0
        self._failures: tuple[object, int] = (None, 0)

    # --- what agents tell ---

    def answered(self, handoff_id: str) -> None:
        """Note that an offer was answered as stored."""
        self._answered[handoff_id] = None
        self._unchecked.append(handoff_id)

    def beats(self, process: str) -> Signs:
        """Return where the signs of life of a process are noted; of an agent, under its own name."""
        return self._signs.setdefault(process, Signs())

    # --- the check ---

    async def check(self) -> None:
        """Look at what happened since the last time.

        Raises:
            Violation: a promise was not kept.
        """
        if (await self._world.store.head(TEAM)).seq != self.head.seq:
            page = LogPage(team=TEAM, after=self.head.seq, limit=_PAGE)
            await self._follow(await self._world.store.log(page))
        for handoff_id in self._unchecked:
            if handoff_id not in self.trails:
                raise Violation(f"{handoff_id} was answered as stored, and the log has no offer")
        self._unchecked.clear()
        if self._well():
            self._check_due()

    async def _follow(self, entries: Sequence[Entry]) -> None:
        books = ledger.count(entries, after=self.head)
        if books.broken:
            raise Violation(f"the log is broken: {books.broken[0]}")
        self.head = books.head
        self.entries.extend(entries)
        touched: dict[str, None] = {}
        for entry in entries:
            name = entry.type.removeprefix("handoff.").removesuffix(".v1")
            self._world.figures[f"entries: {name}"] += 1
            if entry.handoff_id is not None and entry.version is not None:
                self._take_in(entry, entry.handoff_id, entry.version, name)
                touched[entry.handoff_id] = None
        await self._compare(list(touched))

    def _take_in(self, entry: Entry, handoff_id: str, version: int, name: str) -> None:
        trail = self.trails.setdefault(handoff_id, Trail(handoff_id))
        data = msgspec.json.decode(bytes(entry.data))
        if name in {"returned", "failed", "parked"} and entry.actor == RELAY and trail.live:
            self._check_not_early(trail, data.get("reason", data.get("code")), entry.at)
        if name == "queue_lapsed" and data["reason"] == "agent_silent":
            self._check_not_void(trail, entry.at)
        trail.tell(name, data, version=version, actor=entry.actor, at=entry.at)
        if name in {"reclaimed", "revived"}:  # the log itself shows that its process is back
            signs = self.beats(trail.process or "")
            signs.sent_at = max(signs.sent_at, entry.at)
        self.folded[handoff_id] = evolve(
            self.folded.get(handoff_id),
            wire_events.decode(entry.type, bytes(entry.data)),
            team=TEAM,
            handoff_id=handoff_id,
            by=entry.actor,
            at=entry.at,
        )

    async def _compare(self, touched: Sequence[str]) -> None:
        """Hold the store's rows to the fold of the log."""
        rows = {h.id: h for h in await self._world.store.handoffs([(TEAM, i) for i in touched])}
        for handoff_id in touched:
            folded, trail = self.folded[handoff_id], self.trails[handoff_id]
            if rows.get(handoff_id) != folded:
                raise Violation(f"{handoff_id}: its row is not the fold of its entries")
            if (folded.live, folded.attempt) != (trail.live, trail.attempt):
                raise Violation(f"{handoff_id}: row and log disagree about the live attempt")
            if trail.settled:
                self._open.pop(handoff_id, None)
                continue
            self._open[handoff_id] = folded
            if len(_holders(folded, trail)) != 1:
                raise Violation(f"{handoff_id}: {folded.state}, held by {_holders(folded, trail)}")
            if not folded.timers:
                raise Violation(f"{handoff_id}: {folded.state}, and nothing is due")

    # --- time ---

    def _well(self) -> bool:
        """Whether the relay had every chance to act on what came due."""
        world = self._world
        if not world.is_up or not world.life.store.gate.is_set():
            return False
        failures = (world.life, world.life.store.failed)
        if failures != self._failures:
            self._failures, self._failed_at = failures, world.now
        return world.now > self._failed_at + PATIENCE_MS

    def _check_due(self) -> None:
        now = self._world.now
        for handoff_id, handoff in self._open.items():
            for timer in handoff.timers:
                if timer.at <= now:
                    late = now - timer.at
                    raise Violation(f"{handoff_id}: {timer.name} was due {late} ms ago")
            trail = self.trails[handoff_id]
            if trail.live and trail.heartbeat_ms is not None:
                signs = self.beats(trail.process or "")
                last = max(signs.sent_at, trail.sign_at, self._world.served_since)
                until = last + BEATS[trail.acknowledged] * trail.heartbeat_ms
                if until <= now:
                    raise Violation(f"{handoff_id}: its lease ended {now - until} ms ago")
            if handoff.queued is not None and handoff.state is State.OFFERED:
                heard_at = max(self.beats(trail.recipient).sent_at, self._world.served_since)
                void_at = min(trail.queued_until or now, heard_at + GONE_MS)
                if void_at <= now:
                    raise Violation(f"{handoff_id}: queued, and void since {now - void_at} ms")

    def _check_not_void(self, trail: Trail, at: int) -> None:
        """Nobody who was heard of is taken for gone."""
        heard_at = self.beats(trail.recipient).last_answered(at)
        void_at = max(heard_at, self._world.life.up_since) + GONE_MS
        if at < void_at:
            raise Violation(f"{trail.id}: its queue lapsed {void_at - at} ms early")

    def _check_not_early(self, trail: Trail, reason: str | None, at: int) -> None:
        """No lease ends before its time, and none because the relay was away."""
        if trail.heartbeat_ms is None or reason == "timed_out":
            return
        signs = self.beats(trail.process or "")
        last = max(signs.last_answered(at), trail.sign_at, self._world.life.up_since)
        until = last + BEATS[trail.acknowledged] * trail.heartbeat_ms
        if at < until and not self._timed_out(trail, at):
            raise Violation(f"{trail.id}: its lease ended {until - at} ms early")

    def _timed_out(self, trail: Trail, at: int) -> bool:
        """Whether the attempt's active time was up: that ends it whatever its heartbeat says."""
        before = self.folded[trail.id]
        return any(t.name == "timeout" and t.at <= at for t in before.timers)

    # --- the end ---

    def ledger(self, shown: Sequence[HandoffView]) -> Ledger:
        """Return the books of everything, as the protocol defines lost and duplicated."""
        views = msgspec.json.decode(msgspec.json.encode(shown))
        return ledger.count(self.entries, answered=self._answered, shown=views)


def _holders(handoff: Handoff, trail: Trail) -> list[str]:
    """Return everybody who owes the next move of an unsettled handoff."""
    if handoff.outcome is not None:
        return [handoff.origin]
    if handoff.question is not None:
        return [handoff.question.asked]
    return [agent for agent in (trail.recipient,) if agent == handoff.recipient]

"""Patterns in a log as it grows: loops, livelock, storms, hot spots. Bounded in memory, no I/O.

The cheap ones among the detectors of `nodrop analyze`, with the same rules where the past that is
remembered allows it. Everything that is remembered is bounded: what was longest not touched is
forgotten first, so that a pattern may be missed on a very busy relay, and none is made up.
"""

import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final, Generic, TypeVar

import msgspec

from nodrop.model.limits import HOUR, MINUTE
from nodrop.model.tails import binomial_tail, poisson_tail
from nodrop.protocol.entries import Entry

PING_PONG_HOPS: Final = 4
"""A-B-A-B-A along one path: four hops."""
VISITS: Final = 4
"""Times that a path comes to one agent with one capability."""
SAME: Final = 3
"""Times that the same payload comes to one capability without another result."""
UNLIKELY: Final = 1e-6
WINDOW_MS: Final = 10 * MINUTE
USUAL_MS: Final = 6 * HOUR
"""The past that says what is usual."""
RETRY_SHARE: Final = 0.10
RETRY_LIFT: Final = 3.0
RETRIES_MIN: Final = 8
ESCALATION_LIFT: Final = 4.0
ESCALATIONS_MIN: Final = 8
EACH_HALF_MIN: Final = 2
"""Escalations in each half of a window: a storm lasts."""
KNOWN_MIN: Final = 50
"""Attempts or offers before a share of them says what is usual."""
HOT_LIFT: Final = 3.0
HOT_OFFERS_MIN: Final = 200
HOT_PEERS_MIN: Final = 3
HOT_OFFERS_MAX: Final = 2_000
"""Offers of a capability that are counted; beyond, all counts are halved."""

CHAINS_MAX: Final = 5_000
HOPS_MAX: Final = 20_000
"""Hops of all chains that are remembered, about half a kilobyte each."""
HANDOFFS_MAX: Final = 20_000
"""Handoffs whose hop is found by their id, until they are completed, cancelled or settled."""
CAPABILITIES_MAX: Final = 1_000
DEPTH_MAX: Final = 64
"""Hops of one chain that are remembered."""
_ENTRIES_MAX: Final = 20

OFFERED: Final = "handoff.offered.v1"
REASSIGNED: Final = "handoff.reassigned.v1"
DELIVERED: Final = "handoff.delivered.v1"
COMPLETED: Final = "handoff.completed.v1"
CANCELLED: Final = "handoff.cancelled.v1"
SETTLED: Final = "handoff.settled.v1"
ESCALATED: Final = "handoff.escalated.v1"

T = TypeVar("T")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern, and what a person needs to look into it."""

    detector: str
    subject: str
    """The chain, the capability or the agent that it is about."""
    agents: tuple[str, ...]
    says: str
    entries: tuple[int, ...]
    """Where it can be seen in the log."""
    action: str
    """The command that stops it, or shows it."""

    @property
    def about(self) -> tuple[str, str]:
        """What is told once in a while only: work that goes round is one thing, however it does."""
        going_round = self.detector in {"ping-pong", "loop", "livelock"}
        return ("loop" if going_round else self.detector, self.subject)


class Hop(msgspec.Struct, kw_only=True, eq=False):
    """One time that work went from one agent to another."""

    seq: int
    at: int
    chain: str
    handoff: str
    sender: str
    recipient: str
    capability: str
    again: bool
    """A redrive: no further visit."""
    before: "Hop | None"
    """The hop that brought the work to its sender."""
    alternating: int
    ended_at: int | None = None
    result_seq: int | None = None
    payload: bytes | None = None
    """The digest of the payload, once it was looked at; and of the result."""
    result: bytes | None = None


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """Hops that are a livelock if their payloads are the same, and their results if there are any."""

    hops: tuple[Hop, ...]
    on_path: bool
    """One led to the other, so that no result is waited for."""


class _Offered(msgspec.Struct):
    sender: str
    recipient: str
    correlation_id: str
    capability: str | None = None
    redrive_of: str | None = None


class _Facts(msgspec.Struct):
    attempt: int = 0
    recipient: str = ""
    capability: str | None = None


_OFFERED: Final = msgspec.json.Decoder(_Offered)
_FACTS: Final = msgspec.json.Decoder(_Facts)


class Recent(Generic[T]):
    """So many values by name; the one that was longest not used makes room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Any, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: Any) -> T | None:
        """Return the value of a name."""
        value = self._values.get(name)
        if value is not None:
            self._values.move_to_end(name)
        return value

    def put(self, name: Any, value: T) -> None:
        """Keep a value."""
        self._values[name] = value
        self._values.move_to_end(name)
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def drop(self, name: Any) -> None:
        """Forget a name."""
        self._values.pop(name, None)

    def made(self, name: Any, make: Callable[[], T]) -> T:
        """Return the value of a name, made if there is none."""
        value = self.get(name)
        if value is None:
            value = make()
            self.put(name, value)
        return value


class _Chains:
    """The last hops of chains: so many of each, so many chains, and so many hops of all of them."""

    def __init__(self) -> None:
        self._hops: OrderedDict[str, list[Hop]] = OrderedDict()
        self.size = 0
        """Hops of all chains."""

    def __len__(self) -> int:
        return len(self._hops)

    def get(self, name: str) -> Sequence[Hop]:
        """Return the hops of a chain, oldest first."""
        hops = self._hops.get(name)
        if hops is None:
            return ()
        self._hops.move_to_end(name)
        return hops

    def add(self, hop: Hop) -> None:
        """Remember a hop; what was longest not used makes room."""
        hops = self._hops.setdefault(hop.chain, [])
        self._hops.move_to_end(hop.chain)
        hops.append(hop)
        self.size += 1
        if len(hops) > DEPTH_MAX:
            gone = hops.pop(0)
            self.size -= 1
            for kept in hops:
                kept.before = None if kept.before is gone else kept.before
        while len(self._hops) > CHAINS_MAX or self.size > HOPS_MAX:
            self.size -= len(self._hops.popitem(last=False)[1])


class Patterns:
    """Reads entries, oldest first, and tells what they make."""

    def __init__(self) -> None:
        self.chains = _Chains()
        self.hops = Recent[Hop](HANDOFFS_MAX)
        """By handoff, as long as something may come of it: a dead letter still escalates."""
        self._load = Recent[_Load](CAPABILITIES_MAX)

    def read(self, entry: Entry) -> Iterator[Found | Repeats]:
        """Take in one entry; yield what it completes."""
        if entry.handoff_id is None:
            return
        if entry.type == OFFERED:
            yield from self._offered(entry, entry.handoff_id)
            return
        hop = self.hops.get(entry.handoff_id)
        if hop is None:
            return  # it began before what is remembered
        if entry.type == DELIVERED:
            attempt = _FACTS.decode(entry.data).attempt
            yield from self._of(hop).attempt(entry, hop, retry=attempt > 1)
        elif entry.type == COMPLETED:
            self.hops.drop(entry.handoff_id)
            yield from self._completed(entry, hop)
        elif entry.type in {CANCELLED, SETTLED}:
            self.hops.drop(entry.handoff_id)
        elif entry.type == ESCALATED:
            yield from self._of(hop).escalation(entry, hop)
        elif entry.type == REASSIGNED:
            yield from self._reassigned(entry, hop)

    def _of(self, hop: Hop) -> "_Load":
        return self._load.made(hop.capability, lambda: _Load(hop.capability))

    # --- work that goes round ---

    def _offered(self, entry: Entry, handoff: str) -> Iterator[Found | Repeats]:
        event = _OFFERED.decode(entry.data)
        hop = self._hop(
            entry,
            handoff,
            chain=event.correlation_id,
            sender=event.sender,
            recipient=event.recipient,
            capability=event.capability or "",
            again=event.redrive_of is not None,
        )
        chain = self.chains.get(hop.chain)
        first = not any(h.recipient == hop.recipient and h is not hop for h in chain)
        yield from self._of(hop).offer(entry, hop, first=first)
        yield from self._goes_round(hop)

    def _reassigned(self, entry: Entry, hop: Hop) -> Iterator[Found | Repeats]:
        event = _FACTS.decode(entry.data)
        moved = self._hop(
            entry,
            hop.handoff,
            chain=hop.chain,
            sender=hop.recipient,
            recipient=event.recipient,
            capability=hop.capability if event.capability is None else event.capability,
            again=False,
        )
        yield from self._goes_round(moved)

    def _hop(
        self,
        entry: Entry,
        handoff: str,
        *,
        chain: str,
        sender: str,
        recipient: str,
        capability: str,
        again: bool,
    ) -> Hop:
        # The same few names come again and again: one copy of each is enough.
        sender, recipient, capability = map(sys.intern, (sender, recipient, capability))
        known = self.chains.get(chain)
        before = next((h for h in reversed(known) if h.recipient == sender), None)
        back = before is not None and recipient == before.sender and sender != recipient
        hop = Hop(
            seq=entry.seq,
            at=entry.at,
            chain=known[0].chain if known else chain,
            handoff=handoff,
            sender=sender,
            recipient=recipient,
            capability=capability,
            again=again,
            before=before,
            alternating=before.alternating + 1 if before is not None and back else 1,
        )
        self.chains.add(hop)
        self.hops.put(handoff, hop)
        return hop

    def _goes_round(self, hop: Hop) -> Iterator[Found | Repeats]:
        path = _path(hop)
        if not hop.again:
            same = [h for h in path if h.capability == hop.capability and not h.again]
            if len(same) >= SAME:
                yield Repeats(hops=tuple(same), on_path=True)
        if hop.alternating >= PING_PONG_HOPS:
            one, other = sorted((hop.sender, hop.recipient))
            says = f"{one} and {other} handed the same chain to each other {hop.alternating} times"
            yield _going_round("ping-pong", hop, f"{says} in a row", path[-hop.alternating :])
        visits = [
            h
            for h in path
            if h.recipient == hop.recipient and h.capability == hop.capability and not h.again
        ]
        if len(visits) >= VISITS and not hop.again:
            for_what = f" for {hop.capability}" if hop.capability else ""
            says = f"one chain came to {hop.recipient}{for_what} {len(visits)} times"
            yield _going_round("loop", hop, says, visits)

    def _completed(self, entry: Entry, hop: Hop) -> Iterator[Repeats]:
        hop.ended_at, hop.result_seq = entry.at, entry.seq
        if hop.again:
            return
        one_by_one: list[Hop] = []
        for h in self.chains.get(hop.chain):
            alike = h.recipient == hop.recipient and h.capability == hop.capability
            # What was offered before the last one ended is a vote or a map.
            later = not one_by_one or h.at >= (one_by_one[-1].ended_at or 0)
            if alike and later and not h.again and h.ended_at is not None:
                one_by_one.append(h)
        if len(one_by_one) >= SAME:
            yield Repeats(hops=tuple(one_by_one), on_path=False)


def livelock(repeats: Repeats) -> Found | None:
    """Return what repeats come to, once the digests of their hops are known."""
    last = repeats.hops[-1]
    same = [
        hop
        for hop in repeats.hops
        if hop.payload is not None
        and hop.payload == last.payload
        and (repeats.on_path or (hop.result is not None and hop.result == last.result))
    ]
    if len(same) < SAME:
        return None
    whom = ", ".join(dict.fromkeys(hop.recipient for hop in same))
    says = f"the same payload came to {whom} {len(same)} times: work without progress"
    return _going_round("livelock", last, says, same)


def _path(hop: Hop) -> list[Hop]:
    """Return the hops that led to one, oldest first."""
    path: list[Hop] = []
    at: Hop | None = hop
    while at is not None and len(path) < DEPTH_MAX:
        path.append(at)
        at = at.before
    return path[::-1]


def _going_round(detector: str, hop: Hop, says: str, hops: Sequence[Hop]) -> Found:
    return Found(
        detector=detector,
        subject=hop.chain,
        agents=tuple(dict.fromkeys(h.recipient for h in hops)),
        says=says,
        entries=tuple(h.seq for h in hops[-_ENTRIES_MAX:]),
        action=f"nodrop cancel {hop.handoff}",
    )


# --- too much at one time or in one place ---------------------------------------------------------


class _Minute(msgspec.Struct):
    at: int
    offers: int = 0
    attempts: int = 0
    retries: int = 0
    escalations: int = 0


class _Load:
    """What one capability is asked for, minute by minute."""

    def __init__(self, capability: str) -> None:
        self._capability = capability
        self._minutes: deque[_Minute] = deque(maxlen=USUAL_MS // MINUTE)
        self._before = _Minute(at=0)
        """What there was in all before the window that begins then; the same for a minute."""
        self._recipients: Counter[str] = Counter()
        self._recipients_total = 0
        self._seqs: deque[int] = deque(maxlen=_ENTRIES_MAX)
        """Of retries and escalations."""

    def offer(self, entry: Entry, hop: Hop, *, first: bool) -> Iterator[Found]:
        """Count an offer; the first of its chain to its recipient may make a hot spot."""
        self._minute(entry.at).offers += 1
        if not first:
            return  # a map over many items is one piece of work
        self._recipients[hop.recipient] += 1
        self._recipients_total += 1
        if self._recipients_total > HOT_OFFERS_MAX:
            halved = {agent: count // 2 for agent, count in self._recipients.items()}
            self._recipients = Counter({agent: n for agent, n in halved.items() if n})
            self._recipients_total = self._recipients.total()
        total, peers = self._recipients_total, len(self._recipients)
        count = self._recipients[hop.recipient]
        # Without a capability nobody is a peer of another.
        if not self._capability or peers < HOT_PEERS_MIN or total < HOT_OFFERS_MIN:
            return
        if count * peers < HOT_LIFT * total or binomial_tail(count, total, 1 / peers) >= UNLIKELY:
            return
        share = count / total
        yield Found(
            detector="hot-spot",
            subject=f"{hop.recipient} for {self._capability}",
            agents=(hop.recipient,),
            says=f"{hop.recipient} gets {share:.0%} of the work for {self._capability}, "
            f"{share * peers:.1f} times an equal share of {peers} agents",
            entries=(entry.seq,),
            action=f"nodrop find {self._capability}",
        )

    def attempt(self, entry: Entry, hop: Hop, *, retry: bool) -> Iterator[Found]:
        """Count an attempt; it may make a storm of retries."""
        minute = self._minute(entry.at)
        minute.attempts += 1
        if not retry:
            return
        minute.retries += 1
        self._seqs.append(entry.seq)
        late = self._late(entry.at)
        n, r = sum(m.attempts for m in late), sum(m.retries for m in late)
        early = self._early(entry.at)
        usual = _share(early.retries, early.attempts)
        if r < RETRIES_MIN or r <= max(RETRY_SHARE, RETRY_LIFT * usual) * n:
            return
        if binomial_tail(r, n, max(usual, RETRY_SHARE / 2)) >= UNLIKELY:
            return
        says = f"{r / n:.0%} of the attempts at {self._name} in ten minutes were retries"
        yield self._storm("retry-storm", hop, f"{says}; {usual:.0%} is usual")

    def escalation(self, entry: Entry, hop: Hop) -> Iterator[Found]:
        """Count an escalation; it may make a storm of them."""
        self._minute(entry.at).escalations += 1
        self._seqs.append(entry.seq)
        late = self._late(entry.at)
        count = sum(m.escalations for m in late)
        half = sum(m.escalations for m in late if m.at > entry.at - WINDOW_MS // 2)
        if count < ESCALATIONS_MIN or min(half, count - half) < EACH_HALF_MIN:
            return
        early = self._early(entry.at)
        rate = _share(early.escalations, early.offers)
        expected = max(rate * self._work(entry.at), 0.4)
        if count < ESCALATION_LIFT * expected or poisson_tail(count, expected) >= UNLIKELY:
            return
        says = f"{count} escalations about {self._name} in ten minutes"
        yield self._storm("escalation-storm", hop, f"{says}; {expected:.1f} are usual")

    @property
    def _name(self) -> str:
        return self._capability or "(no capability)"

    def _storm(self, detector: str, hop: Hop, says: str) -> Found:
        return Found(
            detector=detector,
            subject=self._name,
            agents=(hop.recipient,),
            says=says,
            entries=tuple(self._seqs),
            action=f"nodrop find {self._capability}" if self._capability else "nodrop agents",
        )

    def _minute(self, at: int) -> _Minute:
        begin = at - at % MINUTE
        if not self._minutes or self._minutes[-1].at < begin:
            self._minutes.append(_Minute(at=begin))
        return self._minutes[-1]

    def _late(self, at: int) -> list[_Minute]:
        """Return the minutes of the window that ends now, the last one first."""
        return list(takewhile(lambda m: m.at > at - WINDOW_MS, reversed(self._minutes)))

    def _early(self, at: int) -> _Minute:
        """Return the sum of the minutes before that window."""
        begin = (at - WINDOW_MS) // MINUTE * MINUTE
        if self._before.at != begin:
            early = [m for m in self._minutes if at - USUAL_MS < m.at <= begin]
            self._before = _Minute(
                at=begin,
                offers=sum(m.offers for m in early),
                attempts=sum(m.attempts for m in early),
                retries=sum(m.retries for m in early),
                escalations=sum(m.escalations for m in early),
            )
        return self._before

    def _work(self, at: int) -> int:
        """Return the most work of any window of the last hour or so: what escalates came earlier."""
        most: Counter[int] = Counter()
        for m in self._minutes:
            if m.at > at - HOUR - WINDOW_MS:
                most[(at - m.at) // WINDOW_MS] += m.offers
        return max(most.values(), default=0)


def _share(part: int, whole: int) -> float:
    """Return the share that is usual; before much is known, a little is taken as that."""
    return max(part / whole, 0.01) if whole >= KNOWN_MIN else 0.03

"""The port every store implements. Read this after `model/machine.py`.

A store keeps three things that must never disagree: the log of each team, which is the truth; one
current row per handoff, which is a cache of folding that log; and the inboxes, which point into
it. It decides nothing: no method here names a state. The team is the first part of every key.

Guarantees:

- A transaction is all or nothing. When `transaction()` exits without an error, everything
  appended is on disk and survives kill -9 and power loss; when it exits with one, either nothing
  was kept, or (`StoreUnavailableError` after the commit was sent) nobody knows, and the command id
  tells later.
- Within a team `seq` has no gaps and its order is commit order: a reader that remembers the last
  `seq` it saw misses nothing and repeats nothing.
- Rows that `load`, `claimable`, `held` or `due` returned in a transaction are not changed by
  anybody else until it ends. Where a store lets several engines share it, this is a lock, or a
  check before the commit: then the transaction ends with a `ConflictError`, and nothing is kept.

`nodrop.testing.store_contract.StoreContract` is the executable half of this file.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeAlias

import msgspec

from nodrop.model import clocks
from nodrop.model.contract import Agent
from nodrop.model.following import undecided
from nodrop.model.handoff import Handoff, State
from nodrop.protocol.entries import Draft, Entry, Head

Key: TypeAlias = tuple[str, str]
"""(team, id)."""

LARGE_BODY_BYTES: Final = 16 * 1024
"""A body larger than this is kept apart, so that its neighbours are read without it."""


class ConflictError(Exception):
    """Another engine changed what a unit of work rested on. Nothing was kept; decide it again.

    Only a store that several engines share raises it, and only before the commit.
    """


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of what goes in and out of a store."""


class Wanted(Value, frozen=True, kw_only=True):
    """Everything that a batch of commands must see before it can be decided."""

    handoffs: Collection[Key] = ()
    keys: Collection[tuple[str, str, str]] = ()
    """(team, sender, idempotency key)."""
    commands: Collection[tuple[str, str, str]] = ()
    """(team, actor, command id)."""
    entries: Collection[tuple[str, int]] = ()
    """(team, seq)."""
    processes: Collection[Key] = ()
    """(team, process): everything that it holds."""


class Place(Value, frozen=True, kw_only=True):
    """Where an entry stands: in the log, and among the events of its handoff."""

    seq: int
    handoff_id: str | None
    version: int | None
    type: str
    request: bytes | None = None
    """The digest of the request whose command id it has; None: it was not kept."""


class KeyUse(Value, frozen=True, kw_only=True):
    """What an idempotency key was used for."""

    team: str
    sender: str
    key: str
    handoff_id: str
    digest: str
    """Of the canonical request as sent."""


class Process(Value, frozen=True, kw_only=True):
    """A process of an agent, known by its heartbeat."""

    team: str
    id: str
    agent: str
    heartbeat_ms: int
    seen_at: int


class Loaded(Value, frozen=True, kw_only=True):
    """What there is of a `Wanted`; what is missing is not there."""

    handoffs: Mapping[Key, Handoff]
    keys: Mapping[tuple[str, str, str], KeyUse]
    commands: Mapping[tuple[str, str, str], Sequence[Place]]
    """A command's entries in log order: it may have made several."""
    entries: Mapping[tuple[str, int], Place]
    held: Mapping[Key, Sequence[Handoff]]
    """What each process that was asked for holds, in the order of ids; nothing is an answer too."""
    processes: Mapping[Key, Process]
    """Those of them that are known, as any engine last heard of them."""


class Row(Value, frozen=True):
    """A handoff and what it is found by."""

    handoff: Handoff
    due_at: int | None
    """When the relay must look at it; None: never."""
    rank: int | None
    """Place in its recipient's queue, smallest first; None: not to be taken now."""
    held: bool
    """Whether `handoff.process` holds on to it, or could still come back to it."""
    open: bool
    """Not settled, or undecided: kept in the short indexes and never pruned."""
    dead: bool
    """A dead letter that waits for a decision."""


_OFFERED: Final = State.OFFERED
_COMPLETED: Final = State.COMPLETED
_RETRY: Final = clocks.ClockName.RETRY
"""Named once: a member of an enumeration is looked up slowly, and these for every handoff."""


def takeable(handoff: Handoff) -> bool:
    """Whether the recipient may be handed it now: in its inbox, and no retry is waited for."""
    return handoff.state is _OFFERED and clocks.running(handoff, _RETRY) is None


def row_of(handoff: Handoff) -> Row:
    """Return a handoff with what a store finds it by."""
    due_at, final, rank = clocks.due_at(handoff), handoff.outcome is not None, None
    if handoff.state is _OFFERED and takeable(handoff):
        rank = clocks.rank(handoff)
    dead = final and handoff.state is not _COMPLETED and undecided(handoff)
    return Row(
        handoff,
        due_at,
        rank,
        handoff.process is not None and not final,
        dead or handoff.settled_at is None,
        dead,
    )


class Body(Value, frozen=True, kw_only=True):
    """What an entry brought, and the salt that its digest was taken with. Erased together."""

    salt: bytes
    body: bytes


class Token(Value, frozen=True, kw_only=True):
    """An API token. The secret itself is never stored."""

    team: str
    id: str
    secret_sha256: str
    agent: str
    role: str
    label: str | None = None
    created_at: int
    revoked_at: int | None = None


class Record(Value, frozen=True, kw_only=True):
    """A small thing that a relay knows about a team: a key, an invitation, its policy.

    Most are read when a relay starts; the store does not look into `json`.
    """

    team: str
    kind: str
    id: str
    json: bytes


class Changes(Value, frozen=True, kw_only=True):
    """Everything that one batch writes."""

    entries: Sequence[Draft] = ()
    rows: Sequence[Row] = ()
    keys: Sequence[KeyUse] = ()
    processes: Sequence[Process] = ()
    processes_gone: Sequence[Key] = ()
    agents: Sequence[tuple[Agent, bytes]] = ()
    """An agent and its manifest as sent. Every manifest version is kept."""
    tokens: Sequence[Token] = ()
    """New or changed (revoked) tokens."""
    records: Sequence[Record] = ()
    """New, or in the place of what was under (team, kind, id)."""
    records_gone: Sequence[tuple[str, str, str]] = ()
    """(team, kind, id)."""


class Mail(Value, frozen=True):
    """One inbox item: an entry that concerns a reader."""

    seq: int
    kind: str
    at: int
    actor: str
    type: str
    handoff_id: str | None
    version: int | None


class Page(Value, frozen=True, kw_only=True):
    """Which handoffs to list, newest first. None means any."""

    team: str
    party: str | None = None
    """Sender, origin, recipient or watcher."""
    state: str | None = None
    sender: str | None = None
    recipient: str | None = None
    correlation_id: str | None = None
    dead: bool | None = None
    marks: tuple[str, ...] = ()
    """All of these are among `Terms.marks`."""
    before: str | None = None
    """Only ids smaller than this."""
    limit: int


def is_listed(row: Row, page: Page) -> bool:
    """Whether `page` wants a handoff."""
    handoff = row.handoff
    parties = {handoff.sender, handoff.origin, handoff.recipient, *handoff.watchers}
    return (
        handoff.team == page.team
        and (page.party is None or page.party in parties)
        and page.state in (None, handoff.state)
        and page.sender in (None, handoff.sender)
        and page.recipient in (None, handoff.recipient)
        and page.correlation_id in (None, handoff.correlation_id)
        and page.dead in (None, row.dead)
        and all(mark in handoff.terms.marks for mark in page.marks)
        and (page.before is None or handoff.id < page.before)
    )


class LogPage(Value, frozen=True, kw_only=True):
    """Which entries to read, oldest first. None means any."""

    team: str
    after: int = 0
    limit: int
    handoff_id: str | None = None
    correlation_id: str | None = None
    actor: str | None = None
    type: str | None = None
    """A name, or the beginning of one when it ends in `*`."""


class Copy(Value, frozen=True, kw_only=True):
    """A verified copy of a store."""

    path: str
    size_bytes: int
    heads: Mapping[str, Head]
    """Where the log of each team ends in it."""


class Horizon(Value, frozen=True, kw_only=True):
    """Where a pruned log begins. Signed, because what it replaces can no longer be checked."""

    team: str
    seq: int
    hash: str
    at: int
    snapshots: Sequence[Handoff]
    """Every handoff that has entries on both sides of the cut, or is still open, as it was there."""
    public_key: str
    signature: str


class Team(Value, frozen=True, kw_only=True):
    """A namespace. `digest_key` makes digests by which its members can tell equal bodies."""

    id: str
    digest_key: bytes
    created_at: int


class Transaction(Protocol):
    """A unit of work. Commits when its block ends, rolls back when the block raises."""

    async def load(self, wanted: Wanted) -> Loaded:
        """Return what there is of `wanted`, held against other writers."""
        ...

    async def claimable(self, team: str, agent: str, *, limit: int) -> Sequence[Handoff]:
        """Return what `agent` may take, in the order of its queue, held against other writers."""
        ...

    async def held(self, team: str, process: str) -> Sequence[Handoff]:
        """Return the handoffs of rows with `held` that `process` holds, held in turn."""
        ...

    async def due(self, *, now: int, limit: int) -> Sequence[Handoff]:
        """Return what came due at or before `now`, oldest first, held against other writers."""
        ...

    async def unfinished(self, team: str, correlation_id: str) -> Sequence[Handoff]:
        """Return what has no outcome yet of a chain, in the order of ids, held in turn."""
        ...

    async def append(self, changes: Changes) -> Sequence[int]:
        """Write everything; return the `seq` of each entry, in the order given.

        They are there, at the latest, once the block has ended: a store may learn them from the
        commit. Entries of one team are chained in the order given. A row replaces the one before
        it. May be called again, but comes last: nothing is read after it.
        """
        ...


class Store(Protocol):
    """Where teams live."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a unit of work."""
        ...

    async def close(self) -> None:
        """Let go of the store. What was committed stays."""
        ...

    # Teams, agents, tokens, processes: small, read at start and on change.

    async def create_team(self, team: Team) -> Team:
        """Keep `team` unless one of its name exists; return the one that is kept."""
        ...

    async def teams(self) -> Sequence[Team]:
        """Return every team."""
        ...

    async def agents(self, team: str) -> Sequence[tuple[Agent, bytes]]:
        """Return every agent with its current manifest as sent, removed ones included."""
        ...

    async def manifest(self, team: str, agent: str, version: int) -> bytes | None:
        """Return one version of a manifest as sent."""
        ...

    async def tokens(self, team: str | None = None) -> Sequence[Token]:
        """Return every token, of one team or of all."""
        ...

    async def processes(self) -> Sequence[Process]:
        """Return every known process of every team."""
        ...

    async def records(self, kind: str, *, of: Key | None = None) -> Sequence[Record]:
        """Return every record of a kind; or, of a team, those whose ids begin so."""
        ...

    # Reading. Never blocks writers, never consumes, sees only what is committed.

    async def handoffs(self, keys: Sequence[Key]) -> Sequence[Handoff]:
        """Return the handoffs there are, in no particular order."""
        ...

    def cached(self, key: Key) -> Handoff | None:
        """Return a handoff as this engine last knew it, if it takes no waiting; None: ask `handoffs`.

        What other engines have done since comes as news; where there are none, this is the truth.
        """
        ...

    async def resolve(self, team: str, reference: str) -> Sequence[str]:
        """Return at most two ids: of the handoff `sender/key`, or of those an id prefix fits."""
        ...

    async def list_handoffs(self, page: Page) -> Sequence[Handoff]:
        """Return a page of handoffs, newest first."""
        ...

    async def bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], bytes]:
        """Return the bodies there are of (handoff id, version)."""
        ...

    async def body_sizes(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Return how many bytes the large bodies of (handoff id, version) have; small ones are left out."""
        ...

    async def entry_bodies(self, team: str, seqs: Sequence[int]) -> Mapping[int, Body]:
        """Return the bodies there are of these entries."""
        ...

    async def places(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Return the `seq` of (handoff id, version), where the log still has it."""
        ...

    async def log(self, page: LogPage) -> Sequence[Entry]:
        """Return a page of the log, oldest first."""
        ...

    async def head(self, team: str) -> Head:
        """Return the end of a team's log."""
        ...

    async def horizon(self, team: str) -> Horizon | None:
        """Return where a team's log begins, if it was pruned."""
        ...

    async def inbox(self, team: str, agent: str, *, after: int, limit: int) -> Sequence[Mail]:
        """Return what concerns `agent` after `after`, oldest first.

        An entry's items come together, a few beyond `limit` if need be: the last `seq` is a cursor.
        """
        ...

    async def queue(self, team: str, agent: str) -> Mapping[str, int | None]:
        """Return the ids of the unfinished handoffs that `agent` is the recipient of, with their ranks."""
        ...

    async def unfinished(self) -> Sequence[tuple[str, str, str, int]]:
        """Return how many handoffs have no outcome yet, by (team, origin, recipient)."""
        ...

    async def next_due(self) -> int | None:
        """Return the earliest due time of all."""
        ...

    # Housekeeping.

    async def shed(self) -> None:
        """Drop from memory what can be read again."""
        ...

    async def erase(self, team: str, handoff_id: str) -> int:
        """Delete the bodies of a handoff; return how many there were."""
        ...

    async def prune(self, horizon: Horizon, *, forget_before: int) -> int:
        """Cut the log of a team at `horizon`; return how many entries went.

        Bodies go with their entries unless their handoff is in the horizon's snapshots, and inbox
        items with entries that are about no handoff. Rows, keys and inbox items of handoffs that
        were settled before `forget_before` go too, unless they are open or the log still tells of
        them.
        """
        ...

    async def backup(self, name: str) -> Copy:
        """Copy everything into a new file called `name`, in a place of the store's own; verify it.

        Raises:
            InvalidRequestError: this store is backed up in another way, which is said.
            StoreCorruptError: the copy does not hold.
        """
        ...


# --- several engines on one store ----------------------------------------------------------------


class Attending(Value, frozen=True, kw_only=True):
    """An agent as one engine knows it."""

    team: str
    agent: str
    connected: bool
    seen_at: int


class News(Value, frozen=True, kw_only=True):
    """What other engines have written to a team's log since the last time."""

    team: str
    until: int
    """The last entry that is told of, or was written here."""
    entries: Sequence[Place]
    mails: Mapping[str, Sequence[Mail]]
    """By reader."""
    handoffs: Sequence[Handoff]
    """Those that `entries` are about, as they are now."""
    processes: Sequence[Process]
    """Those that hold some of them."""
    known: int | None
    """The entry that last changed agents, tokens or records, if it is new: what decisions rest on
    is not what it was."""
    changes: Changes | None = None
    """The agents, tokens and records that have changed then, as they are now; None: nobody knows
    which, so that all must be read again."""


class Roll(Value, frozen=True, kw_only=True):
    """Who serves a store, as of a moment."""

    up_since: int
    """Since when there has been an engine all the time."""
    others: int
    """Engines that serve besides this one."""
    elsewhere: Mapping[Key, Attending]
    """The agents that the others know, each as whoever knows most of it."""
    forgotten: bool = False
    """Whether the others no longer know whom this engine hears of: it must be told again."""


class Fleet(Protocol):
    """The other engines on a store, seen from one of them.

    Notifications are hints and may get lost; what is asked for is the truth.
    """

    async def join(self) -> Roll:
        """Be one of them. Whatever is written from now on will be news."""
        ...

    async def attend(self, attending: Sequence[Attending]) -> Roll:
        """Be counted, tell what changed about the agents here, and learn who else there is.

        Must be called every second or so: who is not heard of for long is gone.
        """
        ...

    async def hint(self, *, seconds: float) -> None:
        """Return when another engine has written something, or after so long."""
        ...

    async def news(self) -> Sequence[News]:
        """Return what others wrote since the last time."""
        ...

    def heard(self, news: News) -> None:
        """Say that `news` has been taken in. Until then, nothing is decided that rests on it."""
        ...

    async def silent(self, *, now: int, heartbeats: int, limit: int) -> Sequence[Process]:
        """Return processes that nobody has heard of for so many of their heartbeats."""
        ...

    async def waiting(self, agents: Sequence[Key]) -> Sequence[Key]:
        """Return those of `agents` in whose inboxes something waits to be taken."""
        ...

    async def claim(self, duties: Collection[str]) -> Collection[str]:
        """Return those of `duties` that this engine is to do, and no other that serves does.

        Must be asked every second or so, after `join`: what an engine that is gone did falls to
        whoever asks for it next.
        """
        ...

    async def leave(self) -> None:
        """Be one of them no longer."""
        ...

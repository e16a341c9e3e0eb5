"""One open database file. Synchronous: `store` runs all of it on its one thread.

A unit of work is written in one call, between one `begin` and one `commit`. So a read, which runs
before or after it on the same thread, can see nothing that is not committed, and the connection is
never left inside a transaction.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import apsw

from nodrop.core.contract import Agent
from nodrop.core.model import Handoff
from nodrop.store import (
    Changes,
    Horizon,
    Key,
    KeyUse,
    Loaded,
    LogPage,
    Mail,
    Page,
    Place,
    Process,
    Record,
    Row,
    Team,
    Token,
    Wanted,
)
from nodrop.stores.sqlite.cache import Cache
from nodrop.stores.sqlite.connection import connect
from nodrop.stores.sqlite.pages import AFTER_ALL, entries_page, handoffs_page
from nodrop.stores.sqlite.pruning import current_horizon, prune
from nodrop.stores.sqlite.records import (
    columns_of,
    read_agent,
    read_entry,
    read_handoff,
    value_of,
)
from nodrop.stores.sqlite.writing import End, write_entries, write_handoffs, write_others
from nodrop.wire.log import Entry, Head

CACHED_HANDOFFS_MAX: Final = 10_000
"""Of a few kilobytes each."""

_KINDS_MAX: Final = 16
"""An entry has at most one item of a kind for one reader; there are fewer kinds than this."""


class Database:
    """The tables of one file, and what can be asked of them."""

    def __init__(self, path: Path, *, vfs: str | None, synchronous: str) -> None:
        self._connection = connect(path, vfs=vfs, synchronous=synchronous)
        self._cache = Cache(CACHED_HANDOFFS_MAX)
        self._ends: dict[str, End] = {}
        """Where the logs end that were written to."""

    def close(self) -> None:
        """Let go of the file. SQLite empties the write-ahead log into it first."""
        self._connection.close()

    # --- writing ---

    def write(self, batches: Sequence[Changes]) -> None:
        """Commit everything in `batches`, or nothing."""
        rows = [row for changes in batches for row in changes.rows]
        with self._committing():
            drafts = [draft for changes in batches for draft in changes.entries]
            write_entries(self._connection, drafts, self._ends)
            known: list[Row] = []
            strange: list[Row] = []
            for row in rows:
                (known if self._knows(row.handoff) else strange).append(row)
            write_handoffs(self._connection, known, strange)
            for changes in batches:
                write_others(self._connection, changes)
        self._cache.keep(row.handoff for row in rows)

    def create_team(self, team: Team) -> Team:
        """Keep `team` unless one of its name exists; return the one that is kept."""
        head = Head()
        with self._committing():
            self._connection.execute(
                "insert into team values (?, ?, ?, ?, ?) on conflict do nothing",
                (*columns_of(team), head.seq, head.hash),
            )
        return next(kept for kept in self.teams() if kept.id == team.id)

    def erase(self, team: str, handoff_id: str) -> int:
        """Delete the bodies of a handoff; return how many there were."""
        with self._committing():
            self._connection.execute(
                "delete from body where team = ? and handoff_id = ?", (team, handoff_id)
            )
            count = self._connection.changes()
        # The write-ahead log still has what was erased: empty it.
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return count

    def prune(self, horizon: Horizon, forget_before: int) -> int:
        """Cut a team's log at `horizon`; return how many entries went."""
        with self._committing():
            count = prune(self._connection, horizon, forget_before=forget_before)
        self._cache.clear()
        return count

    @contextmanager
    def _committing(self) -> Generator[None]:
        self._connection.execute("begin immediate")
        try:
            yield
            self._connection.execute("commit")
        except BaseException:
            # Some errors roll back by themselves. Whether a commit that failed was kept after all
            # only the file knows, so nothing that was remembered counts any more.
            self._cache.clear()
            self._ends.clear()
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            raise

    def _knows(self, handoff: Handoff) -> bool:
        """Whether it surely has a row, and the parties that it has now."""
        before = self._cache.look((handoff.team, handoff.id))
        return before is not None and before.asked == handoff.asked

    # --- what a decision needs ---

    def load(self, wanted: Wanted) -> Loaded:
        """Return what there is of `wanted`."""
        commands: dict[tuple[str, str, str], list[Place]] = {}
        for team, actor, command_id, *place in self._for_each(
            """
            select team, actor, command_id, seq, handoff_id, version, type, request
            from entry indexed by entry_command
            where team = ? and actor = ? and command_id = ? order by seq
            """,
            wanted.commands,
        ):
            found = commands.setdefault((team, actor, command_id), [])
            found.append(value_of(Place, tuple(place)))
        keys = (
            value_of(KeyUse, row)
            for row in self._for_each(
                "select * from idempotency_key where team = ? and sender = ? and key = ?",
                wanted.keys,
            )
        )
        entries = {
            (row[0], row[1]): value_of(Place, row[1:])
            for row in self._for_each(
                "select team, seq, handoff_id, version, type, request from entry"
                " where team = ? and seq = ?",
                wanted.entries,
            )
        }
        return Loaded(
            handoffs={(h.team, h.id): h for h in self.handoffs(wanted.handoffs)},
            keys={(use.team, use.sender, use.key): use for use in keys},
            commands=commands,
            entries=entries,
            held={key: self.held(*key) for key in wanted.processes},
            processes={(p.team, p.id): p for p in self._known(wanted.processes)},
        )

    def _known(self, keys: Collection[Key]) -> list[Process]:
        sql = "select * from process where team = ? and id = ?"
        rows = self._for_each(sql, keys) if keys else ()
        return [value_of(Process, row) for row in rows]

    def claimable(self, team: str, agent: str, limit: int) -> list[Handoff]:
        """Return what `agent` may take, in the order of its queue."""
        rows = self._connection.execute(
            """
            select team, id from handoff indexed by handoff_queue
            where team = ? and recipient = ? and ended_at is null and rank is not null
            order by rank, id limit ?
            """,
            (team, agent, limit),
        )
        return self.handoffs(rows)

    def held(self, team: str, process: str) -> list[Handoff]:
        """Return what `process` holds."""
        rows = self._connection.execute(
            "select team, id from handoff where team = ? and process = ? and held order by id",
            (team, process),
        )
        return self.handoffs(rows)

    def due(self, now: int, limit: int) -> list[Handoff]:
        """Return what came due at or before `now`, oldest first."""
        rows = self._connection.execute(
            "select team, id from handoff where due_at <= ? order by due_at, team, id limit ?",
            (now, limit),
        )
        return self.handoffs(rows)

    def unfinished_of(self, team: str, correlation_id: str) -> list[Handoff]:
        """Return what has no outcome yet of a chain, in the order of ids."""
        rows = self._connection.execute(
            """
            select team, id from handoff indexed by handoff_correlation
            where team = ? and correlation_id = ? and ended_at is null order by id
            """,
            (team, correlation_id),
        )
        return self.handoffs(rows)

    def handoffs(self, keys: Iterable[Key]) -> list[Handoff]:
        """Return the handoffs there are of `keys`, in their order."""
        found = {key: self._cache.get(key) for key in keys}
        missing = [key for key, handoff in found.items() if handoff is None]
        if missing:
            rows = self._for_each("select json from handoff where team = ? and id = ?", missing)
            read = [read_handoff(json) for (json,) in rows]
            self._cache.keep(read)
            found.update({(handoff.team, handoff.id): handoff for handoff in read})
        return [handoff for handoff in found.values() if handoff is not None]

    def at_hand(self, key: Key) -> Handoff | None:
        """Return a handoff as it was last committed, if it is in the cache. From any thread."""
        return self._cache.look(key)

    def next_due(self) -> int | None:
        """Return the earliest due time of all."""
        return self._value("select min(due_at) from handoff where due_at is not null")

    # --- finding and listing ---

    def resolve(self, team: str, reference: str) -> list[str]:
        """Return at most two ids: of `sender/key`, or of those an id prefix fits."""
        sender, slash, key = reference.partition("/")
        if slash:
            rows = self._connection.execute(
                "select handoff_id from idempotency_key where team = ? and sender = ? and key = ?",
                (team, sender, key),
            )
        else:
            rows = self._connection.execute(
                "select id from handoff where team = ? and id >= ? and id < ? order by id limit 2",
                (team, reference, reference + AFTER_ALL),
            )
        return [handoff_id for (handoff_id,) in rows]

    def list_handoffs(self, page: Page) -> list[Handoff]:
        """Return a page of handoffs, newest first."""
        return [read_handoff(json) for (json,) in self._connection.execute(*handoffs_page(page))]

    def queued(self, team: str, agent: str) -> int:
        """Return how many unfinished handoffs `agent` is the recipient of."""
        return self._value(
            "select count(*) from handoff where team = ? and recipient = ? and ended_at is null",
            team,
            agent,
        )

    def unfinished(self) -> list[tuple[str, str, str, int]]:
        """Return how many handoffs have no outcome yet, by (team, origin, recipient)."""
        return list(
            self._connection.execute(
                "select team, origin, recipient, count(*) from handoff indexed by handoff_queue "
                "where ended_at is null group by team, origin, recipient"
            )
        )

    def log(self, page: LogPage) -> tuple[list[Entry], int | None]:
        """Return a page of the log, and up to where it looked if that was not everything."""
        statement, scanned_to = entries_page(page)
        entries = [read_entry(row) for row in self._connection.execute(*statement)]
        if scanned_to is not None and scanned_to >= self.head(page.team).seq:
            scanned_to = None
        return entries, scanned_to

    def inbox(self, team: str, agent: str, after: int, limit: int) -> list[Mail]:
        """Return what concerns `agent` after `after`, oldest first, each entry's items together."""
        rows = self._connection.execute(
            """
            select seq, kind, at, actor, type, handoff_id, version from inbox
            where team = ? and agent = ? and seq > ? order by seq, kind limit ?
            """,
            (team, agent, after, limit + _KINDS_MAX),
        )
        items = [value_of(Mail, row) for row in rows]
        # A reader goes on after the last `seq` it saw: a page must not end inside an entry.
        return [
            item for n, item in enumerate(items) if n < limit or item.seq == items[limit - 1].seq
        ]

    # --- the log's surroundings ---

    def bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], bytes]:
        """Return the bodies there are of (handoff id, version)."""
        rows = self._for_each(
            "select handoff_id, number, body from body"
            " where team = ? and handoff_id = ? and number = ?",
            [(team, *key) for key in wanted],
        )
        return {(handoff_id, version): body for handoff_id, version, body in rows}

    def entry_bodies(self, team: str, seqs: Sequence[int]) -> Mapping[int, bytes]:
        """Return the bodies there are of these entries."""
        rows = self._for_each(
            """
            select e.seq, b.body from entry e cross join body b on b.team = e.team
                and b.handoff_id = case when e.version is null then '' else e.handoff_id end
                and b.number = coalesce(e.version, e.seq)
            where e.team = ? and e.seq = ?
            """,
            [(team, seq) for seq in seqs],
        )
        return dict(rows)

    def places(self, team: str, wanted: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """Return the `seq` of (handoff id, version), where the log still has it."""
        rows = self._for_each(
            "select handoff_id, version, seq from entry"
            " where team = ? and handoff_id = ? and version = ?",
            [(team, *key) for key in wanted],
        )
        return {(handoff_id, version): seq for handoff_id, version, seq in rows}

    def head(self, team: str) -> Head:
        """Return the end of a team's log."""
        row = self._connection.execute(
            "select head_seq, head_hash from team where id = ?", (team,)
        ).fetchone()
        return value_of(Head, row) if row else Head()

    def horizon(self, team: str) -> Horizon | None:
        """Return where a team's log begins, if it was pruned."""
        return current_horizon(self._connection, team)

    # --- teams and agents ---

    def teams(self) -> list[Team]:
        """Return every team."""
        rows = self._connection.execute("select id, digest_key, created_at from team order by id")
        return [value_of(Team, row) for row in rows]

    def agents(self, team: str) -> list[tuple[Agent, bytes]]:
        """Return every agent with its current manifest as sent."""
        rows = self._connection.execute(
            """
            select a.json, m.sent from agent a
            join manifest m on m.team = a.team and m.agent = a.id and m.version = a.version
            where a.team = ? order by a.id
            """,
            (team,),
        )
        return [(read_agent(json), sent) for json, sent in rows]

    def manifest(self, team: str, agent: str, version: int) -> bytes | None:
        """Return one version of a manifest as sent."""
        return self._value(
            "select sent from manifest where team = ? and agent = ? and version = ?",
            team,
            agent,
            version,
        )

    def tokens(self, team: str | None) -> list[Token]:
        """Return every token, of one team or of all."""
        first, last = ("", AFTER_ALL) if team is None else (team, team)
        rows = self._connection.execute(
            "select * from token where team >= ? and team <= ? order by team, id", (first, last)
        )
        return [value_of(Token, row) for row in rows]

    def processes(self) -> list[Process]:
        """Return every known process of every team."""
        rows = self._connection.execute("select * from process order by team, id")
        return [value_of(Process, row) for row in rows]

    def records(self, kind: str, of: Key | None) -> list[Record]:
        """Return every record of a kind; or, of a team, those whose ids begin so."""
        first, last = ("", ""), (AFTER_ALL, "")
        if of is not None:
            first, last = of, (of[0], of[1] + AFTER_ALL)
        rows = self._connection.execute(
            "select team, kind, id, json from record where kind = ?"
            " and (team, id) >= (?, ?) and (team, id) < (?, ?) order by team, id",
            (kind, *first, *last),
        )
        return [value_of(Record, row) for row in rows]

    # --- statements ---

    def _for_each(self, sql: str, bindings: Iterable[Sequence[Any]]) -> Iterable[Any]:
        """Run `sql` for each of `bindings`; return all the rows."""
        return self._connection.executemany(sql, bindings)

    def _value(self, sql: str, *bound: Any) -> Any:
        """Return the one value that `sql` selects, None if there is no row."""
        row = self._connection.execute(sql, bound).fetchone()
        return row[0] if row else None

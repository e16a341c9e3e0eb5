"""One open database file. Synchronous: `store` runs all of it on its one thread.

A commit is written in one call, between one `begin` and one `commit`. So a read, which runs before or
after it on the same thread, can see nothing that is not committed, and the connection is never left
inside a transaction.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import apsw
from msgspec.structs import replace

from nodrop.log import journal
from nodrop.log.journal import Batch
from nodrop.log.port import (
    Body,
    Changes,
    Horizon,
    Key,
    KeyUse,
    LogPage,
    Mail,
    Page,
    Place,
    Process,
    Record,
    Team,
    Token,
)
from nodrop.log.records import (
    KEPT,
    STUB,
    Columns,
    agent_columns,
    columns_of,
    handoff_columns,
    packed,
    party_columns,
    read_agent,
    read_handoff,
    read_kept,
    read_stub,
    unpacked,
    value_of,
)
from nodrop.log.recovery import replay
from nodrop.log.serving import SEQ_MAX
from nodrop.log.sqlite.connection import connect
from nodrop.log.sqlite.driver import Backup, Connection, Cursor
from nodrop.log.sqlite.pages import AFTER_ALL, handoffs_page
from nodrop.log.sqlite.pruning import BATCH, batch_at, current_horizon, prune
from nodrop.log.state import Kept, Slice, State, TeamState
from nodrop.log.work import Commit
from nodrop.model.contract import Agent
from nodrop.model.errors import RelayFaultError, StoreCorruptError, StoreUnavailableError
from nodrop.model.handoff import Handoff
from nodrop.protocol.entries import Entry, Head, hash_of, salted_digest

SCAN_ENTRIES_MAX: Final = 1_000
"""How much of the log one visit looks through for an actor or a type: these have no index, and the
writer waits meanwhile."""
CHECKPOINT_PAGES: Final = 4_000
"""16 MiB of log between checkpoints: a page that changes often is copied back once, and a
checkpoint still takes only tens of milliseconds."""
CACHE_BYTES_KEPT: Final = 12 * 1024 * 1024
"""A cache of pages up to this size is left alone."""
_CHECK_STEPS: Final = 1_000
"""Of a check between two looks at the clock."""
_BATCHES_MAX: Final = 16
"""Batches whose entries are kept decoded."""
_KINDS_MAX: Final = 16
"""An entry has at most one item of a kind for one reader; there are fewer kinds than this."""


class Database:
    """The tables of one file, and what can be asked of them."""

    def __init__(self, path: Path, *, vfs: str | None, synchronous: str) -> None:
        self.path = path
        self._connection = connect(path, vfs=vfs, synchronous=synchronous)
        self._writer = self._connection.cursor()
        """Runs what a commit writes: a statement of the connection's own takes a new cursor each."""
        self._decoded: dict[tuple[str, int], list[Entry]] = {}
        """By team and last `seq`; the entries of a batch do not change."""
        self._ends: dict[str, int] = {}
        """Where the journal of each team ends, if this connection wrote it: nobody else can."""
        self.wal_pages = 0
        """In the write-ahead log, as of the last commit."""
        self._connection.set_wal_hook(self._count_pages)

    def close(self) -> None:
        """Let go of the file. SQLite empties the write-ahead log into it first."""
        self._connection.close()

    def give_back(self) -> None:
        """Give back the memory of pages that were read or written, where they are many.

        Large bodies fill the cache and are not needed again; what is comes back from the system's own.
        """
        used, _ = self._connection.status(apsw.SQLITE_DBSTATUS_CACHE_USED)
        if used > CACHE_BYTES_KEPT:
            self._connection.pragma("shrink_memory")

    # --- writing ---

    def write(self, commit: Commit) -> None:
        """Commit everything in `commit`, or nothing."""
        writer = self._writer
        for part in commit.journal:
            batch = part.batch
            if self._ends.get(batch.team) != batch.first_seq - 1:
                self._require_next(batch)
        writer.execute("begin immediate")
        try:
            for part in commit.journal:
                writer.execute(_INSERT_BATCH, columns_of(part.batch))
                if part.large:
                    team = part.batch.team
                    large = [(team, *columns_of(body)) for body in part.large]
                    writer.executemany(_INSERT_LARGE, large)
            if commit.commands:
                _write(writer, _UPSERT_COMMANDS, commit.commands)
            if commit.mentions:
                writer.executemany("insert into mention values (?, ?, ?)", commit.mentions)
            for changes in commit.changes:
                if changes.keys:
                    _write(writer, _PUT_KEYS, [columns_of(use) for use in changes.keys])
                if changes.processes:
                    writer.executemany(_PUT_PROCESS, map(columns_of, changes.processes))
                if changes.processes_gone:
                    writer.executemany(_DROP_PROCESS, changes.processes_gone)
                if changes.agents or changes.tokens or changes.records or changes.records_gone:
                    _write_known(writer, changes)
            writer.execute("commit")
        except BaseException:
            self._roll_back()
            raise
        for part in commit.journal:
            self._ends[part.batch.team] = part.batch.last_seq

    def _require_next(self, batch: Batch) -> None:
        """Refuse a batch that does not go on where the journal ends: a log has no second history."""
        team, end = batch.team, batch.first_seq - 1
        found = self._ends.get(team)
        if found is None:
            found = self._value(
                "select max(last_seq) from journal where team = ? and last_seq >= ?", team, end
            )
        if found not in (None, end):
            raise RelayFaultError(
                f"the log of {team} ends at {found}, and {batch.first_seq} was to follow"
            )

    def write_behind(self, behind: Slice) -> None:
        """Write rows that are behind.

        They are synced, although the log has what is in them: a sync that fails later may drop pages
        that an earlier commit left unsynced, and every commit behind such a gap is lost.
        """
        with self._committing():
            _write_behind(self._writer, behind)

    def checkpoint(self) -> None:
        """Copy what is in the write-ahead log into the file."""
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self.wal_pages = 0

    def _count_pages(self, _connection: Connection, _name: str, pages: int) -> int:
        self.wal_pages = pages
        return apsw.SQLITE_OK

    def create_team(self, team: Team) -> Team:
        """Keep `team` unless one of its name exists; return the one that is kept."""
        with self._committing():
            self._connection.execute(
                "insert into team values (?, ?, ?) on conflict do nothing", columns_of(team)
            )
        return next(kept for kept in self.teams() if kept.id == team.id)

    def erase(self, team: str, handoff_id: str, seqs: Sequence[int]) -> int:
        """Delete the bodies of a handoff, whose entries are at `seqs`; return how many there were."""
        count = 0
        with self._committing():
            for batch in self._batches(team, seqs):
                gone = [body.seq for body in journal.bodies(batch) if body.seq in seqs]
                if gone:
                    self._connection.execute(
                        "update journal set bodies = ? where team = ? and last_seq = ?",
                        (journal.without_bodies(batch, gone), team, batch.last_seq),
                    )
                    count += len(gone)
            for seq in seqs:
                self._connection.execute(
                    "delete from large_body where team = ? and seq = ?", (team, seq)
                )
                count += self._connection.changes()
            self._connection.execute(
                "delete from kept_body where team = ? and handoff_id = ?", (team, handoff_id)
            )
            count += self._connection.changes()
        # The write-ahead log still has what was erased: empty it.
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return count

    def prune(self, horizon: Horizon, forget_before: int) -> tuple[int, list[str]]:
        """Cut a team's log at `horizon`; return how many entries and which handoffs went."""
        with self._committing():
            gone = prune(self._connection, horizon, forget_before=forget_before)
        self._decoded.clear()
        return gone

    @contextmanager
    def _committing(self) -> Generator[None]:
        self._connection.execute("begin immediate")
        try:
            yield
            self._connection.execute("commit")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        self._ends.clear()  # what became of the last commit the file knows
        # Some errors roll back by themselves.
        if self._connection.in_transaction:
            self._connection.execute("rollback")

    # --- starting ---

    def recover(self) -> State:
        """Return what belongs into memory: open handoffs, and what the rows do not have yet."""
        state = State()
        for team in self.teams():
            state.teams[team.id] = self.team_state(team.id)
        rows = self._connection.execute(
            f"select team, id, {STUB} from handoff where due_at is not null"  # noqa: S608  # constants
        )
        for team, handoff_id, *stub in rows:
            state.admit_stub((team, handoff_id), read_stub(tuple(stub)))
        for name, team in state.teams.items():
            if team.watermark > team.head.seq:
                raise StoreUnavailableError(
                    f"the log of {name} ends at {team.head.seq}, its rows at {team.watermark}: "
                    "the end of the log is missing",
                    next_step="Restore the whole file from a backup.",
                )
            end, team.head = team.head, Head(seq=team.watermark)
            self.catch_up(state, name)
            team.head = end
        return state

    def team_state(self, team: str) -> TeamState:
        """Return where a team's log begins and ends, and how far its rows are."""
        row = self._connection.execute(
            f"select {BATCH} from journal where team = ? order by last_seq desc limit 1",  # noqa: S608  # constants
            (team,),
        ).fetchone()
        begins = current_horizon(self._connection, team)
        pruned_to = None if begins is None else Head(seq=begins.seq, hash=begins.hash)
        head = journal.head_of(value_of(Batch, row) if row else None, pruned_to)
        written = self._value("select seq from watermark where team = ?", team) or 0
        horizon = begins.seq if begins else 0
        return TeamState(head, watermark=max(written, horizon), horizon=horizon)

    def catch_up(self, state: State, team: str) -> None:
        """Fold what the journal has of a team beyond `state`."""
        while True:
            row = self._connection.execute(
                f"select {BATCH} from journal where team = ? and last_seq > ? order by last_seq limit 1",  # noqa: S608  # constants
                (team, state.teams[team].head.seq),
            ).fetchone()
            if row is None:
                return
            replay(state, value_of(Batch, row), self.kept)

    def quick_check(self, seconds_max: float) -> None:
        """Look through the pages for damage, for so long at most.

        Raises:
            StoreCorruptError: there is some.
        """
        until = perf_counter() + seconds_max
        self._connection.set_progress_handler(lambda: perf_counter() > until, _CHECK_STEPS)
        try:
            found = str(self._connection.pragma("quick_check", 1))
        except apsw.InterruptError:
            return  # as far as we looked, it is sound
        finally:
            self._connection.set_progress_handler(None, 0)
        if found != "ok":
            raise StoreCorruptError(f"{self.path} is damaged: {found.splitlines()[-1]}")

    # --- backup ---

    def backup_into(self, target: Connection) -> Backup:
        """Begin to copy everything into `target`."""
        return target.backup("main", self._connection, "main")

    def verify(self, held_to: Iterable[tuple[str, Head]] = ()) -> dict[str, Head]:
        """Check every page, every entry and every body; return where each team's log ends.

        `held_to` are (team, head) that the logs must have gone through.

        Raises:
            StoreCorruptError: something does not hold.
        """
        found = str(self._connection.pragma("integrity_check"))
        if found != "ok":
            raise StoreCorruptError(f"the file is damaged: {found.splitlines()[-1]}")
        state = self.recover()
        awaited = {(team, head.seq): head.hash for team, head in held_to}
        for name, team in state.teams.items():
            begins = current_horizon(self._connection, name)
            head = Head(seq=begins.seq, hash=begins.hash) if begins else Head()
            # Checkpoints of what was pruned can no longer be checked.
            awaited = {at: h for at, h in awaited.items() if at[0] != name or at[1] > head.seq}
            for entry in self._checked_entries(name, head):
                if awaited.pop((name, entry.seq), entry.hash) != entry.hash:
                    raise StoreCorruptError(f"entry {entry.seq} of {name} is not the one it was")
                head = Head(seq=entry.seq, hash=entry.hash)
            if head != team.head:
                raise StoreCorruptError(
                    f"the log of {name} ends at {head.seq}, not {team.head.seq}"
                )
        if awaited:
            name, seq = max(awaited)
            raise StoreCorruptError(
                f"the log of {name} once had an entry {seq}: the end is missing"
            )
        return {name: team.head for name, team in state.teams.items()}

    def _checked_entries(self, team: str, head: Head) -> Iterator[Entry]:
        """Yield the entries of a team, each following the one before it, with the bodies it has."""
        sql = f"select {BATCH} from journal where team = ? order by last_seq"  # noqa: S608  # constants
        for row in self._connection.execute(sql, (team,)):
            batch = value_of(Batch, row)
            entries = journal.entries(batch)
            bodies = self.bodies_at(team, [entry.seq for entry in entries])
            for entry in entries:
                if (entry.seq, entry.prev_hash) != (head.seq + 1, head.hash):
                    raise StoreCorruptError(
                        f"entry {entry.seq} of {team} does not follow {head.seq}"
                    )
                if entry.hash != hash_of(entry):
                    raise StoreCorruptError(f"entry {entry.seq} of {team} is not what was written")
                body = bodies.get(entry.seq)
                if body and salted_digest(body.salt, body.body) != entry.body_digest:
                    raise StoreCorruptError(f"the body of entry {entry.seq} of {team} was changed")
                head = Head(seq=entry.seq, hash=entry.hash)
                yield entry

    # --- what a decision needs ---

    def kept(self, keys: Iterable[Key]) -> list[Kept]:
        """Return the handoffs there are of `keys`, as their rows have them."""
        rows = self._for_each(
            f"select {KEPT} from handoff where team = ? and id = ?",  # noqa: S608  # constants
            keys,
        )
        return [read_kept(row) for row in rows]

    def commands(
        self, wanted: Iterable[tuple[str, str, str]]
    ) -> dict[tuple[str, str, str], list[Place]]:
        """Return what commands wrote, in log order."""
        rows = self._for_each(
            "select * from command where team = ? and actor = ? and id = ?", wanted
        )
        return {
            (team, actor, command_id): [
                replace(place, request=request)
                for place in self._places_at(team, map(int, seqs.split()))
            ]
            for team, actor, command_id, request, seqs in list(rows)
        }

    def greatest_command(self, team: str, actor: str) -> str | None:
        """Return the greatest id of an actor's commands."""
        return self._value("select max(id) from command where team = ? and actor = ?", team, actor)

    def keys(self, wanted: Iterable[tuple[str, str, str]]) -> list[KeyUse]:
        """Return what idempotency keys were used for."""
        rows = self._for_each(
            "select * from idempotency_key where team = ? and sender = ? and key = ?", wanted
        )
        return [value_of(KeyUse, row) for row in rows]

    def entry_places(self, wanted: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Place]:
        """Return the entries there are of (team, seq)."""
        found = ((team, place) for team, seq in wanted for place in self._places_at(team, [seq]))
        return {(team, place.seq): place for team, place in found}

    def processes_of(self, keys: Iterable[Key]) -> list[Process]:
        """Return the known processes of `keys`."""
        rows = self._for_each("select * from process where team = ? and id = ?", keys)
        return [value_of(Process, row) for row in rows]

    def _places_at(self, team: str, seqs: Iterable[int]) -> list[Place]:
        return [
            Place(seq=e.seq, handoff_id=e.handoff_id, version=e.version, type=e.type)
            for e in self.entries_at(team, seqs)
        ]

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

    def inbox(self, team: str, agent: str, after: int, before: int, limit: int) -> list[Mail]:
        """Return what the table has for `agent` between `after` and `before`, oldest first."""
        rows = self._connection.execute(
            """
            select seq, kind, at, actor, type, handoff_id, version from inbox
            where team = ? and agent = ? and seq > ? and seq < ? order by seq, kind limit ?
            """,
            (team, agent, after, before, limit + _KINDS_MAX),
        )
        return [value_of(Mail, row) for row in rows]

    # --- the log ---

    def log(self, page: LogPage, fits: Callable[[Entry], bool]) -> tuple[list[Entry], int | None]:
        """Return a page of the log, and up to where it looked if that was not everything."""
        found: list[Entry] = []
        # A caller may name any integer: far below the first entry, or beyond the last there can be.
        after = min(max(page.after, 0), SEQ_MAX)
        looked = 0
        rows = self._connection.execute(
            f"select {BATCH} from journal where team = ? and last_seq > ? order by last_seq",  # noqa: S608  # constants
            (page.team, after),
        )
        for row in rows:
            batch = value_of(Batch, row)
            if journal.may_hold(batch, page):
                found += [e for e in self._entries(batch) if e.seq > after and fits(e)]
                if len(found) >= page.limit:
                    return found[: page.limit], None
            looked += batch.last_seq - batch.first_seq + 1
            if looked >= SCAN_ENTRIES_MAX:
                return found, batch.last_seq
        return found, None

    def entries_at(self, team: str, seqs: Iterable[int]) -> list[Entry]:
        """Return the entries there are at `seqs`."""
        wanted = sorted(set(seqs))
        return [
            entry
            for batch in self._batches(team, wanted)
            for entry in self._entries(batch)
            if entry.seq in wanted
        ]

    def bodies_at(self, team: str, seqs: Sequence[int]) -> dict[int, Body]:
        """Return the bodies there are of the entries at `seqs`."""
        wanted = set(seqs)
        found = {
            body.seq: Body(salt=body.salt, body=body.body)
            for batch in self._batches(team, seqs)
            for body in journal.bodies(batch)
            if body.seq in wanted
        }
        rows = self._for_each(
            "select seq, salt, body from large_body where team = ? and seq = ?",
            [(team, seq) for seq in wanted - found.keys()],
        )
        return found | {seq: Body(salt=salt, body=body) for seq, salt, body in rows}

    def sizes_at(self, team: str, seqs: Sequence[int]) -> dict[int, int]:
        """Return how many bytes the large bodies of the entries at `seqs` have. No body is read."""
        rows = self._for_each(
            "select seq, length(body) from large_body where team = ? and seq = ?",
            [(team, seq) for seq in seqs],
        )
        return {seq: size for seq, size in rows}  # noqa: C416  # rows are of any columns

    def kept_bodies(
        self, team: str, wanted: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], Body]:
        """Return the bodies there are of (handoff id, version) whose entries were pruned."""
        rows = self._for_each(
            "select handoff_id, version, salt, body from kept_body"
            " where team = ? and handoff_id = ? and version = ?",
            [(team, *key) for key in wanted],
        )
        return {(row[0], row[1]): Body(salt=row[2], body=row[3]) for row in rows}

    def trail(self, team: str, handoff_id: str) -> list[int]:
        """Return the places of a handoff's events, as the tables have them."""
        key = (team, handoff_id)
        rows = self._connection.execute(
            "select seqs from trail where team = ? and handoff_id = ? order by from_version", key
        )
        seqs = [seq for (part,) in list(rows) for seq in unpacked(part)]
        last = self._value("select seqs from handoff where team = ? and id = ?", *key)
        return seqs if last is None else [*seqs, *unpacked(last)]

    def mentions(self, team: str, about: Iterable[str]) -> list[int]:
        """Return the places of entries about these, which are no events of a handoff."""
        rows = self._for_each(
            "select seq from mention where team = ? and about = ?", [(team, each) for each in about]
        )
        return [seq for (seq,) in rows]

    def chain(self, team: str, correlation_id: str) -> list[str]:
        """Return the handoffs of a chain."""
        rows = self._connection.execute(
            "select id from handoff where team = ? and correlation_id = ?", (team, correlation_id)
        )
        return [handoff_id for (handoff_id,) in rows]

    def horizon(self, team: str) -> Horizon | None:
        """Return where a team's log begins, if it was pruned."""
        return current_horizon(self._connection, team)

    def _batches(self, team: str, seqs: Iterable[int]) -> list[Batch]:
        """Return the batches that have the entries at `seqs`, in the order of the log."""
        found: list[Batch] = []
        for seq in sorted(set(seqs)):
            if found and seq <= found[-1].last_seq:
                continue
            if (batch := batch_at(self._connection, team, seq)) is not None:
                found.append(batch)
        return found

    def _entries(self, batch: Batch) -> list[Entry]:
        key = (batch.team, batch.last_seq)
        decoded = self._decoded.get(key)
        if decoded is None:
            decoded = self._decoded[key] = journal.entries(batch)
            while len(self._decoded) > _BATCHES_MAX:
                del self._decoded[next(iter(self._decoded))]
        return decoded

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

    def is_there(self) -> None:
        """Ask the file for something, so that one that cannot be read says so."""
        self._connection.pragma("schema_version")

    # --- statements ---

    def _for_each(self, sql: str, bindings: Iterable[Sequence[Any]]) -> Iterable[Any]:
        """Run `sql` for each of `bindings`; return all the rows."""
        return self._connection.executemany(sql, bindings)

    def _value(self, sql: str, *bound: Any) -> Any:
        """Return the one value that `sql` selects, None if there is no row."""
        row = self._connection.execute(sql, bound).fetchone()
        return row[0] if row else None


# --- statements that write ----------------------------------------------------------------------


def _write_behind(writer: Cursor, behind: Slice) -> None:
    """Write rows and inbox items that earlier commits have left."""
    rows = behind.rows
    parties = [party for each in rows if each.parties for party in party_columns(each.row.handoff)]
    trails = [
        (each.row.handoff.team, each.row.handoff.id, first, packed(seqs))
        for each in rows
        for first, seqs in each.overflow
    ]
    _write(writer, _UPSERT_HANDOFFS, [handoff_columns(each) for each in rows])
    _write(writer, _INSERT_PARTIES, parties)
    if trails:
        writer.executemany("insert or replace into trail values (?, ?, ?, ?)", trails)
    items = [(team, reader, *columns_of(item)) for team, reader, item in behind.mail]
    _write(writer, _INSERT_ITEMS, items)
    if behind.watermarks:
        writer.executemany("insert or replace into watermark values (?, ?)", behind.watermarks)


def _write_known(writer: Cursor, changes: Changes) -> None:
    """Write what is known of a team's agents and ways in."""
    run = writer.executemany
    if changes.agents:
        run(_PUT_AGENT, [agent_columns(agent) for agent, _ in changes.agents])
        sent = [(agent.team, agent.id, agent.version, sent) for agent, sent in changes.agents]
        run(_KEEP_MANIFEST, sent)
    if changes.tokens:
        run(_PUT_TOKEN, map(columns_of, changes.tokens))
    if changes.records:
        run(_PUT_RECORD, map(columns_of, changes.records))
    if changes.records_gone:
        run("delete from record where team = ? and kind = ? and id = ?", changes.records_gone)


_ROWS: Final = 16
"""Rows that are written with one statement, where there are as many: to run one takes as long as a row does."""


def _insert(into: str, columns: int, otherwise: str = "") -> tuple[str, str]:
    """Return the statement that inserts one row, and the one that inserts `_ROWS`."""
    row = f"({','.join('?' * columns)})"
    # On one line: the text of a statement is hashed each time that it is run.
    into, otherwise = f"insert {into} values ", " ".join(otherwise.split())  # noqa: S608  # constants
    return f"{into}{row} {otherwise}", f"{into}{','.join([row] * _ROWS)} {otherwise}"


def _write(writer: Cursor, insert: tuple[str, str], rows: Sequence[Columns]) -> None:
    """Insert rows of one table."""
    one, many = insert
    alone = len(rows) % _ROWS
    for first in range(0, len(rows) - alone, _ROWS):
        writer.execute(many, list(chain.from_iterable(rows[first : first + _ROWS])))
    if alone:
        writer.executemany(one, rows[-alone:])


_INSERT_BATCH: Final = "insert into journal values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_LARGE: Final = "insert into large_body values (?, ?, ?, ?)"
_INSERT_PARTIES: Final = _insert("or ignore into party", 3)
_INSERT_ITEMS: Final = _insert("or ignore into inbox", 9)
_PUT_KEYS: Final = _insert("or replace into idempotency_key", 5)
_DROP_PROCESS: Final = "delete from process where team = ? and id = ?"
_PUT_PROCESS: Final = "insert or replace into process values (?, ?, ?, ?, ?)"
_PUT_AGENT: Final = "insert or replace into agent values (?, ?, ?, ?)"
# A version is what was sent first under its number: it does not change afterwards.
_KEEP_MANIFEST: Final = "insert into manifest values (?, ?, ?, ?) on conflict do nothing"
_PUT_TOKEN: Final = "insert or replace into token values (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S105  # no secret
_PUT_RECORD: Final = "insert or replace into record (team, kind, id, json) values (?, ?, ?, ?)"
_UPSERT_COMMANDS: Final = _insert(
    "into command",
    5,
    " on conflict (team, actor, id) do update set seqs = command.seqs || excluded.seqs",
)
# Sender, origin and correlation are as the offer made them. Naming them would rewrite their
# indexes each time.
_UPSERT_HANDOFFS: Final = _insert(
    "into handoff",
    18,
    """ on conflict (team, id) do update set
        applied_seq = excluded.applied_seq, state = excluded.state, recipient = excluded.recipient,
        process = excluded.process, due_at = excluded.due_at, rank = excluded.rank,
        open = excluded.open, dead = excluded.dead, ended_at = excluded.ended_at,
        settled_at = excluded.settled_at, seqs_from = excluded.seqs_from, seqs = excluded.seqs,
        json = excluded.json
    """,
)

"""The PostgreSQL store: statements on a few connections, with the port's promises.

Statements that look many things up say in which order (`lateral`, `offset 0`): a plan that was made
when a table was empty would otherwise go through the whole of it later.

Units of work of one node take turns, those of several are ordered by what they lock (`transaction`).
What is remembered here between two of them is checked before anything that rests on it is kept:
another node may have changed it.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none
from msgspec.structs import replace

from nodrop.core.contract import Agent
from nodrop.core.errors import InvalidRequestError, StoreUnavailableError
from nodrop.core.model import Handoff
from nodrop.store import (
    Body,
    ConflictError,
    Copy,
    Horizon,
    Key,
    LogPage,
    Mail,
    Page,
    Process,
    Record,
    Team,
    Token,
)
from nodrop.stores.postgres.connection import (
    CONNECT_SECONDS_MAX,
    Broken,
    address_of,
    connect,
    open_pool,
    translated,
)
from nodrop.stores.postgres.doubt import was_kept
from nodrop.stores.postgres.driver import Connection, Pool
from nodrop.stores.postgres.known import Known
from nodrop.stores.postgres.migrations import VERSION, migrate, require
from nodrop.stores.postgres.pages import AFTER_ALL, entries_page, handoffs_page
from nodrop.stores.postgres.place import Place
from nodrop.stores.postgres.pruning import current_horizon, prune
from nodrop.stores.postgres.records import (
    columns_of,
    read_agent,
    read_body,
    read_entry,
    read_handoff,
    transposed,
    value_of,
)
from nodrop.stores.postgres.taking_in import Tables, take_in
from nodrop.stores.postgres.transaction import PostgresTransaction
from nodrop.stores.postgres.writing import Writer
from nodrop.wire.log import Entry, Head

T = TypeVar("T")

_KINDS_MAX: Final = 16
"""An entry has at most one item of a kind for one reader; there are fewer kinds than this."""


class PostgresStore:
    """Teams in one PostgreSQL database, which other nodes may serve at the same time."""

    def __init__(self, dsn: str, pool: Pool) -> None:
        """Take over open connections; see `open`."""
        self.dsn = dsn
        self.place = Place()
        """Among the other nodes. Kept up to date by `fleet`, if there is one."""
        self._pool = pool
        self._pooled = address_of(dsn).pooled
        self._closed = False
        self._readable_from = VERSION
        self._turn = asyncio.Lock()
        self._known = Known()
        self._careful = False
        """The last unit of work was refused: the next one believes nothing."""
        self._ends: dict[str, int] = {}
        """The last entry of each team that was written here."""

    @classmethod
    async def open(cls, dsn: str) -> Self:
        """Open the database at `dsn`, its tables made if missing.

        Raises:
            StoreUnavailableError: it cannot be reached, or is not a database for a relay.
            SchemaTooNewError: it is a later Nodrop's.
        """
        connection = await connect(dsn)
        try:
            if await connection.fetchval("show server_encoding") != "UTF8":
                raise StoreUnavailableError("the database must have the encoding UTF8")
            await migrate(connection)
        except (*Broken, asyncpg.PostgresError) as error:
            raise StoreUnavailableError(f"the database cannot be opened: {error}") from error
        finally:
            connection.terminate()
        return cls(dsn, await open_pool(dsn))

    async def take_in(self, tables: Tables) -> dict[str, int]:
        """Copy everything from another store, in one transaction; return how many rows there were.

        Raises:
            StoreUnavailableError: the database is not empty.
            RelayFaultError: a log does not hold, and nothing was taken in.
        """
        connection = await connect(self.dsn, answer_seconds_max=None)
        try:
            return await take_in(connection, tables)
        except (*Broken, asyncpg.PostgresError) as error:
            raise StoreUnavailableError(f"{type(error).__name__}: {error}") from error
        finally:
            connection.terminate()

    async def close(self) -> None:
        """Let go of the database."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._pool.close()
        except Broken:
            self._pool.terminate()

    def crash(self) -> None:
        """Let go of the database as a crash would: at once, and without a word."""
        self._closed = True
        self._pool.terminate()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def now_ns(self) -> int:
        """Return the database's time, which all nodes go by."""
        [[microseconds]] = await self._rows(
            "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
        )
        return microseconds * 1_000

    # --- units of work ---

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[PostgresTransaction]:
        """Open a unit of work. Those of one node take turns: each knows what the last one wrote."""
        async with self._turn, self._connected() as connection:
            place = self.place
            writer = Writer(
                node=place.node,
                heard=place.heard,
                channel=place.channel,
            )
            work = PostgresTransaction(connection, self._known, writer, careful=self._careful)
            try:
                yield work
            except BaseException:
                await _roll_back(connection, work)
                raise
            try:
                await self._keep(connection, work)
            except (asyncpg.SerializationError, asyncpg.UniqueViolationError) as error:
                self._careful = True
                self._known.forget(work.believed)
                if work.believed:  # somebody else has moved on what was taken for known
                    raise ConflictError(str(error)) from error
                raise
            except BaseException:
                self._careful = True
                self._known.clear()
                # Should it have been kept after all, it will be news to this node too.
                place.rename()
                raise
            work.tell()
            self._careful = False
            self._known.keep(work.handoffs)
            self._ends |= {team: last for team, (_, last) in work.written.items()}
            place.wrote(work.written, work.told)

    async def _keep(self, connection: Connection, work: PostgresTransaction) -> None:
        """Write and commit a unit of work, in one call if it has read nothing."""
        backend = None if self._pooled else connection.get_server_pid()
        try:
            await _to_the_end(asyncio.ensure_future(work.finish()))
        except Exception as error:
            if not isinstance(error, Broken):
                await _roll_back(connection, work)
                raise
            _drop(connection)  # nobody knows what it is in the middle of
            # The answer is lost, or the commit is. Which of the two the database knows.
            if not await was_kept(
                work, self.dsn, backend=backend, ends=self._ends, closed=lambda: self._closed
            ):
                raise

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Connection]:
        """Give a connection to one user, and translate what goes wrong on it."""
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        require(self._readable_from)
        connection = None
        try:
            connection = await self._pool.acquire(timeout=CONNECT_SECONDS_MAX)
            yield connection
        except Broken as error:
            if connection is not None:
                _drop(connection)
            # After a failover the other connections are as bad; each is replaced when next used.
            with suppress(*Broken):
                await self._pool.expire_connections()
            raise StoreUnavailableError(f"{type(error).__name__}: {error}") from error
        except Exception as error:
            meant = translated(error)
            if meant is None or meant is error:
                raise
            raise meant from error
        finally:
            if connection is not None:
                with suppress(*Broken):
                    await self._pool.release(connection, timeout=CONNECT_SECONDS_MAX)

    def require_schema(self, readable_from: int) -> None:
        """Serve no longer what this code would misread.

        Raises:
            SchemaTooNewError: from now on, whatever is asked.
        """
        self._readable_from = readable_from
        require(readable_from)

    # --- teams and agents ---

    async def create_team(self, team: Team) -> Team:
        """Keep `team` unless one of its name exists; return the one that is kept."""
        # Looked for first: an insert would wait for whoever appends to the team's log now.
        known = {each.id: each for each in await self.teams()}
        if team.id in known:
            return known[team.id]
        head = Head()
        await self._rows(
            "insert into team (id, digest_key, created_at, head_seq, head_hash)"
            " values ($1, $2, $3, $4, $5) on conflict do nothing",
            *columns_of(team),
            head.seq,
            head.hash,
        )
        return next(kept for kept in await self.teams() if kept.id == team.id)

    async def teams(self) -> Sequence[Team]:
        """Return every team."""
        rows = await self._rows("select id, digest_key, created_at from team order by id")
        return [value_of(Team, row) for row in rows]

    async def agents(self, team: str) -> Sequence[tuple[Agent, bytes]]:
        """Return every agent with its current manifest as sent, removed ones included."""
        rows = await self._rows(
            """
            select a.json, m.sent from agent a
            join manifest m on m.team = a.team and m.agent = a.id and m.version = a.version
            where a.team = $1 order by a.id
            """,
            team,
        )
        return [(read_agent(json), sent) for json, sent in rows]

    async def manifest(self, team: str, agent: str, version: int) -> bytes | None:
        """Return one version of a manifest as sent."""
        rows = await self._rows(
            "select sent from manifest where team = $1 and agent = $2 and version = $3",
            team,
            agent,
            version,
        )
        return rows[0][0] if rows else None

    async def tokens(self, team: str | None = None) -> Sequence[Token]:
        """Return every token, of one team or of all."""
        rows = await self._rows(
            "select team, id, secret_sha256, agent, role, label, created_at, revoked_at"
            " from token where team >= $1 and team <= $2 order by team, id",
            "" if team is None else team,
            AFTER_ALL if team is None else team,
        )
        return [value_of(Token, row) for row in rows]

    async def processes(self) -> Sequence[Process]:
        """Return every known process of every team."""
        rows = await self._rows(
            "select team, id, agent, heartbeat_ms, seen_at from process order by team, id"
        )
        return [value_of(Process, row) for row in rows]

    async def records(self, kind: str, *, of: Key | None = None) -> Sequence[Record]:
        """Return every record of a kind; or, of a team, those whose ids begin so."""
        first, last = ("", ""), (AFTER_ALL, "")
        if of is not None:
            first, last = of, (of[0], of[1] + AFTER_ALL)
        rows = await self._rows(
            "select team, kind, id, json from record where kind = $1"
            " and (team, id) >= ($2, $3) and (team, id) < ($4, $5) order by team, id",
            kind,
            *first,
            *last,
        )
        return [value_of(Record, row) for row in rows]

    # --- reading ---

    async def handoffs(self, keys: Sequence[Key]) -> Sequence[Handoff]:
        """Return the handoffs there are, in no particular order."""
        rows = await self._rows(
            "select h.json from unnest($1::text[], $2::text[]) u(team, id), lateral"
            " (select json from handoff where team = u.team and id = u.id offset 0) h",
            *transposed(list(keys), 2),
        )
        return [read_handoff(json) for (json,) in rows]

    def at_hand(self, key: Key) -> Handoff | None:
        """Return a handoff as this node last knew it; what others did since is news."""
        return self._known.look(key)

    def learn(self, handoffs: Sequence[Handoff]) -> None:
        """Know handoffs that others have changed."""
        self._known.keep(handoffs)

    async def resolve(self, team: str, reference: str) -> Sequence[str]:
        """Return at most two ids: of the handoff `sender/key`, or of those an id prefix fits."""
        sender, slash, key = reference.partition("/")
        if slash:
            rows = await self._rows(
                "select handoff_id from idempotency_key"
                " where team = $1 and sender = $2 and key = $3",
                team,
                sender,
                key,
            )
        else:
            rows = await self._rows(
                "select id from handoff where team = $1 and id >= $2 and id < $3"
                " order by id limit 2",
                team,
                reference,
                reference + AFTER_ALL,
            )
        return [handoff_id for (handoff_id,) in rows]

    async def list_handoffs(self, page: Page) -> Sequence[Handoff]:
        """Return a page of handoffs, newest first."""
        sql, bound = handoffs_page(page)
        return [read_handoff(json) for (json,) in await self._rows(sql, *bound)]

    async def bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], bytes]:
        """Return the bodies there are of (handoff id, version)."""
        rows = await self._rows(
            "select u.handoff_id, u.number, b.body"
            " from unnest($2::text[], $3::bigint[]) u(handoff_id, number), lateral"
            " (select body from body where team = $1 and handoff_id = u.handoff_id"
            " and number = u.number offset 0) b",
            team,
            *transposed(list(wanted), 2),
        )
        return {(handoff_id, version): read_body(body).body for handoff_id, version, body in rows}

    async def entry_bodies(self, team: str, seqs: Sequence[int]) -> Mapping[int, Body]:
        """Return the bodies there are of these entries."""
        rows = await self._rows(
            """
            select u.seq, b.body from unnest($2::bigint[]) u(seq), lateral (
                select seq, handoff_id, version from entry
                where team = $1 and seq = u.seq offset 0
            ) e, lateral (
                select body from body
                where team = $1 and number = coalesce(e.version, e.seq)
                    and handoff_id = case when e.version is null then '' else e.handoff_id end
                offset 0
            ) b
            """,
            team,
            list(seqs),
        )
        return {row[0]: read_body(row[1]) for row in rows}

    async def places(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Return the `seq` of (handoff id, version), where the log still has it."""
        rows = await self._rows(
            "select u.handoff_id, u.version, e.seq"
            " from unnest($2::text[], $3::bigint[]) u(handoff_id, version), lateral"
            " (select seq from entry where team = $1 and handoff_id = u.handoff_id"
            " and version = u.version offset 0) e",
            team,
            *transposed(list(wanted), 2),
        )
        return {(handoff_id, version): seq for handoff_id, version, seq in rows}

    async def log(self, page: LogPage) -> Sequence[Entry]:
        """Return a page of the log, oldest first."""
        entries: list[Entry] = []
        looked_to: int | None = page.after
        while looked_to is not None and len(entries) < page.limit:
            rest = replace(page, after=looked_to, limit=page.limit - len(entries))
            (sql, bound), looked_to = entries_page(rest)
            entries += [read_entry(tuple(row)) for row in await self._rows(sql, *bound)]
            if looked_to is not None and looked_to >= (await self.head(page.team)).seq:
                looked_to = None
        return entries

    async def head(self, team: str) -> Head:
        """Return the end of a team's log."""
        rows = await self._rows("select head_seq, head_hash from team where id = $1", team)
        return value_of(Head, rows[0]) if rows else Head()

    async def horizon(self, team: str) -> Horizon | None:
        """Return where a team's log begins, if it was pruned."""
        async with self._connected() as connection:
            return await current_horizon(connection, team)

    async def inbox(self, team: str, agent: str, *, after: int, limit: int) -> Sequence[Mail]:
        """Return what concerns `agent` after `after`, oldest first."""
        rows = await self._rows(
            "select seq, kind, at, actor, type, handoff_id, version from inbox"
            " where team = $1 and agent = $2 and seq > $3 order by seq, kind limit $4",
            team,
            agent,
            after,
            limit + _KINDS_MAX,
        )
        items = [value_of(Mail, row) for row in rows]
        # A reader goes on after the last `seq` it saw: a page must not end inside an entry.
        return [
            item for n, item in enumerate(items) if n < limit or item.seq == items[limit - 1].seq
        ]

    async def queued(self, team: str, agent: str) -> int:
        """Return how many unfinished handoffs `agent` is the recipient of."""
        [[count]] = await self._rows(
            "select count(*) from handoff where team = $1 and recipient = $2 and ended_at is null",
            team,
            agent,
        )
        return count

    async def unfinished(self) -> Sequence[tuple[str, str, str, int]]:
        """Return how many handoffs have no outcome yet, by (team, origin, recipient)."""
        rows = await self._rows(
            "select team, origin, recipient, count(*) from handoff"
            " where ended_at is null group by team, origin, recipient"
        )
        return [(team, origin, recipient, count) for team, origin, recipient, count in rows]

    async def next_due(self) -> int | None:
        """Return the earliest due time of all."""
        [[due_at]] = await self._rows("select min(due_at) from handoff where due_at is not null")
        return due_at

    # --- housekeeping ---

    async def erase(self, team: str, handoff_id: str) -> int:
        """Delete the bodies of a handoff; return how many there were.

        The server overwrites them when it vacuums; its write-ahead log and backups keep what they
        have (docs/postgres.md).
        """
        rows = await self._rows(
            "delete from body where team = $1 and handoff_id = $2 returning 1", team, handoff_id
        )
        return len(rows)

    async def prune(self, horizon: Horizon, *, forget_before: int) -> int:
        """Cut the log of a team at `horizon`; return how many entries went."""
        try:
            return await prune(self.step, horizon, forget_before=forget_before)
        finally:
            self._known.clear()

    async def backup(self, name: str) -> Copy:
        """Refuse: the server has tools of its own."""
        raise InvalidRequestError(
            f"PostgreSQL backs up its databases itself; there is no {name}",
            next_step=(
                'pg_dump --format=custom --file=nodrop.dump "$NODROP_STORE", or pg_basebackup; '
                "then restore it into an empty database, and hold that to a checkpoint you kept: "
                "nodrop verify --checkpoint FILE (docs/postgres.md)."
            ),
        )

    # --- statements ---

    async def ask(self, sql: str, *bound: Any) -> Sequence[Sequence[Any]]:
        """Return the rows of a statement of `fleet`."""
        return await self._rows(sql, *bound)

    async def step(self, do: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something in a transaction of its own."""
        async with self._connected() as connection, connection.transaction():
            return await do(connection)

    async def _rows(self, sql: str, *bound: Any) -> Sequence[Sequence[Any]]:
        """Return the rows of one statement, in a transaction of its own."""
        async with self._connected() as connection:
            try:
                return await connection.fetch(sql, *bound)
            except asyncpg.CharacterNotInRepertoireError:
                return []  # a NUL: nothing here is called that


async def _roll_back(connection: Connection, work: PostgresTransaction) -> None:
    """Undo what a block began. A connection on which that fails is not used again."""
    if not work.begun:
        return
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            await connection.execute("rollback")
    except (*Broken, asyncpg.PostgresError):
        _drop(connection)
    except asyncio.CancelledError:
        _drop(connection)
        raise


def _drop(connection: Connection) -> None:
    """End a connection; one that has ended already belongs to nobody."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


async def _to_the_end(future: "asyncio.Future[T]") -> T:
    """Wait until `future` is done even when cancelled meanwhile; then be cancelled.

    The driver bounds the wait. A commit that was given up could still be kept after whoever asked
    for it had looked.
    """
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from future.exception()
    return future.result()

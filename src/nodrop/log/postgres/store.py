"""The PostgreSQL store: state in memory over a journal that several nodes append to.

A unit of work is decided on what is in memory, and appended in one call that compares where the log
of each of its teams ends. If another node has appended meanwhile, nothing is kept and a
`ConflictError` says so; the next unit of work holds the ends of those logs while it decides, after
reading what follows in them, so that of two nodes on one team each gets its turn.

Reads look where the log ends before they answer from memory, many readers with one question.
"""

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final, Self, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none

from nodrop.log.port import (
    Changes,
    ConflictError,
    Copy,
    Horizon,
    Key,
    Loaded,
    Process,
    Record,
    Team,
    Token,
    Wanted,
)
from nodrop.log.postgres.connection import (
    CONNECT_SECONDS_MAX,
    Broken,
    address_of,
    connect,
    drop,
    is_open,
    open_pool,
    roll_back,
    translated,
)
from nodrop.log.postgres.doubt import to_the_end, was_kept
from nodrop.log.postgres.driver import Connection, Pool
from nodrop.log.postgres.migrations import VERSION, migrate, require
from nodrop.log.postgres.place import Place
from nodrop.log.postgres.pruning import erase, keep_bodies, prune
from nodrop.log.postgres.tables import BATCHES_MAX, End, Next, PostgresTables
from nodrop.log.postgres.taking_in import Source, take_in
from nodrop.log.postgres.writing import (
    About,
    Basis,
    check,
    gathered,
    known_changes,
    write,
)
from nodrop.log.records import columns_of
from nodrop.log.recovery import Replay
from nodrop.log.serving import JournaledStore
from nodrop.log.state import State, TeamState
from nodrop.log.work import Commit, Work
from nodrop.model.contract import Agent
from nodrop.model.errors import InvalidRequestError, NodropError, StoreUnavailableError
from nodrop.protocol.entries import Head

T = TypeVar("T")
log = logging.getLogger("nodrop.log.port")

REST_SECONDS: Final = 1.0
"""After so long without a commit, the rows that are behind are written."""
PIECE_ROWS: Final = 500
"""How many rows are written at a time when nothing else is."""
MERGED_ROWS_MAX: Final = 200
"""With more rows behind than this, a list has them written first."""
_FLUSHES_MAX: Final = 5
"""How often rows are tried to be written while other nodes append to the same log."""


class Unheard:
    """A batch that was folded here, and that the engine has not been told of."""

    def __init__(self, replay: Replay, changed: Sequence[tuple[str, str]]) -> None:
        self.replay = replay
        self.changed = changed
        """(kind, id) of the agents, tokens and records that changed with it."""


class PostgresStore(JournaledStore):
    """Teams in one PostgreSQL database, which other nodes may serve at the same time."""

    def __init__(self, dsn: str, pool: Pool) -> None:
        """Take over open connections; see `open`."""
        self.dsn = dsn
        self.place = Place()
        """Among the other nodes. Kept up to date by `fleet`, if there is one."""
        self.tables = PostgresTables(self.ask)
        super().__init__(State(), self.tables)
        self.unheard: dict[str, list[Unheard]] = {}
        """By team: what others appended, in order, until it is said to be heard."""
        self.anew: set[str] = set()
        """Teams whose log is not the one that was known, after a failover that lost its end."""
        self._pool = pool
        self._pooled = address_of(dsn).pooled
        self._closed = False
        self._readable_from = VERSION
        self._turn = asyncio.Lock()
        self._folding = asyncio.Lock()
        """Held from sending a commit until it is merged, and while other nodes' batches are folded."""
        self._contended: set[str] = set()
        """Teams that others append to: the next unit of work holds the ends of their logs."""
        self._look: _Look | None = None
        self._looking = asyncio.Lock()
        self._own: Connection | None = None
        """The connection for commits; others are for questions. Used by the holder of `_folding`."""
        self._own_is_old = False
        """Whether it is to be replaced before it is used again."""
        self._resting: asyncio.TimerHandle | None = None
        self._active_at = 0.0
        """When something was last appended or folded."""
        self._flushing: asyncio.Task[None] | None = None

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
        store = cls(dsn, await open_pool(dsn))
        try:
            await store.catch_up()
        except BaseException:
            store.crash()
            raise
        return store

    async def take_in(self, source: Source) -> dict[str, int]:
        """Copy everything from another store, in one transaction; return how many rows there were.

        Raises:
            StoreUnavailableError: the database is not empty.
            RelayFaultError: a log does not hold, and nothing was taken in.
        """
        connection = await connect(self.dsn, answer_seconds_max=None)
        try:
            counts = await take_in(connection, source)
        except (*Broken, asyncpg.PostgresError) as error:
            raise StoreUnavailableError(f"{type(error).__name__}: {error}") from error
        finally:
            connection.terminate()
        await self.catch_up()
        return counts

    async def close(self) -> None:
        """Write the rows that are behind, if that is possible, and let go of the database."""
        if self._closed:
            return
        await self._stop_resting()
        with suppress(NodropError, ConflictError, TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                for team in list(self._state.teams):
                    await self.flush(team)
        self._closed = True
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                async with self._folding:
                    await self._let_go()
                await self._pool.close()
        except Broken:
            self._pool.terminate()

    def crash(self) -> None:
        """Let go of the database as a crash would: at once, and without a word."""
        self._closed = True
        if self._resting is not None:
            self._resting.cancel()
        self._pool.terminate()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def now_ns(self) -> int:
        """Return the database's time, which all nodes go by."""
        [[microseconds]] = await self.ask(
            "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
        )
        return microseconds * 1_000

    # --- units of work ---

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator["PostgresTransaction"]:
        """Open a unit of work. Those of one node take turns: each knows what the last one wrote."""
        async with self._turn:
            if self._closed:
                raise StoreUnavailableError("the store is closed")
            require(self._readable_from)
            contended = self._contended
            async with self._holding(contended) if contended else nullcontext() as held:
                work = PostgresTransaction(
                    self, self._state, self.place.heard, careful=bool(contended)
                )
                try:
                    yield work
                    if work.basis.heads or work.appended:
                        await to_the_end(asyncio.ensure_future(self._keep(work, held)))
                except ConflictError:
                    self._contended = self._contended | set(work.basis.heads)
                    raise

    @asynccontextmanager
    async def _holding(self, teams: Collection[str]) -> AsyncGenerator["_Held"]:
        """Hold the ends of logs, with everything before them in memory, until the block ends."""
        async with self._connected() as connection:
            held = _Held(connection)
            await connection.execute("begin")
            try:
                await connection.fetch(_HOLD, sorted(teams))
                async with self._folding:
                    found = [await self._fold(end) for end in await self.tables.ends(teams)]
                if not any(found):
                    self._contended = set()  # nobody else is there any more
                yield held
            finally:
                if not held.over:
                    await roll_back(connection)

    async def _keep(self, work: "PostgresTransaction", held: "_Held | None") -> None:
        """Compare and append, or only compare where nothing is written; merge what was kept."""
        basis = work.basis
        async with self._folding:
            work.require_unmoved()
            if not work.appended:
                async with (
                    self._connected() if held is None else nullcontext(held.connection) as it
                ):
                    if not await check(it, basis):
                        raise ConflictError("another node has written to the log")
                return
            commit, changes = work.commit(behind=True), gathered(work.appended)
            about = known_changes(changes)
            if held is None:
                own = await self._own_connection()
                await self._send(own, commit, changes, about, basis, begun=False)
            else:
                held.over = True
                await self._send(held.connection, commit, changes, about, basis, begun=True)
            work.merge()
            if about and self.place.heard is not None:
                self.place.hear(
                    {e.batch.team: e.head.seq for e in commit.journal if e.batch.team in about}
                )
        self._rest()

    async def _own_connection(self) -> Connection:
        """Return the connection that commits go over, one after the other."""
        own = self._own
        if own is not None and not self._own_is_old and is_open(own):
            return own
        if own is not None:
            drop(own)
        await self._let_go()
        try:
            self._own = await self._pool.acquire(timeout=CONNECT_SECONDS_MAX)
        except Broken as error:
            raise await self._unusable(error) from error
        except asyncpg.PostgresError as error:
            raise translated(error) or error from error
        self._own_is_old = False
        return self._own

    async def _let_go(self) -> None:
        """Give the connection that commits go over back."""
        own, self._own = self._own, None
        if own is not None:
            with suppress(*Broken):
                await self._pool.release(own, timeout=CONNECT_SECONDS_MAX)

    async def _send(
        self,
        connection: Connection,
        commit: Commit,
        changes: Changes,
        about: About | None,
        basis: Basis,
        *,
        begun: bool,
    ) -> None:
        """Write and commit: one call, unless it is inside of a transaction or needs one.

        Raises:
            ConflictError: another node has appended first. Nothing is kept.
            StoreUnavailableError: nobody knows whether it is kept, or it is not.
        """
        backend = None if self._pooled else connection.get_server_pid()
        try:
            if about is not None and not begun:
                begun = True
                await connection.execute("begin")
            await write(connection, commit, changes, about, basis, self.place)
            if begun:
                await connection.execute("commit")
        except Exception as error:
            if not isinstance(error, Broken):
                if begun:
                    await roll_back(connection)
                meant = translated(error)
                raise error if meant is None else meant from error
            drop(connection)  # nobody knows what it is in the middle of
            # The answer is lost, or the commit is. Which of the two the database knows.
            if not await was_kept(
                commit.journal, self.dsn, backend=backend, closed=lambda: self._closed
            ):
                raise await self._unusable(error) from error

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
                drop(connection)
            raise await self._unusable(error) from error
        except Exception as error:
            meant = translated(error)
            if meant is None or meant is error:
                raise
            raise meant from error
        finally:
            if connection is not None:
                with suppress(*Broken):
                    await self._pool.release(connection, timeout=CONNECT_SECONDS_MAX)

    async def _unusable(self, error: Exception) -> StoreUnavailableError:
        """Return what it means that a connection broke.

        After a failover the other connections are as bad; each is replaced when next used.
        """
        self._own_is_old = True
        with suppress(*Broken):
            await self._pool.expire_connections()
        return StoreUnavailableError(f"{type(error).__name__}: {error}")

    def require_schema(self, readable_from: int) -> None:
        """Serve no longer what this code would misread.

        Raises:
            SchemaTooNewError: from now on, whatever is asked.
        """
        self._readable_from = readable_from
        require(readable_from)

    # --- following the log ---

    async def _settle(self, teams: Iterable[str]) -> None:
        """Have in memory everything that was committed to these teams until now.

        All who ask while a look is under way share the next one.
        """
        if self._look is None:
            self._look = _Look()
            self._look.task = asyncio.ensure_future(self._look_again(self._look))
        look = self._look
        look.teams.update(teams)
        assert look.task is not None, "it was begun above"
        await asyncio.shield(look.task)

    async def _look_again(self, look: "_Look") -> None:
        async with self._looking:
            self._look = None  # what is committed from now on is for another look
            if look.teams:
                ends = {end.team: end for end in await self.tables.ends(look.teams)}
                moved = [team for team, end in ends.items() if self._is_new(end)]
                moved += [team for team in look.teams - ends.keys() if team in self._state.teams]
                if moved:
                    await self.catch_up(moved)

    def _is_new(self, end: End) -> bool:
        team = self._state.teams.get(end.team)
        return team is None or (team.head, team.horizon) != (end.head, end.horizon)

    async def follow(self) -> list[End]:
        """Look where all logs end, fold what is new, and return where they ended."""
        ends = await self.tables.ends()
        moved = [end.team for end in ends if self._is_new(end)]
        if moved:
            await self.catch_up(moved)
        return ends

    async def catch_up(self, teams: Collection[str] | None = None) -> list[End]:
        """Fold what other nodes have appended to these teams, or to all; return where they end."""
        async with self._folding:
            ends = await self.tables.ends(teams)
            for end in ends:
                await self._fold(end)
            for name in teams or list(self._state.teams):
                if name not in {end.team for end in ends}:
                    self._state.drop(name)
        return ends

    async def _fold(self, end: End) -> bool:
        """Fold what a log has beyond memory; return whether there was something.

        Whoever calls has `_folding`, so that no commit of this node is under way.
        """
        team = self._state.teams.get(end.team)
        if team is None:
            await self._recover(end, news=True)
            return True
        before = team.head
        if not await self._fold_on(end, team):
            log.warning("the log of team %s is not what it was: reading it again", end.team)
            self._state.drop(end.team)
            self.unheard.pop(end.team, None)
            self.anew.add(end.team)
            self.place.unhear(end.team)
            await self._recover(end, news=False)
            return True
        self._state.covered(end.team, min(end.watermark, team.head.seq))
        if end.horizon > team.horizon:
            team.horizon = end.horizon
            self._state.forget_closed(end.team, end.horizon)
        if team.head == before:
            return False
        self._rest()
        return True

    async def _fold_on(self, end: End, team: TeamState) -> bool:
        """Fold batches as long as each follows; return whether all did, up to the end."""
        if team.head.seq >= end.head.seq:
            return team.head == end.head
        while team.head.seq < end.head.seq:
            batches = await self.tables.batches_after(end.team, team.head.seq)
            if not batches:
                return False
            for each in batches:
                batch = each.batch
                follows = (batch.first_seq - 1, batch.prev_hash.hex())
                if follows != (team.head.seq, team.head.hash):
                    return False
                await self._replay(each, news=True)
        return True

    async def _recover(self, end: End, *, news: bool) -> None:
        """Have a team in memory: what is open, and what its rows do not have yet."""
        name = end.team
        watermark = max(end.watermark, end.horizon)
        team = TeamState(Head(seq=watermark), watermark=watermark, horizon=end.horizon)
        self._state.teams[name] = team
        try:
            for handoff_id, stub in await self.tables.stubs(name):
                self._state.admit_stub((name, handoff_id), stub)
            while True:
                batches = await self.tables.batches_after(name, team.head.seq)
                for each in batches:
                    await self._replay(each, news=news)
                if len(batches) < BATCHES_MAX:
                    break
            _require_end(team, end)
            if team.head.seq == end.head.seq:
                team.head = end.head
        except BaseException:
            self._state.drop(name)
            raise
        self._rest()

    async def _replay(self, each: Next, *, news: bool) -> None:
        replay = Replay(each.batch)
        replay.fold(self._state, await self.tables.kept(replay.missing(self._state)))
        if news and self.place.heard is not None:
            self.unheard.setdefault(each.batch.team, []).append(Unheard(replay, each.changed))

    # --- what is behind ---

    def _rest(self) -> None:
        """Write what is behind once there has been no commit for a while."""
        loop = asyncio.get_running_loop()
        self._active_at = loop.time()
        if self._resting is None and not self._closed:
            self._resting = loop.call_later(REST_SECONDS, self._write_behind)

    def _write_behind(self) -> None:
        loop, self._resting = asyncio.get_running_loop(), None
        if loop.time() < self._active_at + REST_SECONDS:
            self._resting = loop.call_at(self._active_at + REST_SECONDS, self._write_behind)
        elif self._flushing is None or self._flushing.done():
            self._flushing = asyncio.ensure_future(self._flush_all())

    async def _flush_all(self) -> None:
        behind = [name for name, t in self._state.teams.items() if t.unwritten or t.mail]
        try:
            await self._settle(behind)
            for name in behind:
                await self.flush(name)
        except (NodropError, ConflictError) as error:
            if not self._closed:
                log.warning("rows stay in memory for now: %s", error)

    async def _stop_resting(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait([self._flushing])

    async def _flush(self, team: str) -> None:
        known = self._state.teams.get(team)
        if known is not None and len(known.unwritten) > MERGED_ROWS_MAX:
            with suppress(ConflictError, NodropError):  # a list merges what is behind
                await self.flush(team)

    async def flush(self, team: str) -> None:
        """Write everything of a team that is behind now, a piece at a time.

        Raises:
            ConflictError: other nodes append all the time. What is left stays in memory.
        """
        tries = 0
        known = self._state.teams.get(team)
        end = known.head.seq if known else 0
        while (known := self._state.teams.get(team)) is not None and known.watermark < end:
            try:
                await to_the_end(asyncio.ensure_future(self._flush_piece(team)))
            except ConflictError:
                tries += 1
                if tries >= _FLUSHES_MAX:
                    raise
                await self.catch_up([team])

    async def _flush_piece(self, team: str) -> None:
        async with self._turn, self._folding:
            known = self._state.teams.get(team)
            if known is None:
                return
            piece = self._state.piece_of(team, PIECE_ROWS)
            if piece.rows or piece.mail or piece.watermarks:
                own = await self._own_connection()
                basis = Basis(heads={team: known.head})
                await self._send(own, Commit(behind=piece), _NO_CHANGES, None, basis, begun=False)
                self._state.wrote(piece)

    # --- teams and agents ---

    async def create_team(self, team: Team) -> Team:
        """Keep `team` unless one of its name exists; return the one that is kept."""
        # Looked for first: an insert would wait for whoever appends to the team's log now.
        known = {each.id: each for each in await self.teams()}
        if team.id not in known:
            await self.ask(
                "insert into team (id, digest_key, created_at) values ($1, $2, $3)"
                " on conflict do nothing",
                *columns_of(team),
            )
            known = {each.id: each for each in await self.teams()}
        await self._settle([team.id])
        return known[team.id]

    async def teams(self) -> Sequence[Team]:
        """Return every team."""
        return await self.tables.teams()

    async def agents(self, team: str) -> Sequence[tuple[Agent, bytes]]:
        """Return every agent with its current manifest as sent, removed ones included."""
        return await self.tables.agents(team)

    async def manifest(self, team: str, agent: str, version: int) -> bytes | None:
        """Return one version of a manifest as sent."""
        return await self.tables.manifest(team, agent, version)

    async def tokens(self, team: str | None = None) -> Sequence[Token]:
        """Return every token, of one team or of all."""
        return await self.tables.tokens(team)

    async def processes(self) -> Sequence[Process]:
        """Return every known process of every team."""
        return await self.tables.processes()

    async def records(self, kind: str, *, of: Key | None = None) -> Sequence[Record]:
        """Return every record of a kind; or, of a team, those whose ids begin so."""
        return await self.tables.records(kind, of)

    # --- reading ---

    async def head(self, team: str) -> Head:
        """Return the end of a team's log."""
        await self._settle([team])
        known = self._state.teams.get(team)
        return Head() if known is None else known.head

    async def horizon(self, team: str) -> Horizon | None:
        """Return where a team's log begins, if it was pruned."""
        return await self.tables.horizon(team)

    async def next_due(self) -> int | None:
        """Return the earliest due time of all."""
        await self.follow()
        return self._state.next_due()

    def waiting(self, team: str, agent: str) -> bool:
        """Whether there is something that `agent` may take."""
        return bool(self._state.claimable(team, agent, 1))

    async def known(self, team: str) -> Head | None:
        """Return where a team's log ends as it is in memory, read first if it is not; None: no team."""
        if team not in self._state.teams:
            await self._settle([team])
        found = self._state.teams.get(team)
        return None if found is None else found.head

    # --- housekeeping ---

    async def shed(self) -> None:
        """Drop from memory what can be read again."""
        async with self._turn, self._folding:
            self._state.shed()

    async def erase(self, team: str, handoff_id: str) -> int:
        """Delete the bodies of a handoff; return how many there were.

        The server overwrites them when it vacuums; its write-ahead log and backups keep what they
        have (docs/postgres.md).
        """
        await self._settle([team])
        seqs = await self._trail(team, handoff_id)
        return await self.step(lambda connection: erase(connection, team, handoff_id, seqs))

    async def prune(self, horizon: Horizon, *, forget_before: int) -> int:
        """Cut the log of a team at `horizon`; return how many entries went."""
        team = horizon.team
        await self._settle([team])
        await self.flush(team)
        going_on: list[int] = []
        for handoff in horizon.snapshots:
            going_on += [s for s in await self._trail(team, handoff.id) if s <= horizon.seq]
        going_on.sort()
        for some in range(0, len(going_on), PIECE_ROWS):
            seqs = going_on[some : some + PIECE_ROWS]
            await self.step(partial(keep_bodies, team=team, seqs=seqs))
        count = await prune(self.step, horizon, forget_before=forget_before)
        await self.catch_up([team])
        self._state.forget_closed(team, horizon.seq)
        return count

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
        """Return the rows of one statement, in a transaction of its own."""
        async with self._connected() as connection:
            try:
                return await connection.fetch(sql, *bound)
            except asyncpg.CharacterNotInRepertoireError:
                return []  # a NUL: nothing here is called that

    async def step(self, do: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something in a transaction of its own."""
        async with self._connected() as connection, connection.transaction():
            return await do(connection)


class PostgresTransaction(Work[PostgresStore]):
    """A unit of work that remembers what it rests on, so that it can be compared."""

    def __init__(
        self,
        store: PostgresStore,
        state: State,
        heard: Mapping[str, int] | None,
        *,
        careful: bool,
    ) -> None:
        """Begin; `careful` looks up commands and keys instead of believing that they are new."""
        super().__init__(store, state)
        self.basis = Basis(heard=heard)
        self._careful = careful

    async def _rest_on(self, teams: Iterable[str]) -> None:
        heads = self.basis.heads
        for team in teams:
            if team not in heads:
                head = await self._store.known(team)
                if head is not None:
                    heads[team] = head

    async def load(self, wanted: Wanted, *, names: bool = True) -> Loaded:
        """Return what there is of `wanted`; that names are new is believed, and compared later."""
        of = chain(wanted.handoffs, wanted.keys, wanted.commands, wanted.entries, wanted.processes)
        await self._rest_on(set(map(_TEAM, of)))
        loaded = await super().load(wanted, names=names and self._careful)
        if not self._careful:
            self.basis.commands.update(wanted.commands)
            self.basis.keys.update(wanted.keys)
        if loaded.processes:
            self.basis.processes |= {key: p.seen_at for key, p in loaded.processes.items()}
        return loaded

    async def append(self, changes: Changes) -> Sequence[int]:
        """Gather `changes` for the commit; return the `seq` that each entry will have."""
        if changes == _NO_CHANGES:
            return []
        await self._rest_on(set(map(_TEAM_OF, changes.entries)))
        self.require_unmoved()
        return await super().append(changes)

    def require_unmoved(self) -> None:
        """Refuse to go on where a log has been read further since it was first looked at.

        Raises:
            ConflictError: that is so.
        """
        for team, head in self.basis.heads.items():
            known = self._state.teams.get(team)
            if known is None or known.head != head:
                raise ConflictError(f"the log of {team} has moved on")


class _Held:
    """A connection inside of a transaction that holds the ends of logs."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.over = False
        """Whether the transaction was committed or rolled back."""


class _Look:
    """A look at where logs end, which several readers wait for."""

    def __init__(self) -> None:
        self.teams: set[str] = set()
        self.task: asyncio.Future[None] | None = None


_NO_CHANGES: Final = Changes()
_TEAM: Final = itemgetter(0)
_TEAM_OF: Final = attrgetter("team")
_HOLD: Final = """
    select t.id from unnest($1::text[]) with ordinality u(id, n), lateral (
        select id from team where id = u.id for no key update
    ) t
"""


def _require_end(team: TeamState, end: End) -> None:
    if team.head.seq < end.head.seq:
        raise StoreUnavailableError(
            f"the log of {end.team} ends at {team.head.seq}, and should at {end.head.seq}: "
            "the end of the log is missing",
            next_step="Restore the whole database from a backup.",
        )

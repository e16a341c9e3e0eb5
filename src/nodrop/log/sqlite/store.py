"""The SQLite store: state in memory over a `Database`, with the port's promises.

Units of work take turns, gather what they append in memory, and write it in one visit to the file: a
row of the journal per team, and a slice of the rows that earlier commits have left. Open handoffs are
found in memory; the file is asked for what was not used lately. Reads wait for the visits before them
and never for a block.

Short visits are made on the event loop for as long as the disk is quick, all others on a thread of the
store's own: a visit of a tenth of a millisecond is not worth two changes of thread, and one that waits
for a slow disk must not hold up the loop. Which of the two this disk gives is measured as we go.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Self, TypeVar

import apsw

from nodrop.log.journal import Tail
from nodrop.log.port import (
    Body,
    Copy,
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
from nodrop.log.serving import JournaledStore, page_fits
from nodrop.log.sqlite.backup import DIRECTORY, Copying
from nodrop.log.sqlite.connection import translated
from nodrop.log.sqlite.database import CHECKPOINT_PAGES, Database
from nodrop.log.state import NOTHING_BEHIND, Kept, Slice, State, TeamState
from nodrop.log.tables import Name
from nodrop.log.work import Work
from nodrop.model.contract import Agent
from nodrop.model.errors import (
    NodropError,
    StoreCorruptError,
    StoreUnavailableError,
    UnavailableError,
)
from nodrop.model.handoff import Handoff
from nodrop.protocol.entries import Entry, Head

T = TypeVar("T")
log = logging.getLogger("nodrop.log.port")

REST_SECONDS: Final = 1.0
"""The rows that are behind are written when a look every so often finds that there was no commit since."""
GIVE_BACK_SECONDS: Final = 30.0
"""So long after a commit the memory of pages is given back, if it is much."""
CHECK_SECONDS_MAX: Final = 0.5
"""How long a start looks for damage; `nodrop doctor` looks at everything."""
QUICK_SECONDS_MAX: Final = 0.003
"""Visits that take longer than this on average are made on the thread."""
_WEIGHT: Final = 0.1
"""Of the last visit in that average."""
ACTORS_MAX: Final = 10_000
"""Actors whose greatest command id is kept."""


class SQLiteStore(JournaledStore):
    """Teams in one SQLite file, which it holds for itself until `close`."""

    quick_seconds_max = QUICK_SECONDS_MAX

    def __init__(self, database: Database, state: State, thread: ThreadPoolExecutor) -> None:
        """Take over an open database and the one thread that it was opened on; see `open`."""
        self.greatest: dict[Key, str] = {}
        """The greatest command id of each team and actor, as the file has it; empty where there is none.

        A greater one is new without asking the file. Most ids begin with the time they were made at.
        """
        super().__init__(state, _Visits(self, database))
        self._database = database
        self._thread = thread
        self._tail = Tail()
        """What was committed last, for followers."""
        self.turn = asyncio.Lock()
        """Held by a unit of work for as long as it lasts."""
        self._visit_seconds = 0.0
        """A moving average of how long visits take."""
        self._on_thread: deque[Future[Any]] = deque()
        """Visits that the thread may not have finished, oldest first."""
        self.damage: str | None = None
        """What was found wrong with the file. Nothing is written to it from then on."""
        self.in_doubt = False
        """Whether a commit failed, and what became of it was not found out yet."""
        self._doubts = 0
        """Commits that failed: whether one was kept only the file knows."""
        self._flushing: dict[str, asyncio.Task[None]] = {}
        self._keeping_up: asyncio.Task[None] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._rested = True
        """Whether there was no commit since `_resting` was set."""
        self._giving_back: asyncio.TimerHandle | None = None
        self._closed = False

    @classmethod
    async def open(
        cls, path: str | Path, *, vfs: str | None = None, synchronous: str = "FULL"
    ) -> Self:
        """Open the file at `path`, made if missing.

        `vfs` and `synchronous` are for fault tests: the first to cut the power, the second to show
        that such a test notices when a commit is not on disk.

        Raises:
            StoreInUseError: another relay serves the file.
            StoreCorruptError: it is damaged.
            StoreUnavailableError: it cannot be opened, or is not a file for this Nodrop.
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nodrop-sqlite")
        opens = partial(_open, Path(path), vfs=vfs, synchronous=synchronous)
        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(thread, opens)
        try:
            return cls(*await _to_the_end(opening), thread)
        except BaseException:
            if opening.exception() is None:  # cancelled when it was open already
                await _to_the_end(loop.run_in_executor(thread, opening.result()[0].close))
            thread.shutdown(wait=False)
            raise

    async def close(self) -> None:
        """Let go of the file. A unit of work that has not begun to commit is refused."""
        if self._closed:
            return
        for timer in (self._resting, self._giving_back):
            if timer is not None:
                timer.cancel()
        behind = [self._state.all_of(team) for team in self._state.teams]
        left = self.in_doubt or self.damage is not None
        closing = self._submit(_close, self._database, () if left else behind)
        self._closed = True
        self._thread.shutdown(wait=False)
        try:
            await _to_the_end(closing)
        except apsw.Error as error:
            raise translated(error) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # --- units of work ---

    def transaction(self) -> "SQLiteTransaction":
        """Open a unit of work."""
        return SQLiteTransaction(self, self._state)

    async def make_sound(self) -> None:
        """Have in memory what is committed, whatever failed; refuse to go on with a damaged file."""
        self._require_sound()
        await self._settle()

    async def keep(self, work: "SQLiteTransaction") -> None:
        """Commit what a unit of work has gathered, and take it into memory."""
        commit = work.commit()
        try:
            await self.visit(self._database.write, commit)
        except BaseException:
            self._doubts += 1
            self.in_doubt = True
            self.greatest.clear()
            raise
        is_far_behind = work.merge()
        for _, packed, part in work.written:
            self._tail.add(packed, part.drafts)
        greatest = self.greatest
        for team, actor, command_id, _, _ in commit.commands:
            known = greatest.get((team, actor))
            if known is not None and known < command_id:
                greatest[team, actor] = command_id
        if self._keeping_up is None and (
            is_far_behind or self._database.wal_pages >= CHECKPOINT_PAGES
        ):
            # In the next turn of the event loop: those who are told of this commit work meanwhile.
            keeping_up = self._keep_up([packed.batch.team for packed in commit.journal])
            self._keeping_up = asyncio.get_running_loop().create_task(keeping_up)
        if self._resting is None or self._giving_back is None:
            self._rest()
        else:
            self._rested = False

    # --- what is behind ---

    async def _settle(self, teams: Iterable[str] = ()) -> None:
        """Find out what became of the commits that have failed so far.

        Only those: on a full disk others fail all the time, and a reader must get its turn.
        """
        del teams  # a commit that failed may have been to any
        if self.in_doubt:
            doubts = self._doubts
            for team in list(self._state.teams):
                await self._submit_translated(self._database.catch_up, self._state, team)
            if doubts == self._doubts:  # else another has failed since
                self.in_doubt = False

    async def _keep_up(self, teams: Sequence[str]) -> None:
        """Write some of the rows that are behind, and empty the write-ahead log if it is long."""
        try:
            self._require_sound()
            behind = self._state.slice(teams)
            if behind is not NOTHING_BEHIND:
                await self.visit(self._database.write_behind, behind)
                self._state.wrote(behind)
            if self._database.wal_pages >= CHECKPOINT_PAGES:
                await self.long_visit(self._database.checkpoint)
        except UnavailableError as error:
            if not self._closed:
                log.warning("rows stay in memory for now: %s", error)
        finally:
            self._keeping_up = None

    def _rest(self) -> None:
        """Write what is behind once there has been no commit for a while."""
        if self._resting is None:
            loop = asyncio.get_running_loop()
            self._resting = loop.call_later(REST_SECONDS, self._write_behind)
        else:
            self._rested = False
        if self._giving_back is None:
            loop = asyncio.get_running_loop()
            self._giving_back = loop.call_later(GIVE_BACK_SECONDS, self._give_back)

    def _give_back(self) -> None:
        self._giving_back = None
        if not self._closed:
            self._submit(self._database.give_back)

    def _write_behind(self) -> None:
        if not self._rested:
            self._rested = True
            loop = asyncio.get_running_loop()
            self._resting = loop.call_later(REST_SECONDS, self._write_behind)
            return
        self._resting = None
        for name, team in self._state.teams.items():
            if team.unwritten or team.mail:
                self._writing(name)

    async def _flush(self, team: str) -> None:
        """Have the rows of a team written, so that few are left to be read from memory."""
        known = self._state.teams.get(team)
        if known is not None and known.unwritten:
            await asyncio.shield(self._writing(team))

    def _writing(self, team: str) -> "asyncio.Task[None]":
        under_way = self._flushing.get(team)
        if under_way is None:
            under_way = asyncio.get_running_loop().create_task(self._write_all(team))
            self._flushing[team] = under_way
        return under_way

    async def _write_all(self, team: str) -> None:
        """Write everything of a team that is behind. Where that fails, it stays in memory."""
        try:
            self._require_sound()
            behind = self._state.all_of(team)
            await self.visit(self._database.write_behind, behind)
            self._state.wrote(behind)
        except UnavailableError as error:
            if not self._closed:
                log.warning("rows of team %s stay in memory for now: %s", team, error)
        finally:
            del self._flushing[team]

    # --- teams and agents ---

    async def create_team(self, team: Team) -> Team:
        """Keep `team` unless one of its name exists; return the one that is kept."""
        self._require_sound()
        kept = await self.visit(self._database.create_team, team)
        if kept.id not in self._state.teams:
            self._state.teams[kept.id] = TeamState(Head(), watermark=0, horizon=0)
        return kept

    async def teams(self) -> Sequence[Team]:
        """Return every team."""
        return await self.visit(self._database.teams)

    async def agents(self, team: str) -> Sequence[tuple[Agent, bytes]]:
        """Return every agent with its current manifest as sent, removed ones included."""
        return await self.visit(self._database.agents, team)

    async def manifest(self, team: str, agent: str, version: int) -> bytes | None:
        """Return one version of a manifest as sent."""
        return await self.visit(self._database.manifest, team, agent, version)

    async def tokens(self, team: str | None = None) -> Sequence[Token]:
        """Return every token, of one team or of all."""
        return await self.visit(self._database.tokens, team)

    async def processes(self) -> Sequence[Process]:
        """Return every known process of every team."""
        return await self.visit(self._database.processes)

    async def records(self, kind: str, *, of: Key | None = None) -> Sequence[Record]:
        """Return every record of a kind; or, of a team, those whose ids begin so."""
        return await self.visit(self._database.records, kind, of)

    # --- reading ---

    def cached(self, key: Key) -> Handoff | None:
        """Return what `handoffs` would, if that takes no waiting; None: ask there."""
        if self.in_doubt:
            return None
        kept = self._state.unwritten.get(key) or self._state.get(key)
        return None if kept is None else kept.handoff

    async def log(self, page: LogPage) -> Sequence[Entry]:
        """Return a page of the log, oldest first: what was committed lately comes from memory."""
        known = self._state.teams.get(page.team)
        follows = page.handoff_id is None and page.correlation_id is None
        if follows and known and not (self.in_doubt or self._closed or self.damage):
            end, fits = known.head.seq, partial(page_fits, page)
            recent = self._tail.after(page.team, page.after, end, fits, page.limit)
            if recent is not None:
                return recent
        return await super().log(page)

    async def head(self, team: str) -> Head:
        """Return the end of a team's log."""
        self._require_sound()
        await self._settle()
        known = self._state.teams.get(team)
        return Head() if known is None else known.head

    async def horizon(self, team: str) -> Horizon | None:
        """Return where a team's log begins, if it was pruned."""
        return await self.long_visit(self._database.horizon, team)

    async def next_due(self) -> int | None:
        """Return the earliest due time of all."""
        self._require_sound()
        await self._settle()
        await self.visit(self._database.is_there)
        return self._state.next_due()

    # --- housekeeping ---

    async def shed(self) -> None:
        """Drop from memory what can be read again."""
        async with self.turn:
            self._state.shed()
            self._tail.clear()
            await self.visit(self._database.give_back)

    async def erase(self, team: str, handoff_id: str) -> int:
        """Delete the bodies of a handoff, from every file; return how many there were."""
        self._require_sound()
        self._tail.clear()  # it may still have the bodies
        seqs = await self._trail(team, handoff_id)
        return await self.long_visit(self._database.erase, team, handoff_id, seqs)

    async def prune(self, horizon: Horizon, *, forget_before: int) -> int:
        """Cut the log of a team at `horizon`; return how many entries went."""
        team = horizon.team
        async with self.turn:
            self._require_sound()
            await self._settle()
            await self.visit(self._database.write_behind, behind := self._state.all_of(team))
            self._state.wrote(behind)
            count, forgotten = await self.long_visit(self._database.prune, horizon, forget_before)
            for handoff_id in forgotten:
                self._state.forget((team, handoff_id))
            known = self._state.teams[team]
            known.horizon = horizon.seq
            self._tail.clear()
        return count

    async def backup(self, name: str) -> Copy:
        """Copy the file while it is served, in steps, into `backups` beside it; verify the copy."""
        await self._settle()
        began = [(team, known.head.seq) for team, known in self._state.teams.items()]
        path = self._database.path.parent / DIRECTORY / name
        copying = Copying(path)
        try:
            await self.long_visit(copying.begin, self._database)
            while await self.long_visit(copying.step):
                pass
            size, heads = await asyncio.to_thread(copying.keep, began)
        except BaseException:
            # Not waited for: the caller may have been cancelled, with a step still under way.
            if self._closed:
                copying.abandon()
            else:
                self._submit(copying.abandon)
            raise
        return Copy(path=str(path), size_bytes=size, heads=heads)

    # --- visits ---

    async def visit(self, call: Callable[..., T], *args: Any) -> T:
        """Make a short visit, after everything that was asked before.

        When the caller is cancelled, `call` is not made, or made in full: nobody ever meets the
        connection in the middle of something.
        """
        try:
            if self._visit_seconds <= self.quick_seconds_max and not self._closed:
                while self._on_thread and self._on_thread[0].done():
                    self._on_thread.popleft()
                if not self._on_thread:
                    return self._measured(call, *args)
            return await self._submit(self._measured, call, *args)
        except apsw.Error as error:
            raise self._meaning(error) from error

    def _measured(self, call: Callable[..., T], *args: Any) -> T:
        """Make a visit and take its measure."""
        began = perf_counter()
        try:
            return call(*args)
        finally:
            took = perf_counter() - began
            self._visit_seconds += _WEIGHT * (took - self._visit_seconds)

    async def long_visit(self, call: Callable[..., T], *args: Any) -> T:
        """Make a visit that may take its time, on the thread."""
        return await self._submit_translated(call, *args)

    async def _submit_translated(self, call: Callable[..., T], *args: Any) -> T:
        try:
            return await self._submit(call, *args)
        except apsw.Error as error:
            raise self._meaning(error) from error

    def _submit(self, call: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        # A visit whose caller was cancelled is done only once the thread has really finished it.
        while self._on_thread and self._on_thread[0].done():
            self._on_thread.popleft()
        visit = self._thread.submit(call, *args)
        self._on_thread.append(visit)
        return asyncio.wrap_future(visit)

    def _meaning(self, error: apsw.Error) -> NodropError:
        meaning = translated(error)
        if isinstance(meaning, StoreCorruptError) and self.damage is None:
            self.damage = meaning.detail
            log.critical(
                "%s: %s; commands are refused from now on. %s",
                self._database.path,
                meaning.detail,
                meaning.next_step,
            )
        return meaning

    def _require_sound(self) -> None:
        """Refuse to go on with a damaged file: writing to it could do more damage."""
        if self.damage is not None:
            raise StoreCorruptError(self.damage)


class SQLiteTransaction(Work[SQLiteStore]):
    """A unit of work: has its turn for as long as its block lasts, and commits at the end."""

    async def __aenter__(self) -> Self:
        store = self._store
        await store.turn.acquire()
        if store.in_doubt or store.damage is not None:
            try:
                await store.make_sound()
            except BaseException:
                store.turn.release()
                raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        try:
            if kind is None and self.appended:
                await self._store.keep(self)
        finally:
            self._store.turn.release()


class _Visits:
    """The tables of the file, as `serving.Tables`."""

    def __init__(self, store: SQLiteStore, database: Database) -> None:
        self._store = store
        self._database = database

    async def kept(self, keys: Sequence[Key]) -> Sequence[Kept]:
        return await self._store.visit(self._database.kept, keys)

    async def keys(self, wanted: Collection[Name]) -> Sequence[KeyUse]:
        return await self._store.visit(self._database.keys, wanted)

    async def commands(self, wanted: Collection[Name]) -> Mapping[Name, Sequence[Place]]:
        greatest = self._store.greatest
        asked: list[Name] = []
        for name in wanted:
            known = greatest.get((name[0], name[1]))
            if known is None or name[2] <= known:
                asked.append(name)
        if not asked:
            return {}
        for team, actor in {(team, actor) for team, actor, _ in asked} - greatest.keys():
            found = await self._store.visit(self._database.greatest_command, team, actor)
            if len(greatest) >= ACTORS_MAX:
                greatest.clear()
            greatest[team, actor] = found or ""
        return await self._store.visit(self._database.commands, asked)

    async def entry_places(
        self, wanted: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], Place]:
        return await self._store.visit(self._database.entry_places, wanted)

    async def processes_of(self, keys: Collection[Key]) -> Sequence[Process]:
        return await self._store.visit(self._database.processes_of, keys)

    async def resolve(self, team: str, reference: str) -> Sequence[str]:
        return await self._store.visit(self._database.resolve, team, reference)

    async def list_handoffs(self, page: Page) -> Sequence[Handoff]:
        return await self._store.long_visit(self._database.list_handoffs, page)

    async def inbox(
        self, team: str, agent: str, after: int, before: int, limit: int
    ) -> Sequence[Mail]:
        inbox = self._database.inbox
        return await self._store.long_visit(inbox, team, agent, after, before, limit)

    async def log(
        self, page: LogPage, fits: Callable[[Entry], bool]
    ) -> tuple[list[Entry], int | None]:
        return await self._store.long_visit(self._database.log, page, fits)

    async def entries_at(self, team: str, seqs: Sequence[int]) -> list[Entry]:
        return await self._store.long_visit(self._database.entries_at, team, seqs)

    async def bodies_at(self, team: str, seqs: Sequence[int]) -> Mapping[int, Body]:
        return await self._store.visit(self._database.bodies_at, team, seqs)

    async def sizes_at(self, team: str, seqs: Sequence[int]) -> Mapping[int, int]:
        return await self._store.visit(self._database.sizes_at, team, seqs)

    async def kept_bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], Body]:
        return await self._store.visit(self._database.kept_bodies, team, wanted)

    async def trail(self, team: str, handoff_id: str) -> list[int]:
        return await self._store.visit(self._database.trail, team, handoff_id)

    async def mentions(self, team: str, about: Sequence[str]) -> list[int]:
        return await self._store.visit(self._database.mentions, team, about)

    async def chain(self, team: str, correlation_id: str) -> list[str]:
        return await self._store.visit(self._database.chain, team, correlation_id)


def _open(path: Path, *, vfs: str | None, synchronous: str) -> tuple[Database, State]:
    database = Database(path, vfs=vfs, synchronous=synchronous)
    try:
        database.quick_check(CHECK_SECONDS_MAX)
        return database, database.recover()
    except apsw.Error as error:
        database.close()
        raise translated(error) from error
    except BaseException:
        database.close()
        raise


def _close(database: Database, behind: Iterable[Slice]) -> None:
    try:
        for each in behind:
            if each.rows or each.mail or each.watermarks:
                database.write_behind(each)
    finally:
        database.close()


async def _to_the_end(future: "asyncio.Future[T]") -> T:
    """Wait until `future` is done even when cancelled meanwhile; then be cancelled."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from future.exception()
    return future.result()

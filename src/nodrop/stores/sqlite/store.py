"""The SQLite store: visits to a `Database`, with the port's promises.

Units of work take turns, gather what they append in memory, and write it in one visit. So nothing
half written is ever where a reader could see it, a block that raises has nothing to undo, and a
unit of work costs two visits: one to load and one to commit. Reads wait for the visits before them
and never for a block. Short visits are made on the event loop for as long as the disk is quick
(`pace`), all others on a thread of the store's own.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import apsw
from msgspec.structs import replace

from nodrop.core.contract import Agent
from nodrop.core.errors import StoreUnavailableError
from nodrop.core.model import Handoff
from nodrop.store import (
    Changes,
    Horizon,
    Key,
    Loaded,
    LogPage,
    Mail,
    Page,
    Process,
    Record,
    Team,
    Token,
    Wanted,
)
from nodrop.stores.sqlite.connection import translated
from nodrop.stores.sqlite.database import Database
from nodrop.stores.sqlite.pace import Pace
from nodrop.wire.log import Entry, Head

T = TypeVar("T")


class SQLiteStore:
    """Teams in one SQLite file, which it holds for itself until `close`."""

    def __init__(self, database: Database, thread: ThreadPoolExecutor) -> None:
        """Take over an open database and the one thread that it was opened on; see `open`."""
        self._database = database
        self._thread = thread
        self._turn = asyncio.Lock()
        self._ends: dict[str, int] = {}
        """The last `seq` of each team written to lately. Changed only by whose turn it is."""
        self._pace = Pace()
        self._on_thread: deque[Future[Any]] = deque()
        """Visits that the thread may not have finished, oldest first."""
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
            StoreUnavailableError: it cannot be opened, or is not a file for this Nodrop.
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nodrop-sqlite")
        opens = partial(Database, Path(path), vfs=vfs, synchronous=synchronous)
        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(thread, opens)
        try:
            return cls(await _to_the_end(opening), thread)
        except BaseException:
            if opening.exception() is None:  # cancelled when it was open already
                await _to_the_end(loop.run_in_executor(thread, opening.result().close))
            thread.shutdown(wait=False)
            raise

    async def close(self) -> None:
        """Let go of the file. A unit of work that has not begun to commit is refused."""
        if self._closed:
            return
        closing = self._submit(self._database.close)
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

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator["SQLiteTransaction"]:
        """Open a unit of work."""
        async with self._turn:
            work = SQLiteTransaction(self._database, self._visit, self._ends)
            yield work
            if work.appended:
                try:
                    await self._visit(self._database.write, work.appended)
                except BaseException:
                    self._ends.clear()  # nobody here knows whether it was kept
                    raise
                self._ends.update(work.ends)

    # --- teams and agents ---

    async def create_team(self, team: Team) -> Team:
        """Keep `team` unless one of its name exists; return the one that is kept."""
        return await self._visit(self._database.create_team, team)

    async def teams(self) -> Sequence[Team]:
        """Return every team."""
        return await self._visit(self._database.teams)

    async def agents(self, team: str) -> Sequence[tuple[Agent, bytes]]:
        """Return every agent with its current manifest as sent, removed ones included."""
        return await self._visit(self._database.agents, team)

    async def manifest(self, team: str, agent: str, version: int) -> bytes | None:
        """Return one version of a manifest as sent."""
        return await self._visit(self._database.manifest, team, agent, version)

    async def tokens(self, team: str | None = None) -> Sequence[Token]:
        """Return every token, of one team or of all."""
        return await self._visit(self._database.tokens, team)

    async def processes(self) -> Sequence[Process]:
        """Return every known process of every team."""
        return await self._visit(self._database.processes)

    async def records(self, kind: str, *, of: Key | None = None) -> Sequence[Record]:
        """Return every record of a kind; or, of a team, those whose ids begin so."""
        return await self._visit(self._database.records, kind, of)

    # --- reading ---

    async def handoffs(self, keys: Sequence[Key]) -> Sequence[Handoff]:
        """Return the handoffs there are, in no particular order."""
        return await self._visit(self._database.handoffs, keys)

    def at_hand(self, key: Key) -> Handoff | None:
        """Return what `handoffs` would, if that takes no waiting; None: ask there."""
        return self._database.at_hand(key)

    async def resolve(self, team: str, reference: str) -> Sequence[str]:
        """Return at most two ids: of the handoff `sender/key`, or of those an id prefix fits."""
        return await self._visit(self._database.resolve, team, reference)

    async def list_handoffs(self, page: Page) -> Sequence[Handoff]:
        """Return a page of handoffs, newest first."""
        return await self._long_visit(self._database.list_handoffs, page)

    async def bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], bytes]:
        """Return the bodies there are of (handoff id, version)."""
        return await self._visit(self._database.bodies, team, wanted)

    async def entry_bodies(self, team: str, seqs: Sequence[int]) -> Mapping[int, bytes]:
        """Return the bodies there are of these entries."""
        return await self._visit(self._database.entry_bodies, team, seqs)

    async def places(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Return the `seq` of (handoff id, version), where the log still has it."""
        return await self._visit(self._database.places, team, wanted)

    async def log(self, page: LogPage) -> Sequence[Entry]:
        """Return a page of the log, oldest first."""
        entries, looked_to = await self._long_visit(self._database.log, page)
        # One visit looks through so much and no more, so that writers get their turn between.
        while looked_to is not None and len(entries) < page.limit:
            rest = replace(page, after=looked_to, limit=page.limit - len(entries))
            more, looked_to = await self._long_visit(self._database.log, rest)
            entries += more
        return entries

    async def head(self, team: str) -> Head:
        """Return the end of a team's log."""
        return await self._visit(self._database.head, team)

    async def horizon(self, team: str) -> Horizon | None:
        """Return where a team's log begins, if it was pruned."""
        return await self._long_visit(self._database.horizon, team)

    async def inbox(self, team: str, agent: str, *, after: int, limit: int) -> Sequence[Mail]:
        """Return what concerns `agent` after `after`, oldest first."""
        return await self._long_visit(self._database.inbox, team, agent, after, limit)

    async def queued(self, team: str, agent: str) -> int:
        """Return how many unfinished handoffs `agent` is the recipient of."""
        return await self._visit(self._database.queued, team, agent)

    async def unfinished(self) -> Sequence[tuple[str, str, str, int]]:
        """Return how many handoffs have no outcome yet, by (team, origin, recipient)."""
        return await self._long_visit(self._database.unfinished)

    async def next_due(self) -> int | None:
        """Return the earliest due time of all."""
        return await self._visit(self._database.next_due)

    # --- housekeeping ---

    async def erase(self, team: str, handoff_id: str) -> int:
        """Delete the bodies of a handoff, from every file; return how many there were."""
        return await self._long_visit(self._database.erase, team, handoff_id)

    async def prune(self, horizon: Horizon, *, forget_before: int) -> int:
        """Cut the log of a team at `horizon`; return how many entries went."""
        return await self._long_visit(self._database.prune, horizon, forget_before)

    # --- visits ---

    async def _visit(self, call: Callable[..., T], *args: Any) -> T:
        """Make a short visit, after everything that was asked before.

        When the caller is cancelled, `call` is not made, or made in full: nobody ever meets the
        connection in the middle of something.
        """
        try:
            if self._pace.quick and not self._closed and self._thread_is_free():
                return self._pace.measured(call, *args)
            return await self._submit(self._pace.measured, call, *args)
        except apsw.Error as error:
            raise translated(error) from error

    async def _long_visit(self, call: Callable[..., T], *args: Any) -> T:
        """Make a visit that may take its time, on the thread."""
        try:
            return await self._submit(call, *args)
        except apsw.Error as error:
            raise translated(error) from error

    def _submit(self, call: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        self._forget_finished()
        visit = self._thread.submit(call, *args)
        self._on_thread.append(visit)
        return asyncio.wrap_future(visit)

    def _thread_is_free(self) -> bool:
        self._forget_finished()
        return not self._on_thread

    def _forget_finished(self) -> None:
        # A visit whose caller was cancelled is done only once the thread has really finished it.
        while self._on_thread and self._on_thread[0].done():
            self._on_thread.popleft()


class SQLiteTransaction:
    """A unit of work: reads what is committed, gathers what is appended."""

    def __init__(
        self,
        database: Database,
        visit: Callable[..., Any],
        ends: Mapping[str, int],
    ) -> None:
        self.appended: list[Changes] = []
        self.ends: dict[str, int] = {}
        """The last `seq` of each team as this unit of work will leave it."""
        self._database = database
        self._visit = visit
        self._ends_before = ends

    async def load(self, wanted: Wanted) -> Loaded:
        """Return what there is of `wanted`. Having the turn is the lock."""
        return await self._read(self._database.load, wanted)

    async def claimable(self, team: str, agent: str, *, limit: int) -> Sequence[Handoff]:
        """Return what `agent` may take, in the order of its queue."""
        return await self._read(self._database.claimable, team, agent, limit)

    async def held(self, team: str, process: str) -> Sequence[Handoff]:
        """Return what `process` holds."""
        return await self._read(self._database.held, team, process)

    async def due(self, *, now: int, limit: int) -> Sequence[Handoff]:
        """Return what came due at or before `now`, oldest first."""
        return await self._read(self._database.due, now, limit)

    async def unfinished(self, team: str, correlation_id: str) -> Sequence[Handoff]:
        """Return what has no outcome yet of a chain, in the order of ids."""
        return await self._read(self._database.unfinished_of, team, correlation_id)

    async def append(self, changes: Changes) -> Sequence[int]:
        """Gather `changes` for the commit; return the `seq` that each entry will have."""
        seqs: list[int] = []
        team, end = "", 0
        for draft in changes.entries:
            if draft.team != team:
                if team:
                    self.ends[team] = end
                team = draft.team
                end = await self._end(team)
            end += 1
            seqs.append(end)
        if team:
            self.ends[team] = end
        self.appended.append(changes)
        return seqs

    async def _end(self, team: str) -> int:
        """Return the last `seq` of a team as far as it is gathered."""
        end = self.ends.get(team) or self._ends_before.get(team)
        return (await self._visit(self._database.head, team)).seq if end is None else end

    async def _read(self, call: Callable[..., T], *args: Any) -> T:
        assert not self.appended, "append comes last in a unit of work"
        return await self._visit(call, *args)


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

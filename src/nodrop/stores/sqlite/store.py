"""The SQLite store: state in memory over a `Database`, with the port's promises.

Units of work take turns, gather what they append in memory, and write it in one visit to the file: a
row of the journal per team, and a slice of the rows that earlier commits have left. Open handoffs are
found in memory; the file is asked for what was not used lately. Reads wait for the visits before them
and never for a block. Short visits are made on the event loop for as long as the disk is quick
(`pace`), all others on a thread of the store's own.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import apsw
from msgspec.structs import replace

from nodrop.core.contract import Agent
from nodrop.core.errors import (
    NodropError,
    RelayFaultError,
    StoreCorruptError,
    StoreUnavailableError,
    UnavailableError,
)
from nodrop.core.model import Handoff
from nodrop.store import (
    Body,
    Changes,
    Copy,
    Horizon,
    Key,
    Loaded,
    LogPage,
    Mail,
    Page,
    Process,
    Record,
    Row,
    Team,
    Token,
    Wanted,
    is_listed,
    row_of,
)
from nodrop.stores.journal import pack
from nodrop.stores.sqlite.backup import DIRECTORY, Copying
from nodrop.stores.sqlite.connection import translated
from nodrop.stores.sqlite.database import SEQ_MAX, Database, page_fits
from nodrop.stores.sqlite.pace import Pace
from nodrop.stores.sqlite.writing import Commit
from nodrop.stores.state import Slice, State, TeamState
from nodrop.wire.log import Draft, Entry, Head

T = TypeVar("T")
log = logging.getLogger("nodrop.store")

REST_SECONDS: Final = 1.0
"""After so long without a commit, the rows that are behind are written."""


CHECK_SECONDS_MAX: Final = 0.5
"""How long a start looks for damage; `nodrop doctor` looks at everything."""


class SQLiteStore:
    """Teams in one SQLite file, which it holds for itself until `close`."""

    def __init__(self, database: Database, state: State, thread: ThreadPoolExecutor) -> None:
        """Take over an open database and the one thread that it was opened on; see `open`."""
        self._database = database
        self._state = state
        self._thread = thread
        self._turn = asyncio.Lock()
        self._pace = Pace()
        self._on_thread: deque[Future[Any]] = deque()
        """Visits that the thread may not have finished, oldest first."""
        self._doubts = 0
        """Commits that failed: whether one was kept only the file knows."""
        self._doubts_settled = 0
        self._damage: str | None = None
        """What was found wrong with the file. Nothing is written to it from then on."""
        self._flushing: dict[str, asyncio.Task[None]] = {}
        self._resting: asyncio.TimerHandle | None = None
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
        if self._resting is not None:
            self._resting.cancel()
        behind = [self._state.all_of(team) for team in self._state.teams]
        left = self._in_doubt or self._damage is not None
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

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator["SQLiteTransaction"]:
        """Open a unit of work."""
        async with self._turn:
            self._require_sound()
            await self._settle()
            work = SQLiteTransaction(self, self._state)
            yield work
            if work.appended:
                await self._commit(work.appended)

    async def _commit(self, appended: Sequence[Changes]) -> None:
        work = Work(self._state, appended)
        try:
            await self._visit(self._database.write, work.commit)
        except BaseException:
            self._doubts += 1
            raise
        work.merge()
        self._rest()

    # --- what is behind ---

    async def _settle(self) -> None:
        """Find out what became of the commits that have failed so far.

        Only those: on a full disk others fail all the time, and a reader must get its turn.
        """
        if self._in_doubt:
            doubts = self._doubts
            for team in list(self._state.teams):
                await self._submit_translated(self._database.catch_up, self._state, team)
            self._doubts_settled = max(self._doubts_settled, doubts)

    @property
    def _in_doubt(self) -> bool:
        return self._doubts > self._doubts_settled

    def _rest(self) -> None:
        """Write what is behind once there has been no commit for a while."""
        if self._resting is not None:
            self._resting.cancel()
        loop = asyncio.get_running_loop()
        self._resting = loop.call_later(REST_SECONDS, self._write_behind)

    def _write_behind(self) -> None:
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
            await self._visit(self._database.write_behind, behind)
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
        kept = await self._visit(self._database.create_team, team)
        if kept.id not in self._state.teams:
            self._state.teams[kept.id] = TeamState(Head(), watermark=0, horizon=0)
        return kept

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

    async def handoffs(self, keys: Iterable[Key]) -> Sequence[Handoff]:
        """Return the handoffs there are, in the order of `keys`."""
        await self._settle()
        found: dict[Key, Handoff] = {}
        missing: list[Key] = []
        for key in keys:
            kept = self._state.get(key)
            if kept is None:
                missing.append(key)
            else:
                found[key] = kept.handoff
        if missing:
            for row in await self._visit(self._database.kept, missing):
                kept = self._state.admit(row)
                found[kept.handoff.team, kept.handoff.id] = kept.handoff
            return [found[key] for key in keys if key in found]
        return list(found.values())

    def at_hand(self, key: Key) -> Handoff | None:
        """Return what `handoffs` would, if that takes no waiting; None: ask there."""
        kept = None if self._in_doubt else self._state.get(key)
        return None if kept is None else kept.handoff

    async def resolve(self, team: str, reference: str) -> Sequence[str]:
        """Return at most two ids: of the handoff `sender/key`, or of those an id prefix fits."""
        found = await self._visit(self._database.resolve, team, reference)
        behind = [name for name in self._state.unwritten_of(team) if name.startswith(reference)]
        return sorted({*found, *behind})[:2]

    async def list_handoffs(self, page: Page) -> Sequence[Handoff]:
        """Return a page of handoffs, newest first."""
        await self._settle()
        await self._flush(page.team)
        behind = self._state.unwritten_of(page.team)
        more = replace(page, limit=page.limit + len(behind))
        listed = await self._long_visit(self._database.list_handoffs, more)
        behind |= self._state.unwritten_of(page.team)  # what was committed meanwhile
        found = [handoff for handoff in listed if handoff.id not in behind]
        found += [h for h in behind.values() if is_listed(row_of(h), page)]
        return sorted(found, key=lambda handoff: handoff.id, reverse=True)[: page.limit]

    async def bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], bytes]:
        """Return the bodies there are of (handoff id, version)."""
        places = await self._places(team, wanted)
        at = await self.entry_bodies(team, list(places.values()))
        found = {key: at[seq].body for key, seq in places.items() if seq in at}
        missing = [key for key in wanted if key not in places]
        known = self._state.teams.get(team)
        if missing and known is not None and known.horizon:
            kept = await self._visit(self._database.kept_bodies, team, missing)
            found |= {key: body.body for key, body in kept.items()}
        return found

    async def entry_bodies(self, team: str, seqs: Sequence[int]) -> Mapping[int, Body]:
        """Return the bodies there are of these entries."""
        return await self._visit(self._database.bodies_at, team, seqs) if seqs else {}

    async def places(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Return the `seq` of (handoff id, version), where the log still has it."""
        return await self._places(team, wanted)

    async def _places(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        await self._settle()
        known = self._state.teams.get(team)
        if known is None:
            return {}
        found: dict[tuple[str, int], int] = {}
        await self.handoffs([(team, handoff_id) for handoff_id, _ in wanted])
        for handoff_id, version in wanted:
            kept = self._state.get((team, handoff_id))
            if kept is None or not 1 <= version <= kept.handoff.version:
                continue
            seq = kept.place(version)
            if seq is None:
                seq = (await self._visit(self._database.trail, team, handoff_id))[version - 1]
            if seq > known.horizon:
                found[handoff_id, version] = seq
        return found

    async def log(self, page: LogPage) -> Sequence[Entry]:
        """Return a page of the log, oldest first."""
        fits = partial(page_fits, page)
        if page.handoff_id is not None or page.correlation_id is not None:
            entries = await self._log_about(page)
            return [entry for entry in entries if fits(entry)][: page.limit]
        entries, looked_to = await self._long_visit(self._database.log, page, fits)
        # One visit looks through so much and no more, so that writers get their turn between.
        while looked_to is not None and len(entries) < page.limit:
            rest = replace(page, after=looked_to, limit=page.limit - len(entries))
            more, looked_to = await self._long_visit(self._database.log, rest, fits)
            entries += more
        return entries

    async def _log_about(self, page: LogPage) -> list[Entry]:
        """Return the entries about a handoff, or about a chain and everything in it."""
        team = page.team
        if page.handoff_id is not None:
            chain, about = [page.handoff_id], [_about_handoff(page.handoff_id)]
        else:
            chain = await self._visit(self._database.chain, team, page.correlation_id)
            behind = self._state.unwritten_of(team).values()
            chain += [h.id for h in behind if h.correlation_id == page.correlation_id]
            chain = list(dict.fromkeys(chain))
            about = [*map(_about_handoff, chain), _about_chain(page.correlation_id or "")]
        seqs = await self._visit(self._database.mentions, team, about)
        for handoff_id in chain:
            seqs += await self._trail(team, handoff_id)
        wanted = sorted(seq for seq in seqs if seq > page.after)
        some_more = page.limit if page.actor is None and page.type is None else len(wanted)
        return await self._long_visit(self._database.entries_at, team, wanted[:some_more])

    async def _trail(self, team: str, handoff_id: str) -> list[int]:
        """Return the places of everything that happened to a handoff."""
        await self.handoffs([(team, handoff_id)])
        kept = self._state.get((team, handoff_id))
        if kept is None:
            return []
        if kept.trail_from == 1:
            return list(kept.trail)
        known = {seq for _, seqs in kept.overflow for seq in seqs} | set(kept.trail)
        older = await self._visit(self._database.trail, team, handoff_id)
        return sorted(known | set(older))

    async def head(self, team: str) -> Head:
        """Return the end of a team's log."""
        self._require_sound()
        await self._settle()
        known = self._state.teams.get(team)
        return Head() if known is None else known.head

    async def horizon(self, team: str) -> Horizon | None:
        """Return where a team's log begins, if it was pruned."""
        return await self._long_visit(self._database.horizon, team)

    async def inbox(self, team: str, agent: str, *, after: int, limit: int) -> Sequence[Mail]:
        """Return what concerns `agent` after `after`, oldest first, each entry's items together."""
        await self._settle()
        known = self._state.teams.get(team)
        waiting = list(known.by_reader.get(agent, ())) if known else []
        before = waiting[0].seq if waiting else SEQ_MAX
        items = await self._long_visit(self._database.inbox, team, agent, after, before, limit)
        if len(items) <= limit:
            items += sorted((m for m in waiting if m.seq > after), key=lambda m: (m.seq, m.kind))
        # A reader goes on after the last `seq` it saw: a page must not end inside an entry.
        return [
            item for n, item in enumerate(items) if n < limit or item.seq == items[limit - 1].seq
        ]

    async def queued(self, team: str, agent: str) -> int:
        """Return how many unfinished handoffs `agent` is the recipient of."""
        await self._settle()
        unfinished = self._state.unfinished()
        return sum((of, stub.recipient) == (team, agent) for of, stub in unfinished)

    async def unfinished(self) -> Sequence[tuple[str, str, str, int]]:
        """Return how many handoffs have no outcome yet, by (team, origin, recipient)."""
        await self._settle()
        unfinished = self._state.unfinished()
        counts = Counter((team, stub.origin, stub.recipient) for team, stub in unfinished)
        return [(*key, count) for key, count in counts.items()]

    async def next_due(self) -> int | None:
        """Return the earliest due time of all."""
        self._require_sound()
        await self._settle()
        await self._visit(self._database.is_there)
        return self._state.next_due()

    # --- housekeeping ---

    async def erase(self, team: str, handoff_id: str) -> int:
        """Delete the bodies of a handoff, from every file; return how many there were."""
        self._require_sound()
        seqs = await self._trail(team, handoff_id)
        return await self._long_visit(self._database.erase, team, handoff_id, seqs)

    async def prune(self, horizon: Horizon, *, forget_before: int) -> int:
        """Cut the log of a team at `horizon`; return how many entries went."""
        team = horizon.team
        async with self._turn:
            self._require_sound()
            await self._settle()
            await self._visit(self._database.write_behind, behind := self._state.all_of(team))
            self._state.wrote(behind)
            count, forgotten = await self._long_visit(self._database.prune, horizon, forget_before)
            for handoff_id in forgotten:
                self._state.forget((team, handoff_id))
            known = self._state.teams[team]
            known.horizon = horizon.seq
        return count

    async def backup(self, name: str) -> Copy:
        """Copy the file while it is served, in steps, into `backups` beside it; verify the copy."""
        await self._settle()
        began = [(team, known.head.seq) for team, known in self._state.teams.items()]
        path = self._database.path.parent / DIRECTORY / name
        copying = Copying(path)
        try:
            await self._long_visit(copying.begin, self._database)
            while await self._long_visit(copying.step):
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
            raise self._meaning(error) from error

    async def _long_visit(self, call: Callable[..., T], *args: Any) -> T:
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
        self._forget_finished()
        visit = self._thread.submit(call, *args)
        self._on_thread.append(visit)
        return asyncio.wrap_future(visit)

    def _meaning(self, error: apsw.Error) -> NodropError:
        meaning = translated(error)
        if isinstance(meaning, StoreCorruptError) and self._damage is None:
            self._damage = meaning.detail
            log.critical(
                "%s: %s; commands are refused from now on. %s",
                self._database.path,
                meaning.detail,
                meaning.next_step,
            )
        return meaning

    def _require_sound(self) -> None:
        """Refuse to go on with a damaged file: writing to it could do more damage."""
        if self._damage is not None:
            raise StoreCorruptError(self._damage)

    def _thread_is_free(self) -> bool:
        self._forget_finished()
        return not self._on_thread

    def _forget_finished(self) -> None:
        # A visit whose caller was cancelled is done only once the thread has really finished it.
        while self._on_thread and self._on_thread[0].done():
            self._on_thread.popleft()

    # --- for its transactions ---

    async def loaded(self, wanted: Wanted) -> Loaded:
        """Return what there is of `wanted`."""
        held = {key: await self.handoffs(self._state.held(*key)) for key in wanted.processes}
        found = await self.handoffs(wanted.handoffs) if wanted.handoffs else ()
        keys = await self._visit(self._database.keys, wanted.keys) if wanted.keys else ()
        commands = (
            await self._visit(self._database.commands, wanted.commands) if wanted.commands else {}
        )
        entries = (
            await self._visit(self._database.entry_places, wanted.entries) if wanted.entries else {}
        )
        processes = (
            await self._visit(self._database.processes_of, wanted.processes)
            if wanted.processes
            else ()
        )
        return Loaded(
            handoffs={(h.team, h.id): h for h in found},
            keys={(use.team, use.sender, use.key): use for use in keys},
            commands=commands,
            entries=entries,
            held=held,
            processes={(p.team, p.id): p for p in processes},
        )


class Work:
    """What a unit of work writes, and how it is taken into memory once that is durable."""

    def __init__(self, state: State, appended: Sequence[Changes]) -> None:
        self._state = state
        self._appended = appended
        self._placed: dict[str, list[tuple[int, Draft]]] = {}
        """By team: each draft with the `seq` that it gets."""
        for draft in (draft for changes in appended for draft in changes.entries):
            of_team = self._placed.get(draft.team)
            if of_team is None:
                of_team = self._placed[draft.team] = []
            of_team.append((state.teams[draft.team].head.seq + len(of_team) + 1, draft))
        changed = {row.handoff.id for changes in appended for row in changes.rows}
        self.commit = Commit(
            journal=[
                pack(team, [draft for _, draft in of_team], state.teams[team].head)
                for team, of_team in self._placed.items()
            ],
            commands=self._commands(),
            mentions=self._mentions(changed),
            changes=appended,
            behind=state.slice(self._placed),
        )

    def merge(self) -> None:
        """Take what was written into memory."""
        rows: dict[str, list[Row]] = {}
        for changes in self._appended:
            for row in changes.rows:
                rows.setdefault(row.handoff.team, []).append(row)
        state = self._state
        for each in self.commit.journal:
            team = each.batch.team
            state.merge(state.teams[team], each.head, self._placed[team], rows.pop(team, ()))
        assert not rows, "a row changes with an entry"
        state.wrote(self.commit.behind)

    def _commands(self) -> list[tuple[str, str, str, bytes | None, str]]:
        places: dict[tuple[str, str, str], str] = {}
        requests: dict[tuple[str, str, str], bytes | None] = {}
        for of_team in self._placed.values():
            for seq, draft in of_team:
                if draft.command_id is not None:
                    key = (draft.team, draft.actor, draft.command_id)
                    places[key] = f"{places.get(key, '')}{seq} "
                    requests[key] = requests.get(key) or draft.request
        return [(*key, requests[key], seqs) for key, seqs in places.items()]

    def _mentions(self, changed: set[str]) -> list[tuple[str, str, int]]:
        """Return where entries are that no row of a handoff leads to."""
        mentions: list[tuple[str, str, int]] = []
        for team, of_team in self._placed.items():
            for seq, draft in of_team:
                if draft.handoff_id is None:
                    if draft.correlation_id is not None:
                        mentions.append((team, _about_chain(draft.correlation_id), seq))
                elif draft.version is None or draft.handoff_id not in changed:
                    mentions.append((team, _about_handoff(draft.handoff_id), seq))
        return mentions


class SQLiteTransaction:
    """A unit of work: reads what is committed, gathers what is appended."""

    def __init__(self, store: SQLiteStore, state: State) -> None:
        self.appended: list[Changes] = []
        self._ends: dict[str, int] = {}
        """The last `seq` of each team as this unit of work will leave it."""
        self._versions: dict[Key, int] = {}
        """The last version of each handoff that it has appended to."""
        self._store = store
        self._state = state

    async def load(self, wanted: Wanted) -> Loaded:
        """Return what there is of `wanted`. Having the turn is the lock."""
        self._require_unwritten()
        return await self._store.loaded(wanted)

    async def claimable(self, team: str, agent: str, *, limit: int) -> Sequence[Handoff]:
        """Return what `agent` may take, in the order of its queue."""
        self._require_unwritten()
        return await self._store.handoffs(self._state.claimable(team, agent, limit))

    async def held(self, team: str, process: str) -> Sequence[Handoff]:
        """Return what `process` holds."""
        self._require_unwritten()
        return await self._store.handoffs(self._state.held(team, process))

    async def due(self, *, now: int, limit: int) -> Sequence[Handoff]:
        """Return what came due at or before `now`, oldest first."""
        self._require_unwritten()
        return await self._store.handoffs(self._state.due(now, limit))

    async def unfinished(self, team: str, correlation_id: str) -> Sequence[Handoff]:
        """Return what has no outcome yet of a chain, in the order of ids."""
        self._require_unwritten()
        return await self._store.handoffs(self._state.unfinished_of(team, correlation_id))

    async def append(self, changes: Changes) -> Sequence[int]:
        """Gather `changes` for the commit; return the `seq` that each entry will have."""
        # Each row goes on from the one before it, so that one must be known.
        unknown = [
            (row.handoff.team, row.handoff.id)
            for row in changes.rows
            if row.handoff.version > 1
            and self._state.get((row.handoff.team, row.handoff.id)) is None
        ]
        if unknown:
            await self._store.handoffs(unknown)
        self._require_next_versions(changes)
        seqs: list[int] = []
        for draft in changes.entries:
            end = self._ends.get(draft.team)
            if end is None:
                team = self._state.teams.get(draft.team)
                assert team is not None, "a team is created before it is written to"
                end = team.head.seq
            self._ends[draft.team] = end + 1
            seqs.append(end + 1)
        self.appended.append(changes)
        return seqs

    def _require_next_versions(self, changes: Changes) -> None:
        """Refuse a second event of one version: nobody can have decided on what it follows."""
        changed = {(row.handoff.team, row.handoff.id) for row in changes.rows}
        for draft in changes.entries:
            key = (draft.team, draft.handoff_id or "")
            if draft.version is None or key not in changed:
                continue
            before = self._versions.get(key)
            if before is None:
                kept = self._state.get(key)
                before = 0 if kept is None else kept.handoff.version
            if draft.version != before + 1:
                raise RelayFaultError(
                    f"the store refused a contradiction: version {draft.version} after {before}"
                )
            self._versions[key] = draft.version

    def _require_unwritten(self) -> None:
        assert not self.appended, "append comes last in a unit of work"


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


def _about_handoff(handoff_id: str) -> str:
    return f"handoff {handoff_id}"


def _about_chain(correlation_id: str) -> str:
    return f"chain {correlation_id}"


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

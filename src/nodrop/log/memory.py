"""A store in dicts, for tests and simulations. Forgets everything on exit."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice

from nodrop.log.port import (
    LARGE_BODY_BYTES,
    Body,
    Changes,
    Copy,
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
    is_listed,
)
from nodrop.model.contract import Agent
from nodrop.model.errors import InvalidRequestError, RelayFaultError
from nodrop.model.handoff import Handoff
from nodrop.protocol.entries import Draft, Entry, Head, salted_digest, seal


class MemoryStore:
    """Everything in memory; units of work take turns and are applied whole when they end."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._tables = _Tables()

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator["MemoryTransaction"]:
        """Open a unit of work."""
        async with self._turn:
            work = MemoryTransaction(self._tables)
            yield work
            self._tables.check(work.appended)
            for changes in work.appended:
                self._tables.apply(changes)

    async def close(self) -> None:
        """Nothing to let go of."""

    # --- teams and agents ---

    async def create_team(self, team: Team) -> Team:
        """Keep `team` unless one of its name exists; return the one that is kept."""
        return self._tables.teams.setdefault(team.id, team)

    async def teams(self) -> Sequence[Team]:
        """Return every team."""
        return [team for _, team in sorted(self._tables.teams.items())]

    async def agents(self, team: str) -> Sequence[tuple[Agent, bytes]]:
        """Return every agent with its current manifest as sent, removed ones included."""
        return [
            (agent, self._tables.manifests[agent.team, agent.id, agent.version])
            for _, agent in sorted(self._tables.agents.items())
            if agent.team == team
        ]

    async def manifest(self, team: str, agent: str, version: int) -> bytes | None:
        """Return one version of a manifest as sent."""
        return self._tables.manifests.get((team, agent, version))

    async def tokens(self, team: str | None = None) -> Sequence[Token]:
        """Return every token, of one team or of all."""
        return [t for _, t in sorted(self._tables.tokens.items()) if team in {None, t.team}]

    async def processes(self) -> Sequence[Process]:
        """Return every known process of every team."""
        return [process for _, process in sorted(self._tables.processes.items())]

    async def records(self, kind: str, *, of: Key | None = None) -> Sequence[Record]:
        """Return every record of a kind; or, of a team, those whose ids begin so."""
        every = [r for _, r in sorted(self._tables.records.items()) if r.kind == kind]
        return [r for r in every if of is None or (r.team == of[0] and r.id.startswith(of[1]))]

    # --- reading ---

    async def handoffs(self, keys: Sequence[Key]) -> Sequence[Handoff]:
        """Return the handoffs there are, in no particular order."""
        return [self._tables.rows[key].handoff for key in keys if key in self._tables.rows]

    def cached(self, key: Key) -> Handoff | None:
        """Return what `handoffs` would, if that takes no waiting; None: ask there."""
        row = self._tables.rows.get(key)
        return None if row is None else row.handoff

    async def resolve(self, team: str, reference: str) -> Sequence[str]:
        """Return at most two ids: of the handoff `sender/key`, or of those an id prefix fits."""
        sender, slash, key = reference.partition("/")
        if slash:
            use = self._tables.keys.get((team, sender, key))
            return [use.handoff_id] if use else []
        return sorted(
            id_ for of, id_ in self._tables.rows if of == team and id_.startswith(reference)
        )[:2]

    async def list_handoffs(self, page: Page) -> Sequence[Handoff]:
        """Return a page of handoffs, newest first."""
        rows = [row for row in self._tables.rows.values() if is_listed(row, page)]
        rows.sort(key=lambda row: row.handoff.id, reverse=True)
        return [row.handoff for row in rows[: page.limit]]

    async def bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], bytes]:
        """Return the bodies there are of (handoff id, version)."""
        return {
            key: self._tables.bodies[team, *key].body
            for key in wanted
            if (team, *key) in self._tables.bodies
        }

    async def body_sizes(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Return how many bytes the large bodies of (handoff id, version) have."""
        bodies = await self.bodies(team, wanted)
        return {key: len(body) for key, body in bodies.items() if len(body) > LARGE_BODY_BYTES}

    async def entry_bodies(self, team: str, seqs: Sequence[int]) -> Mapping[int, Body]:
        """Return the bodies there are of these entries."""
        entries = (
            self._tables.log[team][seq] for seq in seqs if seq in self._tables.log.get(team, {})
        )
        found = ((entry.seq, self._tables.bodies.get(_body_key(entry))) for entry in entries)
        return {seq: body for seq, body in found if body is not None}

    async def places(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Return the `seq` of (handoff id, version), where the log still has it."""
        return {
            key: self._tables.places[team, *key]
            for key in wanted
            if (team, *key) in self._tables.places
        }

    async def log(self, page: LogPage) -> Sequence[Entry]:
        """Return a page of the log, oldest first."""
        log = self._tables.log.get(page.team, {})
        first = max(page.after + 1, next(iter(log), 1))  # `seq` has no gaps
        entries = (log[seq] for seq in range(first, first + len(log)) if seq in log)
        return list(islice((entry for entry in entries if _is_read(entry, page)), page.limit))

    async def head(self, team: str) -> Head:
        """Return the end of a team's log."""
        return self._tables.heads.get(team, Head())

    async def horizon(self, team: str) -> Horizon | None:
        """Return where a team's log begins, if it was pruned."""
        return self._tables.horizons.get(team)

    async def inbox(self, team: str, agent: str, *, after: int, limit: int) -> Sequence[Mail]:
        """Return what concerns `agent` after `after`, oldest first."""
        items = [item for item in self._tables.inboxes.get((team, agent), ()) if item.seq > after]
        if len(items) <= limit:
            return items
        return [item for item in items if item.seq <= items[limit - 1].seq]

    async def queue(self, team: str, agent: str) -> Mapping[str, int | None]:
        """Return the ids of the unfinished handoffs that `agent` is the recipient of, with their ranks."""
        unfinished = (row for row in self._tables.pending.values() if not row.handoff.final)
        return {
            row.handoff.id: row.rank
            for row in unfinished
            if (row.handoff.team, row.handoff.recipient) == (team, agent)
        }

    async def unfinished(self) -> Sequence[tuple[str, str, str, int]]:
        """Return how many handoffs have no outcome yet, by (team, origin, recipient)."""
        unfinished = (row.handoff for row in self._tables.pending.values() if not row.handoff.final)
        counts = Counter((h.team, h.origin, h.recipient) for h in unfinished)
        return [(*key, count) for key, count in counts.items()]

    async def next_due(self) -> int | None:
        """Return the earliest due time of all."""
        times = (row.due_at for row in self._tables.pending.values() if row.due_at is not None)
        return min(times, default=None)

    # --- housekeeping ---

    async def shed(self) -> None:
        """Drop nothing: all of it is in memory alone."""

    async def erase(self, team: str, handoff_id: str) -> int:
        """Delete the bodies of a handoff; return how many there were."""
        bodies = (key for key in self._tables.bodies if key[:2] == (team, handoff_id))
        return self._tables.drop_bodies(bodies)

    async def prune(self, horizon: Horizon, *, forget_before: int) -> int:
        """Cut the log of a team at `horizon`; return how many entries went."""
        return self._tables.prune(horizon, forget_before)

    async def backup(self, name: str) -> Copy:
        """Refuse: there is no file."""
        raise InvalidRequestError(
            f"there is nothing on disk to make {name} of: this relay keeps everything in memory",
            next_step="Serve a file: `nodrop up`.",
        )


class MemoryTransaction:
    """A unit of work: reads what is committed, gathers what is appended."""

    def __init__(self, tables: "_Tables") -> None:
        self.appended: list[Changes] = []
        self._tables = tables

    async def load(self, wanted: Wanted) -> Loaded:
        """Return what there is of `wanted`. Having the turn is the lock."""
        tables = self._committed()
        return Loaded(
            handoffs={k: tables.rows[k].handoff for k in wanted.handoffs if k in tables.rows},
            keys={k: tables.keys[k] for k in wanted.keys if k in tables.keys},
            commands={
                (team, actor, command_id): [tables.place(team, seq) for seq in seqs]
                for team, actor, command_id in wanted.commands
                if (seqs := tables.commands.get((team, actor, command_id)))
            },
            entries={
                (team, seq): tables.place(team, seq)
                for team, seq in wanted.entries
                if seq in tables.log.get(team, {})
            },
            held={key: tables.held(*key) for key in wanted.processes},
            processes={k: tables.processes[k] for k in wanted.processes if k in tables.processes},
        )

    async def claimable(self, team: str, agent: str, *, limit: int) -> Sequence[Handoff]:
        """Return what `agent` may take, in the order of its queue."""
        queue = sorted(
            (row.rank, row.handoff.id, row.handoff)
            for row in self._committed().pending.values()
            if row.rank is not None and (row.handoff.team, row.handoff.recipient) == (team, agent)
        )
        return [handoff for _, _, handoff in queue[:limit]]

    async def held(self, team: str, process: str) -> Sequence[Handoff]:
        """Return what `process` holds."""
        return self._committed().held(team, process)

    async def due(self, *, now: int, limit: int) -> Sequence[Handoff]:
        """Return what came due at or before `now`, oldest first."""
        due = sorted(
            (row.due_at, key, row.handoff)
            for key, row in self._committed().pending.items()
            if row.due_at is not None and row.due_at <= now
        )
        return [handoff for _, _, handoff in due[:limit]]

    async def unfinished(self, team: str, correlation_id: str) -> Sequence[Handoff]:
        """Return what has no outcome yet of a chain, in the order of ids."""
        pending = (row.handoff for row in self._committed().pending.values())
        of_chain = (h for h in pending if (h.team, h.correlation_id) == (team, correlation_id))
        return sorted((h for h in of_chain if not h.final), key=lambda handoff: handoff.id)

    async def append(self, changes: Changes) -> Sequence[int]:
        """Gather `changes`; return the `seq` that each entry will have."""
        ends = Counter({team: head.seq for team, head in self._tables.heads.items()})
        ends.update(draft.team for earlier in self.appended for draft in earlier.entries)
        self.appended.append(changes)
        seqs: list[int] = []
        for draft in changes.entries:
            ends[draft.team] += 1
            seqs.append(ends[draft.team])
        return seqs

    def _committed(self) -> "_Tables":
        assert not self.appended, "append comes last in a unit of work"
        return self._tables


class _Tables:
    """What is committed, and how a unit of work is applied to it."""

    def __init__(self) -> None:
        self.teams: dict[str, Team] = {}
        self.heads: dict[str, Head] = {}
        self.log: dict[str, dict[int, Entry]] = {}
        self.places: dict[tuple[str, str, int], int] = {}
        self.commands: dict[tuple[str, str, str], list[int]] = {}
        self.requests: dict[tuple[str, int], bytes] = {}
        """The digests of requests, by (team, seq) of what they wrote."""
        self.bodies: dict[tuple[str, str, int], Body] = {}
        self.inboxes: dict[Key, list[Mail]] = {}
        self.horizons: dict[str, Horizon] = {}
        self.rows: dict[Key, Row] = {}
        self.pending: dict[Key, Row] = {}
        """The rows that may still be due, taken, held or queued: few, where all may be many."""
        self.keys: dict[tuple[str, str, str], KeyUse] = {}
        self.agents: dict[Key, Agent] = {}
        self.manifests: dict[tuple[str, str, int], bytes] = {}
        self.processes: dict[Key, Process] = {}
        self.tokens: dict[Key, Token] = {}
        self.records: dict[tuple[str, str, str], Record] = {}

    def held(self, team: str, process: str) -> list[Handoff]:
        """Return what a process holds, in the order of ids."""
        rows = (row.handoff for row in self.pending.values() if row.held)
        held = (handoff for handoff in rows if (handoff.team, handoff.process) == (team, process))
        return sorted(held, key=lambda handoff: handoff.id)

    def place(self, team: str, seq: int) -> Place:
        """Return where an entry stands."""
        entry = self.log[team][seq]
        return Place(
            seq=seq,
            handoff_id=entry.handoff_id,
            version=entry.version,
            type=entry.type,
            request=self.requests.get((team, seq)),
        )

    def check(self, batches: Sequence[Changes]) -> None:
        """Find what would make applying fail halfway, before it begins."""
        drafts = [draft for changes in batches for draft in changes.entries]
        assert all(draft.team in self.teams for draft in drafts), (
            "a team is created before it is written to"
        )
        events = [(d.team, d.handoff_id, d.version) for d in drafts if d.version is not None]
        if len(set(events)) < len(events) or not self.places.keys().isdisjoint(events):
            raise RelayFaultError("the store refused a contradiction: two events of one version")

    def apply(self, changes: Changes) -> None:
        for draft in changes.entries:
            head = self.heads.get(draft.team, Head())
            digest = None if draft.body is None else salted_digest(draft.salt, draft.body)
            entry = seal(draft, head, digest)
            self.heads[entry.team] = Head(seq=entry.seq, hash=entry.hash)
            self._keep(entry, draft)
            if draft.request is not None:
                self.requests[entry.team, entry.seq] = draft.request
        for row in changes.rows:
            handoff = row.handoff
            self.rows[handoff.team, handoff.id] = row
            if row.due_at is None and row.rank is None and not row.held and handoff.final:
                self.pending.pop((handoff.team, handoff.id), None)
            else:
                self.pending[handoff.team, handoff.id] = row
        self.keys.update({(use.team, use.sender, use.key): use for use in changes.keys})
        self.processes.update({(each.team, each.id): each for each in changes.processes})
        for key in changes.processes_gone:
            self.processes.pop(key, None)
        for agent, sent in changes.agents:
            self.agents[agent.team, agent.id] = agent
            self.manifests.setdefault((agent.team, agent.id, agent.version), sent)
        self.tokens.update({(token.team, token.id): token for token in changes.tokens})
        self.records.update({(each.team, each.kind, each.id): each for each in changes.records})
        for gone in changes.records_gone:
            self.records.pop(gone, None)

    def _keep(self, entry: Entry, draft: Draft) -> None:
        self.log.setdefault(entry.team, {})[entry.seq] = entry
        if entry.handoff_id is not None and entry.version is not None:
            self.places[entry.team, entry.handoff_id, entry.version] = entry.seq
        if entry.command_id is not None:
            command = (entry.team, entry.actor, entry.command_id)
            self.commands.setdefault(command, []).append(entry.seq)
        if draft.body is not None:
            self.bodies[_body_key(entry)] = Body(salt=draft.salt, body=draft.body)
        for reader, kind in sorted(set(draft.mail)):  # one may be told for two reasons
            item = Mail(
                seq=entry.seq,
                kind=kind,
                at=entry.at,
                actor=entry.actor,
                type=entry.type,
                handoff_id=entry.handoff_id,
                version=entry.version,
            )
            self.inboxes.setdefault((entry.team, reader), []).append(item)

    # --- pruning ---

    def prune(self, horizon: Horizon, forget_before: int) -> int:
        """Cut the log of a team at `horizon`; return how many entries went."""
        team, log = horizon.team, self.log.get(horizon.team, {})
        before = self.horizons.get(team)
        known = before is not None and (before.seq, before.hash) == (horizon.seq, horizon.hash)
        found = horizon.seq in log and log[horizon.seq].hash == horizon.hash
        assert known or found, "a horizon names the last entry that goes"
        cut = [entry for entry in log.values() if entry.seq <= horizon.seq]
        loose = {entry.handoff_id for entry in cut} - {h.id for h in horizon.snapshots}
        for entry in cut:
            self._cut(entry)
        self.drop_bodies(
            key
            for key in self.bodies
            if key[0] == team
            and (
                (key[1] in loose and key not in self.places)
                or (not key[1] and key[2] <= horizon.seq)
            )
        )
        self._forget(horizon, forget_before)
        self.horizons[team] = horizon
        return len(cut)

    def _cut(self, entry: Entry) -> None:
        del self.log[entry.team][entry.seq]
        self.requests.pop((entry.team, entry.seq), None)
        if entry.handoff_id is not None and entry.version is not None:
            del self.places[entry.team, entry.handoff_id, entry.version]
        if entry.command_id is not None:
            self.commands[entry.team, entry.actor, entry.command_id].remove(entry.seq)

    def drop_bodies(self, keys: Iterable[tuple[str, str, int]]) -> int:
        dropped = list(keys)
        for key in dropped:
            del self.bodies[key]
        return len(dropped)

    def _forget(self, horizon: Horizon, forget_before: int) -> None:
        """Drop the handoffs that are over and that the log tells nothing of any more."""
        told = {entry.handoff_id for entry in self.log.get(horizon.team, {}).values()}
        gone = {
            row.handoff.id
            for row in self.rows.values()
            if row.handoff.team == horizon.team
            and not row.open
            and (row.handoff.settled_at or forget_before) < forget_before
            and row.handoff.id not in told
        }
        for handoff_id in gone:
            del self.rows[horizon.team, handoff_id]
        for key, use in list(self.keys.items()):
            if use.team == horizon.team and use.handoff_id in gone:
                del self.keys[key]
        for (team, _), items in self.inboxes.items():
            if team == horizon.team:
                items[:] = [
                    item
                    for item in items
                    if item.seq > horizon.seq
                    or (item.handoff_id is not None and item.handoff_id not in gone)
                ]


def _is_read(entry: Entry, page: LogPage) -> bool:
    wanted = page.type or "*"
    fits = entry.type.startswith(wanted[:-1]) if wanted.endswith("*") else entry.type == wanted
    return (
        entry.seq > page.after
        and fits
        and page.handoff_id in (None, entry.handoff_id)
        and page.correlation_id in (None, entry.correlation_id)
        and page.actor in (None, entry.actor)
    )


def _body_key(entry: Entry) -> tuple[str, str, int]:
    """Where the body of `entry` is kept: under its event, else under its place in the log."""
    if entry.handoff_id is None or entry.version is None:
        return (entry.team, "", entry.seq)
    return (entry.team, entry.handoff_id, entry.version)

"""The working set of one commit: what the commands in it have decided so far.

A later command of the batch sees what an earlier one did. A refused command leaves no trace: each
one is decided by `decide_each`, which undoes its part. Nothing here is durable yet, and nothing here
talks to a store: `relay.loop` loads what is wanted before and writes what came of it after.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from nodrop.log.port import (
    Changes,
    Key,
    KeyUse,
    Loaded,
    Place,
    Process,
    Record,
    Token,
    row_of,
)
from nodrop.model import commands, machine, mail
from nodrop.model.commands import Actor
from nodrop.model.contract import Agent
from nodrop.model.errors import NotFoundError
from nodrop.model.events import Acknowledged, Queued, Updated
from nodrop.model.handoff import Handoff
from nodrop.model.surroundings import Surroundings
from nodrop.protocol import events as wire_events
from nodrop.protocol.entries import Draft

CommandName = tuple[str, str, str]
"""(team, actor, command id)."""

_WORDED: Final = frozenset({Acknowledged, Queued, Updated})
"""Events that may come with words: where there are none, that is remembered."""
_NAMES: Final = {kind: kind.value for kind in mail.Kind}
_EVENT_NAMES: Final = wire_events.NAMES
_ASIDE: Final = mail.ASIDE
_ENDINGS: Final = mail.ENDINGS
_data_of: Final = wire_events.data
_Raw: Final = msgspec.Raw


class Happened(msgspec.Struct, frozen=True, gc=False):
    """An event of the batch that somebody is told of, or that ended its handoff."""

    handoff: Handoff
    entry: int
    """Its place among the batch's entries."""
    type: str
    actor: str
    mail: tuple[mail.Item, ...]


class Batch:
    """Commands decided together, committed together."""

    def __init__(self, loaded: Loaded, *, now: int, salt: Callable[[], bytes]) -> None:
        self.now = now
        self._salt = salt
        self.happened: list[Happened] = []
        self.bodies: dict[tuple[str, str, int], bytes | None] = {}
        """What came with the events; None where a view asks for words that were not said."""
        self._loaded = loaded
        self.handoffs: dict[Key, Handoff] = dict(loaded.handoffs)
        """What is at hand, as the batch has it now."""
        self._held: dict[Key, list[str]] = {}
        for key, rows in loaded.held.items():
            self.admit(rows)
            self._held[key] = [row.id for row in rows]
        self._drafts: list[Draft] = []
        self._keys: dict[tuple[str, str, str], KeyUse] = {}
        self._commands: dict[CommandName, list[Draft]] = {}
        self._written: dict[CommandName, int] = {}
        self.requests: dict[CommandName, bytes | None] = dict.fromkeys(loaded.commands)
        """Every command that was carried out before, or is looked at by this batch.

        With the digest of its request, which is kept with whatever it writes; None: that is not known.
        """
        self._processes: dict[Key, Process] = {}
        self.processes_gone: set[Key] = set()
        """The processes that are dropped."""
        self._agents: list[tuple[Agent, bytes]] = []
        self._tokens: list[Token] = []
        self._records: dict[tuple[str, str, str], Record | None] = {}
        self._undo: list[tuple[Key, Handoff | None]] = []
        self.before: dict[Key, Handoff | None] = {}
        """Every handoff that changed, as it was before the batch: in the order of the rows of `changes`."""
        self._placed: dict[Key, int] = {}
        self._moved: list[tuple[str, Handoff | None, Handoff | None]] = []
        """What is yet to be counted in `_placed`: of a team, a handoff before and after."""
        self._reserved: set[Key] = set()
        self.followed: set[tuple[Key, bool]] = set()
        """(handoff, whether it had ended) for what consequences were looked after."""
        self.stated: list[tuple[str, dict[str, Any]]] = []
        """(team, what the relay adds to what others signed), to be signed with the batch."""

    # --- what is there ---

    def find(self, team: str, handoff_id: str) -> Handoff | None:
        """Return a handoff as the batch has it now."""
        return self.handoffs.get((team, handoff_id))

    def handoff(self, team: str, handoff_id: str) -> Handoff:
        """Return a handoff that must exist."""
        found = self.find(team, handoff_id)
        if found is None:
            raise NotFoundError
        return found

    def legs_before(self, handoff: Handoff) -> list[Handoff]:
        """Return the legs of its chain before a handoff, in order, as far as they are at hand."""
        found = (self.find(handoff.team, leg.id) for leg in handoff.legs_done)
        return [leg for leg in found if leg is not None]

    def admit(self, rows: Sequence[Handoff]) -> list[Handoff]:
        """Take rows the store returned into the working set; return them as the batch has them."""
        keys = [(row.team, row.id) for row in rows]
        for key, row in zip(keys, rows, strict=True):
            self.handoffs.setdefault(key, row)
        return [self.handoffs[key] for key in keys]

    def held(self, team: str, process: str) -> list[Handoff]:
        """Return what a process holds, as the batch has it now."""
        return [self.handoffs[team, handoff_id] for handoff_id in self._held[team, process]]

    def key_use(self, team: str, sender: str, key: str) -> KeyUse | None:
        """Return what an idempotency key was used for, by this batch or before."""
        use = (team, sender, key)
        return self._keys.get(use) or self._loaded.keys.get(use)

    def places(self, command: CommandName) -> Sequence[Place]:
        """Return what a command of this name did, in this batch or before; nothing if it is new."""
        drafts = self._commands.get(command)
        if drafts is None:
            return self._loaded.commands.get(command, ())
        return [
            Place(
                seq=0,
                handoff_id=draft.handoff_id,
                version=draft.version,
                type=draft.type,
                request=draft.request,
            )
            for draft in drafts
        ]

    def written(self, team: str, actor: str, command_id: str | None) -> int | None:
        """Return the index of what a command of this id wrote about the team in this batch."""
        return None if command_id is None else self._written.get((team, actor, command_id))

    def written_by(self, command: CommandName) -> Draft | None:
        """Return what a command of this name wrote about the team in this batch."""
        index = self._written.get(command)
        return None if index is None else self._drafts[index]

    def entry(self, team: str, seq: int) -> Place | None:
        """Return the entry at `seq`, if it was asked for and exists."""
        return self._loaded.entries.get((team, seq))

    # --- what happens ---

    def apply(
        self,
        team: str,
        handoff_id: str,
        command: commands.Command,
        *,
        by: Actor,
        around: Surroundings,
        command_id: str | None = None,
        reserved: bool = False,
    ) -> Handoff:
        """Decide `command` and take what comes of it into the working set.

        An offer that is `reserved` is counted by `Room` until its commit, and not by `placed`.
        """
        key, now, agent = (team, handoff_id), self.now, by.agent
        first = handoff = self.handoffs.get(key)
        facts = machine.decide(first, command, by, now, around)
        if not facts:
            assert first is not None, "deciding on nothing makes something or raises"
            return first
        request, written = None, None
        if command_id is not None:
            asked = (team, agent, command_id)
            request = self.requests.get(asked)
            written = self._commands.setdefault(asked, [])
        drafts = self._drafts
        for fact in facts:
            event, body = fact.event, fact.body
            handoff = machine.evolve(handoff, event, team, handoff_id, agent, now)
            kind, version, readers = type(event), handoff.version, ()
            name = _EVENT_NAMES[kind]
            if kind not in _ASIDE:
                items = mail.items(event, handoff)
                if items or kind in _ENDINGS:
                    self.happened.append(Happened(handoff, len(drafts), name, agent, items))
                    readers = tuple([(item.reader, _NAMES[item.kind]) for item in items])
            draft = Draft(
                team,
                now,
                name,
                agent,
                handoff_id,
                version,
                handoff.correlation_id,
                command_id,
                _Raw(_data_of(event)),
                body,
                request,
                b"" if body is None else self._salt(),
                readers,
            )
            drafts.append(draft)
            if written is not None:
                written.append(draft)
            if body is not None or kind in _WORDED:
                self.bodies[team, handoff_id, version] = body
        assert handoff is not None, "an event was folded"
        self._undo.append((key, first))
        self.before.setdefault(key, first)
        self.handoffs[key] = handoff
        if reserved:
            self._reserved.add(key)
        elif (
            first is None
            or first.outcome is not handoff.outcome
            or first.recipient != handoff.recipient
        ):
            self._moved.append((team, first, handoff))
        return handoff

    def placed(self, team: str, agent: str) -> int:
        """Return how many more unfinished handoffs an agent has by this batch; may be negative."""
        placed = self._placed
        for of, before, after in self._moved:  # few ask, so what moved is counted for them
            if before is not None and before.outcome is None:
                placed[of, before.recipient] = placed.get((of, before.recipient), 0) - 1
            if after is not None and after.outcome is None:
                placed[of, after.recipient] = placed.get((of, after.recipient), 0) + 1
        self._moved.clear()
        return placed.get((team, agent), 0)

    def write(self, draft: Draft) -> int:
        """Add an entry that is about the team; return its index among the batch's entries."""
        at = len(self._drafts)
        if draft.body is not None:
            draft = msgspec.structs.replace(draft, salt=self._salt())
        if draft.command_id is not None:
            command = (draft.team, draft.actor, draft.command_id)
            self._written[command] = at
            if (request := self.requests.get(command)) is not None:
                draft = msgspec.structs.replace(draft, request=request)
        self._drafts.append(draft)
        return at

    def use_key(self, use: KeyUse) -> None:
        """Remember what an idempotency key was used for."""
        self._keys[use.team, use.sender, use.key] = use

    def see(self, process: Process) -> None:
        """Keep a sign of life of a process."""
        self._processes[process.team, process.id] = process
        self.processes_gone.discard((process.team, process.id))

    def sees(self, team: str, process: str, *, heartbeat_ms: int) -> bool:
        """Whether a process is kept already, and looked after at least as often as that."""
        seen = self._processes.get((team, process))
        return seen is not None and seen.heartbeat_ms <= heartbeat_ms

    def forget(self, team: str, process: str) -> None:
        """Drop a process that is gone and holds nothing, unless it shows up again."""
        self.processes_gone.add((team, process))

    @property
    def processes(self) -> Sequence[Process]:
        """The processes that were asked for, as they were last heard of."""
        return list(self._loaded.processes.values())

    def register(self, agent: Agent, manifest: bytes) -> None:
        """Keep an agent and its manifest as sent."""
        self._agents.append((agent, manifest))

    def registered(self, team: str) -> list[str]:
        """Return the agents of a team that this batch has registered so far."""
        return [agent.id for agent, _ in self._agents if agent.team == team]

    def keep_token(self, token: Token) -> None:
        """Keep a token, new or revoked."""
        self._tokens.append(token)

    def record(self, team: str, kind: str, record_id: str) -> Record | None:
        """Return what this batch has put under a record's name; None: nothing."""
        return self._records.get((team, kind, record_id))

    def keep_record(self, record: Record) -> None:
        """Keep a record, in the place of what was under its name."""
        self._records[record.team, record.kind, record.id] = record

    def drop_record(self, team: str, kind: str, record_id: str) -> None:
        """Drop what is under a record's name."""
        self._records[team, kind, record_id] = None

    def decide_each(self, runs: Iterable[Callable[["Batch"], Any]]) -> list[Any]:
        """Return what each of `runs` returns; or what it raises, and then undo what it did."""
        answers: list[Any] = []
        written, said, undo = self._drafts, self.stated, self._undo
        for run in runs:
            undo.clear()
            drafts, stated = len(written), len(said)
            try:
                answers.append(run(self))
            except Exception as error:  # noqa: BLE001  # whatever it is, it is told
                answers.append(error)
                self._undo_from(drafts, stated)
        return answers

    def _undo_from(self, drafts: int, stated: int) -> None:
        for draft in self._drafts[drafts:]:
            if draft.command_id is not None:
                self._commands.pop((draft.team, draft.actor, draft.command_id), None)
                self._written.pop((draft.team, draft.actor, draft.command_id), None)
            if draft.handoff_id is not None and draft.version is not None:
                self.bodies.pop((draft.team, draft.handoff_id, draft.version), None)
        del self._drafts[drafts:]
        while self.happened and self.happened[-1].entry >= drafts:
            self.happened.pop()
        del self.stated[stated:]
        for key, before in reversed(self._undo):
            after = self.handoffs[key]
            if before is not None:
                self.handoffs[key] = before
                self._moved.append((key[0], after, before))
            else:
                del self.handoffs[key]
                if key in self._reserved:
                    self._reserved.discard(key)
                else:
                    self._moved.append((key[0], after, None))
            if before is self.before[key]:
                del self.before[key]

    # --- what came of it ---

    def changes(self) -> Changes:
        """Return everything that must be written."""
        handoffs, records = self.handoffs, self._records
        return Changes(
            entries=self._drafts,
            rows=[row_of(handoffs[key]) for key in self.before],
            keys=list(self._keys.values()),
            processes=list(self._processes.values()),
            processes_gone=sorted(self.processes_gone),
            agents=self._agents,
            tokens=self._tokens,
            records=[record for record in records.values() if record is not None],
            records_gone=[name for name, record in records.items() if record is None],
        )

    def changed(self) -> list[tuple[Handoff | None, Handoff]]:
        """Return every handoff that changed: as it was before the batch, and as it is now."""
        return [(before, self.handoffs[key]) for key, before in self.before.items()]

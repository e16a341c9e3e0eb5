"""A store with a past: handoffs that a real relay could have left, written in bulk.

One handoff is carried out for real, on the real engine with the real SDK, and what the engine
appended is recorded. Each handoff of the past is that record with ids, key and time of its own,
written by the store's own code, a thousand to a commit, without waiting for the disk. So the log,
its chain, rows, bodies, keys and inboxes are what they would be, and a million take minutes.
"""

import asyncio
import contextlib
import random
import re
import secrets
import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from nodrop.client.agent import Agent
from nodrop.client.client import Client
from nodrop.client.working.task import Task
from nodrop.log.memory import MemoryStore
from nodrop.log.port import Changes, KeyUse, Row, Store, Team, Transaction
from nodrop.log.sqlite.database import Database
from nodrop.log.work import Work
from nodrop.model.handoff import Handoff
from nodrop.protocol.entries import Draft
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import T0, FakeClock
from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.cycle import REQUESTER, WORKER

TEAM: Final = "default"
DATABASE: Final = "nodrop.db"
_TOGETHER: Final = 1_000
_APART_MS: Final = 10
"""A hundred handoffs a second, over the whole past."""
_MADE: Final = "filled"


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """What one handoff leaves in a store."""

    id: str
    key: str
    at: int
    """When all of it happened."""
    entries: Sequence[Draft]
    row: Row
    use: KeyUse


async def record(*, finished: bool, now_ms: int = T0) -> Template:
    """Carry out one handoff, to its end or just offered, and return what it leaves.

    What is only offered runs out some time after `now_ms`: the clocks of copies are the template's.
    """
    store = _RecordingStore(MemoryStore())
    relay = await Relay.start(
        cast("Store", store), clock=FakeClock(now_ms), ids=_Ids(), signer=_NoSigner()
    )
    try:
        await relay.ensure_team(TEAM)
        key = cycles.fresh_key()
        requester = Client(_transport(relay, f"{REQUESTER}-0"), agent=f"{REQUESTER}-0")
        handoff = await requester.hand_off(
            to=WORKER, payload=cycles.payload(key), idempotency_key=key
        )
        if finished:
            async with _working(_transport(relay, WORKER)):
                await handoff.result(wait="30s")
    finally:
        await relay.stop()
    entries = [
        draft
        for changes in store.appended
        for draft in changes.entries
        if draft.handoff_id == handoff.id
    ]
    rows = [row for changes in store.appended for row in changes.rows]
    uses = [use for changes in store.appended for use in changes.keys]
    return Template(id=handoff.id, key=key, at=now_ms, entries=entries, row=rows[-1], use=uses[0])


class Fill:
    """Writes a past into one database file, as long as wanted."""

    def __init__(self, path: Path, template: Template, *, now_ms: int, seed: int = 1) -> None:
        self._database = Database(path, vfs=None, synchronous="OFF")
        self._database.create_team(
            Team(id=TEAM, digest_key=secrets.token_bytes(32), created_at=now_ms)
        )
        self._state = self._database.recover()
        self._copying = _Copying(template, random.Random(seed))  # noqa: S311  # no secret
        self._now_ms = now_ms
        self.count = 0

    def reach(self, count: int, *, of: int, progress: Callable[[int], None]) -> None:
        """Write until there are `count` handoffs, the last of `of` just before now."""
        while self.count < count:
            few = min(_TOGETHER, count - self.count)
            first = self._now_ms - (of - self.count) * _APART_MS
            work = Work(cast("Any", None), self._state)  # nothing is read: all of it is new
            work.add(self._copying.changes(first, few))
            self._database.write(work.commit())
            work.merge()
            self.count += few
            progress(self.count)

    def close(self) -> None:
        """Bring everything into the file."""
        self._database.write_behind(self._state.all_of(TEAM))
        self._database.close()


def filled(
    folders: dict[int, Path],
    template: Template,
    *,
    now_ms: int,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Make a home with each number of past handoffs, the larger ones by going on from the smaller.

    A folder that was filled before is left as it is.
    """
    missing = sorted(n for n, folder in folders.items() if not (folder / _MADE).exists())
    before: Path | None = None
    written = 0
    for count in missing:
        home = folders[count] / "home"
        home.mkdir(parents=True)
        if before is not None:
            shutil.copyfile(before, home / DATABASE)
        fill = Fill(home / DATABASE, template, now_ms=now_ms, seed=count)
        fill.count = written
        fill.reach(count, of=missing[-1], progress=progress)
        fill.close()
        (folders[count] / _MADE).touch()
        before, written = home / DATABASE, count


# --- copies -------------------------------------------------------------------------------------


class _Copying:
    """Makes handoffs that differ from the template in id, key, command ids and time."""

    def __init__(self, template: Template, chance: random.Random) -> None:
        self._template = template
        self._chance = chance
        self._row = _Pattern(msgspec.json.encode(template.row.handoff), template)
        self._entries = [
            (
                draft,
                _Pattern(bytes(draft.data), template),
                None if draft.body is None else _Pattern(draft.body, template),
            )
            for draft in template.entries
        ]
        self._decoder = msgspec.json.Decoder(Handoff)

    def changes(self, first_ms: int, count: int) -> Changes:
        entries: list[Draft] = []
        rows: list[Row] = []
        uses: list[KeyUse] = []
        for number in range(count):
            at = first_ms + number * _APART_MS
            handoff_id = self._id(at)
            key = f"{self._chance.getrandbits(128):032x}"
            own = (handoff_id.encode(), key.encode(), b"%d" % at)
            self._add(entries, at, handoff_id, own)
            row = self._row.with_(own)
            replace = msgspec.structs.replace
            rows.append(replace(self._template.row, handoff=self._decoder.decode(row)))
            uses.append(replace(self._template.use, handoff_id=handoff_id, key=key))
        return Changes(entries=entries, rows=rows, keys=uses)

    def _add(self, entries: list[Draft], at: int, handoff_id: str, own: "_Own") -> None:
        commands: dict[str, str] = {}
        for draft, data, body in self._entries:
            command = draft.command_id
            if command is not None:
                command = commands.setdefault(command, self._id(at))
            entries.append(
                msgspec.structs.replace(
                    draft,
                    at=at,
                    handoff_id=handoff_id,
                    correlation_id=handoff_id if draft.correlation_id else None,
                    command_id=command,
                    data=msgspec.Raw(data.with_(own)),
                    body=None if body is None else body.with_(own),
                )
            )

    def _id(self, at: int) -> str:
        """Return a UUIDv7 of that time."""
        time, chance = f"{at:012x}", f"{self._chance.getrandbits(72):018x}"
        return f"{time[:8]}-{time[8:]}-7{chance[:3]}-8{chance[3:6]}-{chance[6:]}"


_Own = tuple[bytes, bytes, bytes]
"""What a handoff has of its own: its id, its key, its time."""


class _Pattern:
    """Bytes of the template, with the places where what is its own stands."""

    def __init__(self, text: bytes, template: Template) -> None:
        own = (template.id.encode(), template.key.encode(), b"%d" % template.at)
        self._pieces = re.split(b"(" + b"|".join(map(re.escape, own)) + b")", text)
        self._places = [(n, own.index(self._pieces[n])) for n in range(1, len(self._pieces), 2)]

    def with_(self, own: _Own) -> bytes:
        """Return the same with something else in these places."""
        pieces = self._pieces.copy()
        for place, which in self._places:
            pieces[place] = own[which]
        return b"".join(pieces)


# --- the recording ------------------------------------------------------------------------------


class _RecordingStore:
    """A store that remembers what was appended."""

    def __init__(self, store: Store) -> None:
        self.appended: list[Changes] = []
        self._store = store

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Transaction]:
        async with self._store.transaction() as work:
            yield cast("Transaction", _RecordingTransaction(work, self.appended))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _RecordingTransaction:
    def __init__(self, work: Transaction, appended: list[Changes]) -> None:
        self._work = work
        self._appended = appended

    async def append(self, changes: Changes) -> Sequence[int]:
        self._appended.append(changes)
        return await self._work.append(changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


@asynccontextmanager
async def _working(transport: InProcessTransport) -> AsyncGenerator[None]:
    agent = Agent(WORKER)

    @agent.handler
    async def answer(task: Task) -> Any:
        return cycles.result(task.payload)

    serving = asyncio.create_task(agent.serve(transport=transport))
    try:
        yield
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def _transport(relay: Relay, agent: str) -> InProcessTransport:
    return InProcessTransport(relay, Caller(team=TEAM, agent=agent), on_close=_nothing)


async def _nothing() -> None:
    return


class _Ids:
    def new(self) -> str:
        return f"00000000-0000-7000-8000-{secrets.token_hex(6)}"

    def secret(self) -> str:
        return secrets.token_hex()

    def salt(self) -> bytes:
        return secrets.token_bytes(16)


class _NoSigner:
    public_key = "none"

    def sign(self, message: bytes) -> str:
        return f"none over {len(message)} bytes"

"""Webhooks: who wants to be told over HTTP how one handoff goes on, and how far it was told.

The log is the outbox. A webhook is a record with a cursor into it: whatever stands behind the
cursor is still to be sent, after a crash too, and nothing is written twice for that. Sending is a
door's business; the cursor moves when it says that something has arrived.

Several engines may share the store, and one of them sends. What was asked for and how far it came
are records of their own, so that whoever sends cannot bring back what was dropped elsewhere; that
something was asked for is in the log, so that whoever sends hears of it.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
from msgspec.structs import replace

from nodrop.log.port import Key, Record, Store, Wanted
from nodrop.model.errors import LimitReachedError
from nodrop.protocol import canonical
from nodrop.protocol.entries import Draft
from nodrop.relay.batch import Batch
from nodrop.relay.engine import Engine
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.ports import Ids

KIND: Final = "webhook"
PROGRESS: Final = "webhook_progress"
ENDED: Final = "webhook_ended"
"""Out of the way of what is still to be told: there are ever more of them."""
SET: Final = "webhook.set.v1"
REMOVED: Final = "webhook.removed.v1"
_SWEPT_TOGETHER: Final = 500


class Webhook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where one party of a handoff wants to hear of it."""

    team: str
    handoff_id: str
    id: str
    owner: str
    """The agent that asked for it, and with whose eyes it is told."""
    url: str
    token: str | None = None
    scheme: str | None = None
    credentials: str | None = None
    setting: str = ""
    """Set anew, it is another."""
    sent: int = 0
    """The `seq` up to which it has been told."""
    ended: bool = False
    """Nothing more is to be told: the outcome has arrived, or the relay gave up."""

    @property
    def record_id(self) -> str:
        """What it is kept under."""
        return f"{self.handoff_id}/{self.id}"

    @property
    def handoff(self) -> Key:
        """What it is about."""
        return self.team, self.handoff_id


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a webhook has been told."""

    setting: str
    """Of the webhook that it is about."""
    sent: int


class Webhooks:
    """The webhooks of every handoff."""

    def __init__(self, engine: Engine, store: Store, *, ids: Ids) -> None:
        self._told: list[Callable[[Key], None]] = []
        self._engine = engine
        self._store = store
        self._ids = ids

    @contextmanager
    def telling(self, told: Callable[[Key], None]) -> Generator[None]:
        """While the block runs, call `told` when a webhook of a handoff was set or dropped, here or elsewhere."""
        self._told.append(told)
        try:
            yield
        finally:
            self._told.remove(told)

    def changed(self, handoff: Key) -> None:
        """Tell that a webhook of a handoff was set or dropped."""
        for told in self._told:
            told(handoff)

    # --- what there is ---

    async def of(self, team: str, handoff_id: str, *, owner: str) -> list[Webhook]:
        """Return the webhooks that `owner` has for a handoff, in the order of their ids."""
        kept = await self._kept((team, handoff_id))
        return [hook for _, hook in sorted(kept.items()) if hook.owner == owner]

    async def pending(self, handoff: Key | None = None) -> list[Webhook]:
        """Return the webhooks, of a handoff or all, that may still have something to be told."""
        of = None if handoff is None else _under(handoff)
        hooks = [_read(record) for record in await self._store.records(KIND, of=of)]
        if not hooks:
            return []
        told = {
            (record.team, record.id): msgspec.json.decode(record.json, type=Progress)
            for record in await self._store.records(PROGRESS, of=of)
        }
        return [
            _come(hook, told.get((hook.team, hook.record_id))) for hook in hooks if not hook.ended
        ]

    async def find(self, hook: Webhook) -> Webhook | None:
        """Return how far a webhook has come; None: it has ended, is gone, or was set anew."""
        pending = {(each.id, each.setting): each for each in await self.pending(hook.handoff)}
        return pending.get((hook.id, hook.setting))

    # --- what callers ask for ---

    async def put(self, hook: Webhook) -> Webhook:
        """Keep a webhook, in the place of one of the same id."""
        kept = await self._kept(hook.handoff)
        most = self._engine.limits.webhooks_per_handoff_max
        if hook.id not in kept and len(kept) >= most:
            raise LimitReachedError(f"handoff {hook.handoff_id} has {most} webhooks")
        hook = replace(hook, setting=self._ids.new())

        def run(batch: Batch) -> None:
            _drop(batch, hook.team, hook.record_id)
            _keep(batch, hook, ENDED if hook.ended else KIND)
            _write(batch, hook, SET)

        await self._change(hook, run)
        return hook

    async def drop(self, hook: Webhook) -> None:
        """Forget a webhook."""

        def run(batch: Batch) -> None:
            _drop(batch, hook.team, hook.record_id)
            _write(batch, hook, REMOVED)

        await self._change(hook, run)

    # --- what whoever sends tells ---

    async def advance(self, hook: Webhook, *, sent: int) -> None:
        """Move the cursor of a webhook."""
        progress = Progress(setting=hook.setting, sent=sent)

        def run(batch: Batch) -> None:
            data = msgspec.json.encode(progress)
            batch.keep_record(Record(team=hook.team, kind=PROGRESS, id=hook.record_id, json=data))

        await self._engine.submit(FunctionJob(Wanted(), run))

    async def end(self, hook: Webhook) -> None:
        """Tell a webhook nothing more, unless it was dropped or set anew meanwhile."""
        if await self.find(hook) is None:
            return

        def run(batch: Batch) -> None:
            _drop(batch, hook.team, hook.record_id)
            _keep(batch, replace(hook, ended=True), ENDED)

        await self._engine.submit(FunctionJob(Wanted(), run))

    async def sweep(self) -> None:
        """Forget the webhooks of handoffs that were pruned."""
        for kind in (KIND, ENDED, PROGRESS):
            records = await self._store.records(kind)
            for start in range(0, len(records), _SWEPT_TOGETHER):
                await self._sweep(records[start : start + _SWEPT_TOGETHER])

    async def _sweep(self, records: Sequence[Record]) -> None:
        about = {(r.team, r.id): (r.team, r.id.partition("/")[0]) for r in records}
        there = {(h.team, h.id) for h in await self._store.handoffs(list(set(about.values())))}
        gone = [key for key, handoff in about.items() if handoff not in there]

        def run(batch: Batch) -> None:
            for team, record_id in gone:
                _drop(batch, team, record_id)

        if gone:
            await self._engine.submit(FunctionJob(Wanted(), run))

    async def _kept(self, handoff: Key) -> dict[str, Webhook]:
        of = _under(handoff)
        records = [r for kind in (KIND, ENDED) for r in await self._store.records(kind, of=of)]
        return {hook.id: hook for hook in map(_read, records)}

    async def _change(self, hook: Webhook, run: Callable[[Batch], None]) -> None:
        try:
            await self._engine.submit(FunctionJob(Wanted(), run))
        finally:
            self.changed(hook.handoff)  # also where nobody knows whether it was kept


def _under(handoff: Key) -> Key:
    team, handoff_id = handoff
    return team, f"{handoff_id}/"


def _read(record: Record) -> Webhook:
    return msgspec.json.decode(record.json, type=Webhook)


def _come(hook: Webhook, told: Progress | None) -> Webhook:
    if told is None or told.setting != hook.setting:
        return hook
    return replace(hook, sent=max(hook.sent, told.sent))


def _keep(batch: Batch, hook: Webhook, kind: str) -> None:
    data = msgspec.json.encode(hook)
    batch.keep_record(Record(team=hook.team, kind=kind, id=hook.record_id, json=data))


def _drop(batch: Batch, team: str, record_id: str) -> None:
    for kind in (KIND, ENDED, PROGRESS):
        batch.drop_record(team, kind, record_id)


def _write(batch: Batch, hook: Webhook, name: str) -> None:
    """Write down that a handoff is told of, or no longer; not where, or with which secrets."""
    batch.write(
        Draft(
            team=hook.team,
            at=batch.now,
            type=name,
            actor=hook.owner,
            handoff_id=hook.handoff_id,
            data=msgspec.Raw(canonical.dumps({"id": hook.id})),
        )
    )

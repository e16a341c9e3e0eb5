"""Webhooks: who wants to be told over HTTP how one handoff goes on, and how far it was told.

The log is the outbox. A webhook is a record with a cursor into it: whatever stands behind the
cursor is still to be sent, after a crash too, and nothing is written twice for that. Sending is a
door's business; the cursor moves when it says that something has arrived.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from nodrop.core.errors import LimitReachedError
from nodrop.engine.batch import Batch
from nodrop.engine.engine import Engine
from nodrop.engine.jobs import Job
from nodrop.store import Record, Store, Wanted

KIND: Final = "webhook"


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
    sent: int = 0
    """The `seq` up to which it has been told."""
    ended: bool = False
    """Nothing more is to be told: the outcome has arrived, or the relay gave up."""

    @property
    def record_id(self) -> str:
        """What it is kept under."""
        return f"{self.handoff_id}/{self.id}"


class Webhooks:
    """The webhooks of every handoff."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._known: defaultdict[tuple[str, str], dict[str, Webhook]] = defaultdict(dict)

    async def load(self) -> None:
        """Read what the store knows; what it was about may have been pruned, then it goes too.

        At a start: to let go of what was pruned takes a commit.
        """
        found = [
            msgspec.json.decode(record.json, type=Webhook)
            for record in await self._store.records(KIND)
        ]
        keys = {(hook.team, hook.handoff_id) for hook in found}
        there = {(h.team, h.id) for h in await self._store.handoffs(list(keys))}
        self._known.clear()
        for hook in found:
            if (hook.team, hook.handoff_id) in there:
                self._known[hook.team, hook.handoff_id][hook.id] = hook
            else:
                await self.drop(hook)

    def of(self, team: str, handoff_id: str, *, owner: str) -> Sequence[Webhook]:
        """Return the webhooks that `owner` has for a handoff, in the order of their ids."""
        known = self._known.get((team, handoff_id), {})
        return [hook for _, hook in sorted(known.items()) if hook.owner == owner]

    def find(self, hook: Webhook) -> Webhook | None:
        """Return a webhook as it is now; None: it is gone."""
        return self._known.get((hook.team, hook.handoff_id), {}).get(hook.id)

    def pending(self) -> list[Webhook]:
        """Return every webhook that may still have something to be told."""
        return [hook for known in self._known.values() for hook in known.values() if not hook.ended]

    async def put(self, hook: Webhook) -> Webhook:
        """Keep a webhook, in the place of one of the same id."""
        known = self._known.get((hook.team, hook.handoff_id), {})
        most = self._engine.limits.webhooks_per_handoff_max
        if hook.id not in known and len(known) >= most:
            raise LimitReachedError(f"handoff {hook.handoff_id} has {most} webhooks")
        data = msgspec.json.encode(hook)
        record = Record(team=hook.team, kind=KIND, id=hook.record_id, json=data)

        def run(batch: Batch) -> None:
            batch.keep_record(record)

        await self._engine.submit(Job(Wanted(), run))
        self._known[hook.team, hook.handoff_id][hook.id] = hook
        return hook

    async def drop(self, hook: Webhook) -> None:
        """Forget a webhook."""

        def run(batch: Batch) -> None:
            batch.drop_record(hook.team, KIND, hook.record_id)

        await self._engine.submit(Job(Wanted(), run))
        self._known.get((hook.team, hook.handoff_id), {}).pop(hook.id, None)

    async def advance(self, hook: Webhook, *, sent: int, ended: bool = False) -> Webhook | None:
        """Move the cursor of a webhook, unless it is gone or was replaced meanwhile."""
        now = self.find(hook)
        if now is None or now.url != hook.url or now.owner != hook.owner:
            return None
        return await self.put(msgspec.structs.replace(now, sent=sent, ended=ended))

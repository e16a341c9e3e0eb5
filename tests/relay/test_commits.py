"""What follows from an outcome is in its commit: opening a leg costs none of its own."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from nodrop import app
from nodrop.log.memory import MemoryStore
from nodrop.model.errors import StoreUnavailableError
from nodrop.model.limits import MINUTE
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock


class CountingStore(MemoryStore):
    """Counts its transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.gone_after_commit = False

    def transaction(self) -> Any:
        self.commits += 1
        return super().transaction()

    async def next_due(self) -> int | None:
        if self.gone_after_commit:
            raise StoreUnavailableError
        return await super().next_due()


class Office:
    """A relay, and the agents at its door."""

    def __init__(self, relay: Relay, store: CountingStore, clock: FakeClock) -> None:
        self._relay = relay
        self._store = store
        self._clock = clock

    def lose_the_store_after_the_next_commit(self) -> None:
        """Have a clock run out, so that the next due time is asked for, which fails."""
        self._store.gone_after_commit = True
        self._clock.advance(20 * MINUTE)

    async def member(self, name: str) -> InProcessTransport:
        await self._relay.ensure_token("default", agent=name, role="agent", secret=f"nd_{name}")
        return InProcessTransport(self._relay, await self._relay.authenticate(f"nd_{name}"))

    async def taken(self, offer: dict[str, Any]) -> str:
        """Hand something to the worker, who has it then."""
        asker, worker = await self.member("asker"), await self.member("worker")
        made = (await asker.call("offer", {"to": "worker", **offer}))["handoff"]["id"]
        await worker.call("ack", {}, handoff=made)
        return made

    async def commits(self, operation: str, handoff: str, **fields: Any) -> int:
        """Return how many transactions it takes to end it."""
        worker = await self.member("worker")
        before = self._store.commits
        await worker.call(operation, {"attempt": 1, **fields}, handoff=handoff)
        return self._store.commits - before

    async def inbox(self, name: str) -> list[str]:
        items = (await (await self.member(name)).call("inbox", {}))["items"]
        return [item["kind"] for item in items]


@pytest.fixture
async def office(tmp_path: Path) -> AsyncGenerator[Office]:
    store, clock = CountingStore(), FakeClock()
    relay = await Relay.start(
        store, clock=clock, ids=app.SystemIds(), signer=app.KeyFile(tmp_path / "relay.pem")
    )
    await relay.ensure_team("default")
    yield Office(relay, store, clock)
    await relay.stop()


async def test_a_result_takes_one_commit(office: Office) -> None:
    made = await office.taken({})
    assert await office.commits("complete", made, result=1) == 1


async def test_opening_the_next_leg_takes_none_of_its_own(office: Office) -> None:
    made = await office.taken({"then": [{"to": "next"}, {"to": "last"}]})
    assert await office.commits("complete", made, result=1) == 1
    assert await office.inbox("next") == ["handoff"], "it is open"


async def test_nor_does_a_fallback(office: Office) -> None:
    made = await office.taken({"then": [{"to": "next", "on": "failed"}]})
    assert await office.commits("fail", made, reason="no") == 1
    assert await office.inbox("next") == ["handoff"]


async def test_nor_does_calling_off_what_is_below(office: Office) -> None:
    made = await office.taken({})
    worker = await office.member("worker")
    await worker.call("offer", {"to": "helper", "parent_id": made})
    assert await office.inbox("helper") == ["handoff"]
    assert await office.commits("fail", made, reason="no") == 1
    assert await office.inbox("helper") == [], "cancelled in the same commit"


async def test_what_is_committed_is_told_though_the_store_is_gone_right_after(
    office: Office,
) -> None:
    asker = await office.member("asker")
    await asker.call("offer", {"to": "worker"})
    office.lose_the_store_after_the_next_commit()
    told = await asker.call("offer", {"to": "worker", "idempotency_key": "k"})
    assert told["handoff"]["state"] == "offered"

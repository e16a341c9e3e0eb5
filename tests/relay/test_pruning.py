"""What pruning keeps of handoffs: those that somebody still has to do something about."""

from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from nodrop import app
from nodrop.log.memory import MemoryStore
from nodrop.relay.coordination.webhooks import ENDED, KIND, PROGRESS, Webhook
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

DAY = 86_400_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def relay(store: MemoryStore, clock: FakeClock, tmp_path: Path) -> AsyncGenerator[Relay]:
    signer = app.KeyFile(tmp_path / "relay.pem")
    relay = await Relay.start(store, clock=clock, ids=app.SystemIds(), signer=signer)
    await relay.ensure_team("default")
    yield relay
    await relay.stop()


async def member(relay: Relay, name: str) -> InProcessTransport:
    await relay.ensure_token("default", agent=name, role="agent", secret=f"nd_{name}")
    return InProcessTransport(relay, await relay.authenticate(f"nd_{name}"))


@pytest.mark.parametrize("fallback", [True, False])
async def test_a_leg_that_its_fallback_replaced_is_nobodys_to_decide_about(
    relay: Relay, store: MemoryStore, clock: FakeClock, *, fallback: bool
) -> None:
    asker, first, second = [await member(relay, name) for name in ("asker", "first", "second")]
    then = [{"to": "second", "on": "failed"}] if fallback else []
    offer = {"to": "first", "payload": {"secret": 1}, "then": then}
    failed = (await asker.call("offer", offer))["handoff"]["id"]
    await first.call("ack", {}, handoff=failed)
    await first.call("fail", {"attempt": 1}, handoff=failed)
    ended = failed
    if fallback:
        [delivery] = (await second.call("take", {}))["deliveries"]
        ended = delivery["handoff"]["id"]
        await second.call("ack", {"attempt": 1}, handoff=ended)
        await second.call("complete", {"attempt": 1, "result": 2}, handoff=ended)
    await asker.call("settle", {}, handoff=ended)
    clock.advance(30 * DAY)
    await asker.call("note_team", {"text": "a month later"})
    assert await relay.prune("default", older_than_ms=7 * DAY) > 0
    horizon = await store.horizon("default")
    assert horizon is not None
    assert [handoff.id for handoff in horizon.snapshots] == ([] if fallback else [failed])
    kept = await store.bodies("default", [(failed, 1)])
    assert bool(kept) is not fallback, "its words go with it"


async def test_who_wanted_to_hear_of_what_is_pruned_is_forgotten(
    relay: Relay, store: MemoryStore, clock: FakeClock
) -> None:
    asker, worker = await member(relay, "asker"), await member(relay, "worker")
    hooks: dict[str, Webhook] = {}
    for name in ("pruned", "kept"):
        handoff = (await asker.call("offer", {"to": "worker", "deadline": "60d"}))["handoff"]["id"]
        hook = Webhook(
            team="default", handoff_id=handoff, id="w", owner="asker", url="https://a.example"
        )
        hooks[name] = await relay.webhooks.put(hook)
        await relay.webhooks.put(msgspec.structs.replace(hook, id="told", ended=True))
        await relay.webhooks.advance(hooks[name], sent=3)
    pruned = hooks["pruned"].handoff_id
    await worker.call("ack", {}, handoff=pruned)
    await worker.call("complete", {"attempt": 1}, handoff=pruned)
    await asker.call("settle", {}, handoff=pruned)
    clock.advance(30 * DAY)
    await asker.call("note_team", {"text": "a month later"})
    assert await relay.prune("default", older_than_ms=7 * DAY) > 0
    left = [record for kind in (KIND, ENDED, PROGRESS) for record in await store.records(kind)]
    kept = hooks["kept"].handoff_id
    assert [record.id for record in left] == [f"{kept}/w", f"{kept}/told", f"{kept}/w"]
    assert await relay.webhooks.pending() == [msgspec.structs.replace(hooks["kept"], sent=3)]

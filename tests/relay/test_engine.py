"""Group commit: what shares a transaction, and what callers are told when it fails."""

import asyncio

import pytest

from nodrop.model.errors import (
    NotFoundError,
    RelayFaultError,
    StoreFullError,
    StoreUnavailableError,
    UnavailableError,
)
from nodrop.protocol import requests
from nodrop.protocol.views import (
    DeliveriesAnswer,
    HandoffAnswer,
    HandoffsAnswer,
    HandoffView,
    LogAnswer,
    PushView,
    View,
)
from nodrop.relay.relay import Caller, Relay
from nodrop.testing.clock import FakeClock
from nodrop_proof.kit.faulty import Fault, FaultyStore

SENDER = Caller(team="default", agent="inbox_monitor")
RECIPIENT = Caller(team="default", agent="code_agent")


def offer(n: int = 0) -> requests.Offer:
    return requests.Offer(to="code_agent", title=f"bug {n}", command_id=f"c{n}")


async def handoff_id(relay: Relay, n: int = 0) -> str:
    answer = (await relay.call(SENDER, "offer", offer(n))).answer
    assert isinstance(answer, HandoffAnswer)
    return answer.handoff.id


async def size(relay: Relay) -> int:
    answer: View = (await relay.call(SENDER, "log", requests.GetLog(limit=500))).answer
    assert isinstance(answer, LogAnswer)
    return answer.after


async def test_commands_that_arrive_together_share_one_commit(
    relay: Relay, store: FaultyStore
) -> None:
    before = store.transactions
    await asyncio.gather(*(relay.call(SENDER, "offer", offer(n)) for n in range(100)))
    assert store.transactions - before == 1


async def test_no_answer_leaves_before_its_commit(relay: Relay, store: FaultyStore) -> None:
    store.gate.clear()
    waiting = asyncio.ensure_future(relay.call(SENDER, "offer", offer()))
    taking = asyncio.ensure_future(
        relay.call(RECIPIENT, "take", requests.Take(wait="60s", heartbeat_seconds=10))
    )
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert not taking.done()
    store.gate.set()
    async with asyncio.timeout(30):
        await waiting
        await taking


async def test_a_failed_commit_is_told_to_everybody_in_it_and_nothing_is_kept(
    relay: Relay, store: FaultyStore
) -> None:
    before = await size(relay)
    store.fail_next(Fault.BEFORE_COMMIT, StoreFullError())
    answers = await asyncio.gather(
        *(relay.call(SENDER, "offer", offer(n)) for n in range(3)), return_exceptions=True
    )
    assert [type(a) for a in answers] == [StoreFullError] * 3
    assert await size(relay) == before
    await asyncio.gather(*(relay.call(SENDER, "offer", offer(n)) for n in range(3)))
    assert await size(relay) == before + 3


async def test_a_commit_nobody_was_told_of_is_found_by_its_command_id(
    relay: Relay, store: FaultyStore
) -> None:
    store.fail_next(Fault.AFTER_COMMIT)
    with pytest.raises(StoreUnavailableError) as refused:
        await relay.call(SENDER, "offer", offer())
    assert refused.value.retryable
    again = await relay.call(SENDER, "offer", offer())
    assert again.replayed
    listed = (await relay.call(SENDER, "list_handoffs", requests.ListHandoffs())).answer
    assert isinstance(listed, HandoffsAnswer)
    assert len(listed.handoffs) == 1


async def test_one_refused_command_does_not_disturb_the_others_in_its_batch(
    relay: Relay,
) -> None:
    unknown = relay.call(SENDER, "cancel", requests.Cancel(), reference="0" * 36)
    answers = await asyncio.gather(
        relay.call(SENDER, "offer", offer(1)),
        unknown,
        relay.call(SENDER, "offer", offer(2)),
        return_exceptions=True,
    )
    assert [type(a).__name__ for a in answers] == ["Reply", "NotFoundError", "Reply"]
    assert isinstance(answers[1], NotFoundError)


async def test_the_same_command_twice_in_one_batch_is_carried_out_once(relay: Relay) -> None:
    before = await size(relay)
    answers = await asyncio.gather(*(relay.call(SENDER, "offer", offer()) for _ in range(50)))
    ids = {a.answer.handoff.id for a in answers if isinstance(a.answer, HandoffAnswer)}
    assert len(ids) == 1
    assert await size(relay) == before + 1


async def test_a_takers_wait_survives_a_failed_commit(relay: Relay, store: FaultyStore) -> None:
    waiting = asyncio.ensure_future(
        relay.call(RECIPIENT, "take", requests.Take(wait="60s", heartbeat_seconds=10))
    )
    for _ in range(10):
        await asyncio.sleep(0)
    store.fail_next(Fault.BEFORE_COMMIT)
    with pytest.raises(StoreUnavailableError):
        await relay.call(SENDER, "offer", offer(1))
    await relay.call(SENDER, "offer", offer(1))
    async with asyncio.timeout(30):
        await waiting


async def test_a_timer_that_met_a_failing_store_is_tried_again(
    relay: Relay, store: FaultyStore, clock: FakeClock
) -> None:
    made = await handoff_id(relay)
    store.fail_next(Fault.BEFORE_COMMIT)
    clock.advance(24 * 3_600_000)
    finished = asyncio.ensure_future(
        relay.call(SENDER, "get_handoff", requests.GetHandoff(wait="60s"), reference=made)
    )
    async with asyncio.timeout(30):
        while not finished.done():
            await asyncio.sleep(0)
            clock.advance(100)
    answer = finished.result().answer
    assert isinstance(answer, HandoffAnswer)
    assert answer.handoff.state == "expired"


async def test_an_idle_relay_touches_nothing_however_many_wait(
    relay: Relay, store: FaultyStore
) -> None:
    made = await handoff_id(relay)
    wait = requests.GetHandoff(wait="60s")
    waiting = [
        asyncio.ensure_future(relay.call(SENDER, "get_handoff", wait, reference=made))
        for _ in range(200)
    ]
    for _ in range(50):
        await asyncio.sleep(0)
    before = store.transactions
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert store.transactions == before
    for task in waiting:
        task.cancel()


async def test_a_stopped_relay_refuses_and_says_so(relay: Relay) -> None:
    await relay.stop()
    with pytest.raises(UnavailableError):
        await relay.call(SENDER, "offer", offer())


async def test_a_defect_is_told_as_ours_and_the_next_command_works(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    made = await handoff_id(relay)
    with monkeypatch.context() as patched:
        patched.setattr("nodrop.model.machine.decide", broken)
        with pytest.raises(RelayFaultError):
            await relay.call(RECIPIENT, "ack", requests.Ack(), reference=made)
    await relay.call(RECIPIENT, "ack", requests.Ack(), reference=made)


async def test_a_lease_that_met_a_failing_store_lapses_all_the_same(
    relay: Relay, store: FaultyStore, clock: FakeClock
) -> None:
    made = await handoff_id(relay)
    await relay.call(RECIPIENT, "take", requests.Take(heartbeat_seconds=10))
    await relay.call(RECIPIENT, "ack", requests.Ack(attempt=1), reference=made)
    store.fail_next(Fault.BEFORE_COMMIT)
    clock.advance(30_000)
    async with asyncio.timeout(30):
        while (await _shown(relay, made)).state == "accepted":
            await asyncio.sleep(0)
            clock.advance(100)
    assert (await _shown(relay, made)).tries == 1


async def _shown(relay: Relay, made: str) -> HandoffView:
    answer = (await relay.call(SENDER, "get_handoff", requests.GetHandoff(), reference=made)).answer
    assert isinstance(answer, HandoffAnswer)
    return answer.handoff


async def test_a_delivery_nobody_was_told_of_is_pushed_when_the_store_answers_again(
    relay: Relay, store: FaultyStore, clock: FakeClock
) -> None:
    pushed: list[PushView] = []
    subscription = relay.subscribe(
        RECIPIENT, process="p", heartbeat_seconds=10, deliver=pushed.extend
    )
    subscription.grant(5)
    store.fail_next(Fault.AFTER_COMMIT)
    store.fail_next(Fault.BEFORE_COMMIT)  # not even that can be found out at once
    with pytest.raises(StoreUnavailableError):
        await relay.call(SENDER, "offer", offer())
    async with asyncio.timeout(30):
        while not pushed:
            await asyncio.sleep(0)
            clock.advance(100)
    assert [(d.handoff.title, d.attempt) for d in pushed] == [("bug 0", 1)]


async def test_a_take_finds_what_a_commit_gave_it_that_seemed_to_fail(
    relay: Relay, store: FaultyStore
) -> None:
    take = requests.Take(wait="60s", heartbeat_seconds=10, command_id="t1")
    waiting = asyncio.ensure_future(relay.call(RECIPIENT, "take", take))
    for _ in range(10):
        await asyncio.sleep(0)
    store.fail_next(Fault.AFTER_COMMIT)
    with pytest.raises(StoreUnavailableError):
        await relay.call(SENDER, "offer", offer())
    async with asyncio.timeout(30):
        answer = (await waiting).answer
    assert isinstance(answer, DeliveriesAnswer)
    assert [d.attempt for d in answer.deliveries] == [1]

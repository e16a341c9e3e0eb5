"""The retry budget: beyond it a retry waits longer, and none is dropped."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from nodrop.log.memory import MemoryStore
from nodrop.model import budget
from nodrop.model.budget import Bucket
from nodrop.model.limits import DEFAULT, SECOND, Limits
from nodrop.protocol import requests
from nodrop.protocol.times import parse_time
from nodrop.relay.delivery.retries import Retries
from nodrop.relay.relay import Caller, Relay
from nodrop.testing.clock import T0, FakeClock
from nodrop_proof.kit.unbudgeted import no_retry_budget

Started = Callable[[Any, Limits], Awaitable[Relay]]

LIMITS = replace(DEFAULT, retries_per_second=1.0, retries_burst_max=2.0, retries_saved_max=1)


def test_ten_first_attempts_earn_one_retry_and_no_more_are_saved_than_may_be() -> None:
    retries = Retries(LIMITS)
    retries.pay("t", "a", now=T0)
    for _ in range(2):
        retries.pay("t", "a", now=T0)
    assert retries.wait_ms("t", "a", now=T0) == SECOND
    for _ in range(9):
        retries.earn("t", "a")
    assert retries.wait_ms("t", "a", now=T0) == SECOND
    for _ in range(50):
        retries.earn("t", "a")
    assert retries.wait_ms("t", "a", now=T0) == 0
    retries.pay("t", "a", now=T0)
    assert retries.wait_ms("t", "a", now=T0) == SECOND


def test_who_has_earned_does_not_wait_behind_those_who_have_not() -> None:
    retries = Retries(LIMITS)
    for _ in range(100):
        retries.pay("t", "noisy", now=T0)
    assert retries.wait_ms("t", "noisy", now=T0) > 90 * SECOND
    assert retries.wait_ms("t", "quiet", now=T0) == 0
    assert retries.wait_ms("another team", "noisy", now=T0) == 0


def test_an_allowance_that_is_overdrawn_is_paid_back_as_time_passes() -> None:
    owed = Bucket(level=-9.0, at=T0)
    assert budget.retry_wait_ms(0, owed, per_second=1.0) == 10 * SECOND
    later = budget.refilled(owed, now=T0 + 10 * SECOND, per_second=1.0, most=2.0)
    assert budget.retry_wait_ms(0, later, per_second=1.0) == 0
    back = budget.refilled(owed, now=T0 - SECOND, per_second=1.0, most=2.0)
    assert back.level == owed.level


@pytest.fixture
async def tight(started: Started) -> Relay:
    return await started(MemoryStore(), LIMITS)


async def ask(
    relay: Relay, agent: str, operation: str, request: requests.Request, about: str | None = None
) -> Any:
    caller = Caller(team="default", agent=agent)
    return (await relay.call(caller, operation, request, reference=about)).answer


async def due_after_failing(relay: Relay, clock: FakeClock, n: int) -> list[int]:
    """Have `n` handoffs fail once; return in how many seconds each may be taken again."""
    due: list[int] = []
    for _ in range(n):
        made = (await ask(relay, "a", "offer", requests.Offer(to="b"))).handoff.id
        await ask(relay, "b", "ack", requests.Ack(), made)
        fail = requests.Fail(attempt=1, retryable=True)
        shown = (await ask(relay, "b", "fail", fail, made)).handoff
        assert shown.state == "offered"
        due.append((parse_time(shown.due_at) - clock.now()) // SECOND)
    return due


async def test_retries_beyond_the_budget_wait_their_turn(tight: Relay, clock: FakeClock) -> None:
    due = await due_after_failing(tight, clock, 13)
    # Two seconds are the backoff; one retry was saved, two were the team's, one is earned.
    assert due == [2] * 5 + [3, 4, 5, 6, 7, 2, 8, 9]


async def test_control_without_a_budget_none_waits(tight: Relay, clock: FakeClock) -> None:
    with no_retry_budget():
        assert await due_after_failing(tight, clock, 13) == [2] * 13


async def test_a_redrive_beyond_the_budget_waits_too_and_can_then_be_taken(
    tight: Relay, clock: FakeClock
) -> None:
    await due_after_failing(tight, clock, 8)
    made = (await ask(tight, "a", "offer", requests.Offer(to="c"))).handoff.id
    await ask(tight, "c", "reject", requests.Reject(), made)
    successor = (await ask(tight, "a", "redrive", requests.Redrive(), made)).handoff.successor
    take = requests.Take(max=5)
    assert (await ask(tight, "c", "take", take)).deliveries == ()
    clock.advance(10 * SECOND)
    [delivery] = (await ask(tight, "c", "take", replace(take, wait="1s"))).deliveries
    assert delivery.handoff.id == successor

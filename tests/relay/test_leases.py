"""Leases: kept by the process that holds, for as long as it is heard of, and not a beat longer."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from nodrop.log.memory import MemoryStore
from nodrop.protocol import requests, views
from nodrop.relay.relay import Caller, Relay
from nodrop.testing.clock import T0
from nodrop_proof.kit.faulty import Fault
from nodrop_proof.simulate import loop
from nodrop_proof.simulate.plan import Plan
from nodrop_proof.simulate.world import World

SECOND, HOUR = 1_000, 3_600_000
SENDER = Caller(team="default", agent="inbox_monitor")
WORKER = Caller(team="default", agent="code_agent")

Story = Callable[["Office"], Coroutine[Any, Any, None]]


class Office:
    """A relay whose time the story moves."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pass_time = world.pass_time

    async def offer(self, **fields: Any) -> str:
        request = requests.Offer(to="code_agent", title="bug", deadline="1000d", **fields)
        return (await self.ask(SENDER, "offer", request)).handoff.id

    async def take(self, *, beat: float | None = 10, process: str = "p") -> int:
        request = requests.Take(heartbeat_seconds=beat, process=process)
        [delivery] = (await self.ask(WORKER, "take", request)).deliveries
        return delivery.attempt

    async def accepted(self, **taken: Any) -> str:
        handoff_id = await self.offer()
        attempt = await self.take(**taken)
        await self.ask(WORKER, "ack", requests.Ack(attempt=attempt), handoff_id)
        return handoff_id

    async def beat(self, process: str = "p") -> list[tuple[str, int]]:
        request = requests.Heartbeat(process=process)
        return list((await self.ask(WORKER, "heartbeat", request)).held)

    async def ask(
        self, caller: Caller, operation: str, request: Any, about: str | None = None
    ) -> Any:
        return (await self.world.ask(caller, operation, request, about=about)).answer

    async def states(self) -> list[str]:
        page = await self.ask(SENDER, "list_handoffs", requests.ListHandoffs())
        return [view.state for view in page.handoffs]

    async def state(self, handoff_id: str) -> str:
        view = (await self.ask(SENDER, "get_handoff", requests.GetHandoff(), handoff_id)).handoff
        return view.state


def told(story: Story) -> Callable[[], None]:
    """Tell a story on a virtual loop."""

    async def tell() -> None:
        world = World(Plan(seed=0), MemoryStore())
        await world.start()
        await story(Office(world))

    def test() -> None:
        loop.run(tell())

    test.__name__ = story.__name__
    return test


@told
async def test_a_process_that_shows_up_as_it_is_forgotten_is_not_forgotten(office: Office) -> None:
    handoff_id = await office.accepted()
    await office.ask(WORKER, "complete", requests.Complete(attempt=1), handoff_id)
    again = await office.offer()
    office.world.clock.advance(30 * SECOND)  # silent, and holding nothing: about to be forgotten
    attempt = await office.take()
    await office.ask(WORKER, "ack", requests.Ack(attempt=attempt), again)
    await office.pass_time(30 * SECOND)
    assert await office.state(again) == "offered"


@told
async def test_an_attempt_that_came_back_can_lapse_again(office: Office) -> None:
    handoff_id = await office.accepted()
    await office.pass_time(30 * SECOND)
    assert await office.state(handoff_id) == "offered"
    await office.ask(WORKER, "update", requests.Update(attempt=1), handoff_id)
    await office.pass_time(29 * SECOND)
    assert await office.state(handoff_id) == "accepted"
    await office.pass_time(SECOND)
    assert await office.state(handoff_id) == "offered"


@told
async def test_to_be_pushed_to_is_no_sign_of_life(office: Office) -> None:
    relay = (await office.world.serving()).relay
    subscription = relay.subscribe(
        WORKER, process="p", heartbeat_seconds=10, deliver=lambda _: None
    )
    subscription.grant(9)
    first = await office.offer()
    await office.ask(WORKER, "ack", requests.Ack(attempt=1), first)
    for _ in range(2):
        await office.pass_time(10 * SECOND)
        await office.offer()
    await office.pass_time(10 * SECOND)
    assert await office.state(first) == "offered"


class Connected:
    """A connection that takes deliveries, and what was pushed to it."""

    def __init__(self, relay: Relay, process: str, *, beat: float | None = 10) -> None:
        self.pushed: list[tuple[str, int]] = []
        self._subscription = relay.subscribe(
            WORKER, process=process, heartbeat_seconds=beat, deliver=self._note
        )
        self._subscription.grant(9)

    def _note(self, deliveries: Sequence[views.PushView]) -> None:
        self.pushed += [(delivery.handoff.id, delivery.attempt) for delivery in deliveries]


@told
async def test_a_process_that_lost_its_lease_gets_nothing_until_it_is_heard_of(
    office: Office,
) -> None:
    slow = Connected((await office.world.serving()).relay, "p")
    first = await office.offer()
    await office.ask(WORKER, "ack", requests.Ack(attempt=1), first)
    await office.pass_time(40 * SECOND)
    second = await office.offer()
    await office.pass_time(40 * SECOND)
    assert slow.pushed == [(first, 1)]
    assert await office.states() == ["offered", "offered"]

    assert await office.beat() == [(first, 1)]  # it goes on where it was
    await office.pass_time(1)
    assert slow.pushed == [(first, 1), (second, 1)]


@told
async def test_a_process_that_lost_the_last_try_gets_nothing_either(office: Office) -> None:
    slow = Connected((await office.world.serving()).relay, "p")
    first = await office.offer(attempts_max=1)
    await office.pass_time(60 * SECOND)
    assert await office.state(first) == "failed"
    second = await office.offer()
    await office.pass_time(HOUR)
    assert slow.pushed == [(first, 1)]
    assert await office.state(second) == "offered"


@told
async def test_a_process_without_a_heartbeat_that_lost_a_delivery_gets_nothing(
    office: Office,
) -> None:
    slow = Connected((await office.world.serving()).relay, "p", beat=None)
    first = await office.offer()
    await office.pass_time(HOUR)
    assert slow.pushed == [(first, 1)]
    assert await office.state(first) == "offered"


@told
async def test_a_command_of_a_process_that_lost_its_lease_is_a_sign_of_life(
    office: Office,
) -> None:
    slow = Connected((await office.world.serving()).relay, "p")
    first = await office.offer()
    await office.ask(WORKER, "ack", requests.Ack(attempt=1), first)
    await office.pass_time(40 * SECOND)
    second = await office.offer()
    assert slow.pushed == [(first, 1)]
    await office.ask(WORKER, "complete", requests.Complete(attempt=1), first)
    await office.pass_time(1)
    assert slow.pushed == [(first, 1), (second, 1)]


@told
async def test_a_quiet_process_that_holds_nothing_is_served_after_the_others(
    office: Office,
) -> None:
    relay = (await office.world.serving()).relay
    quiet = Connected(relay, "quiet")
    await office.pass_time(80 * SECOND)
    heard = Connected(relay, "heard")
    offered = [await office.offer() for _ in range(10)]
    await office.pass_time(1)
    assert [handoff_id for handoff_id, _ in heard.pushed] == offered[:9]
    assert [handoff_id for handoff_id, _ in quiet.pushed] == offered[9:]  # nobody else has credit


@told
async def test_an_acknowledgement_counts_as_a_sign_of_life_for_its_delivery(
    office: Office,
) -> None:
    handoff_id = await office.offer()
    await office.take()
    await office.pass_time(40 * SECOND)
    await office.ask(WORKER, "ack", requests.Ack(attempt=1), handoff_id)
    await office.pass_time(29 * SECOND)
    assert await office.state(handoff_id) == "accepted"
    await office.pass_time(SECOND)
    assert await office.state(handoff_id) == "offered"


@told
async def test_a_longer_heartbeat_does_not_prolong_what_was_taken_with_a_shorter(
    office: Office,
) -> None:
    handoff_id = await office.accepted(beat=1)
    await office.offer()
    await office.take(beat=600)
    await office.pass_time(3 * SECOND)
    assert await office.state(handoff_id) == "offered"


@told
async def test_a_heartbeat_that_waits_for_a_slow_store_is_not_silence(office: Office) -> None:
    handoff_id = await office.accepted()
    store = office.world.life.store
    store.gate.clear()
    stuck = office.world.spawn(_done(office.offer()))
    await office.pass_time(20 * SECOND)
    beating = office.world.spawn(_done(office.beat()))
    await office.pass_time(HOUR)
    store.gate.set()
    await office.pass_time(29 * SECOND)
    assert (stuck.done(), beating.done()) == (True, True)
    assert await office.state(handoff_id) == "accepted"
    await office.pass_time(SECOND)
    assert await office.state(handoff_id) == "offered"


async def _done(work: Coroutine[Any, Any, Any]) -> None:
    await work


@told
async def test_a_lease_lapses_though_the_commit_failed_that_should_have_ended_it(
    office: Office,
) -> None:
    handoff_id = await office.accepted()
    for _ in range(3):
        office.world.life.store.fail_next(Fault.BEFORE_COMMIT)
    await office.pass_time(30 * SECOND)
    assert await office.state(handoff_id) == "accepted"
    await office.pass_time(3 * SECOND)
    assert await office.state(handoff_id) == "offered"


# --- a clock that is set ------------------------------------------------------------------------

YEAR = 365 * 24 * HOUR


@pytest.fixture(params=[-YEAR, -HOUR, HOUR, YEAR], ids=["-1y", "-1h", "+1h", "+1y"])
def told_twice(request: pytest.FixtureRequest) -> Callable[[Story, Story], None]:
    """Tell one story, take the relay down, set the wall clock, and tell the other."""

    async def tell(before: Story, after: Story) -> None:
        store = MemoryStore()
        world = World(Plan(seed=0), store)
        await world.start()
        await before(Office(world))
        world.crash()
        world = World(Plan(seed=1), store, start=T0 + request.param)
        await world.start()
        await world.pass_time(0)
        await after(Office(world))

    return lambda before, after: loop.run(tell(before, after))


def test_a_clock_that_was_set_between_two_runs_neither_ends_nor_keeps_a_lease(
    told_twice: Callable[[Story, Story], None],
) -> None:
    async def before(office: Office) -> None:
        await office.accepted()

    async def after(office: Office) -> None:
        await office.pass_time(29 * SECOND)
        assert await office.states() == ["accepted"]
        await office.pass_time(SECOND)
        assert await office.states() == ["offered"]

    told_twice(before, after)


def test_nor_the_turn_of_whoever_gives_no_heartbeat(
    told_twice: Callable[[Story, Story], None],
) -> None:
    async def before(office: Office) -> None:
        await office.offer()
        await office.take(beat=None)

    async def after(office: Office) -> None:
        await office.pass_time(59 * SECOND)
        assert await office.states() == ["delivered"]
        await office.pass_time(SECOND)
        assert await office.states() == ["offered"]

    told_twice(before, after)


def test_nor_does_it_keep_a_retry_waiting(told_twice: Callable[[Story, Story], None]) -> None:
    async def before(office: Office) -> None:
        handoff_id = await office.accepted()
        await office.ask(WORKER, "fail", requests.Fail(attempt=1, retryable=True), handoff_id)

    async def after(office: Office) -> None:
        await office.pass_time(2 * SECOND)
        assert await office.take() == 2

    told_twice(before, after)


def test_a_failed_commit_does_not_make_the_relay_forget_that_its_clock_was_set_back() -> None:
    async def story() -> None:
        store = MemoryStore()
        world = World(Plan(seed=0), store)
        await world.start()
        office = Office(world)
        await office.offer()
        await office.take(beat=None)
        world.crash()
        world = World(Plan(seed=1), store, start=T0 - HOUR)
        await world.start()
        world.life.store.fail_next(Fault.BEFORE_COMMIT)
        await world.pass_time(62 * SECOND)
        assert await Office(world).states() == ["offered"]

    loop.run(story())

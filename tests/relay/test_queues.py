import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from nodrop.log.port import Key, Store, row_of
from nodrop.model import events
from nodrop.model.errors import StoreUnavailableError
from nodrop.model.handoff import Handoff
from nodrop.relay.delivery.queues import WORKLOADS_MIN, Queues, Workloads
from nodrop.testing.handoffs import RECIPIENT, TEAM, Story, handoff_id, offered, story

QUEUED = events.Queued(position=1, next_update_at=1)
DELIVERED = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)
ACKNOWLEDGED = events.Acknowledged(attempt=1, next_update_at=1)


class SlowReads:
    """A store whose reads take until they are let go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.reads = 0
        self.asked: list[str] = []
        self.broken = False
        self.rows: dict[str, Handoff] = {}

    def put(self, *told: Story) -> None:
        self.rows |= {each.handoff.id: each.handoff for each in told}

    async def queue(self, _: str, agent: str) -> Mapping[str, int | None]:
        self.reads += 1
        found = {h.id: row_of(h).rank for h in self.rows.values() if h.recipient == agent}
        await self.gate.wait()
        if self.broken:
            raise StoreUnavailableError
        return found

    async def handoffs(self, keys: Sequence[Key]) -> Sequence[Handoff]:
        self.asked += [handoff_id for _, handoff_id in keys]
        return [self.rows[handoff_id] for _, handoff_id in keys]


@pytest.fixture
def store() -> SlowReads:
    return SlowReads()


@pytest.fixture
def queues(store: SlowReads) -> Queues:
    return Queues(cast("Store", store), Workloads(), queued_max=3)


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_many_who_ask_at_once_make_one_look_into_the_store(
    queues: Queues, store: SlowReads
) -> None:
    asking = [asyncio.create_task(queues.know("default", "a")) for _ in range(64)]
    await turn()
    assert store.reads == 1
    asking[0].cancel()  # the first gives up, and nobody else minds
    store.gate.set()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(told[0], asyncio.CancelledError)
    assert set(told[1:]) == {await queues.know("default", "a")}
    assert store.reads == 1


async def test_a_look_that_failed_is_told_to_all_and_taken_again(
    queues: Queues, store: SlowReads
) -> None:
    store.broken = True
    store.gate.set()
    told = await asyncio.gather(
        *(queues.know("default", "a") for _ in range(3)), return_exceptions=True
    )
    assert [type(each) for each in told] == [StoreUnavailableError] * 3
    store.broken = False
    await queues.know("default", "a")
    assert store.reads == 2


async def test_of_a_long_line_only_its_beginning_is_read(queues: Queues, store: SlowReads) -> None:
    store.put(story(offered(), DELIVERED, ACKNOWLEDGED, number=1))
    store.put(story(offered(), DELIVERED, number=2))
    waiting = [story(offered(), QUEUED, number=n) for n in range(3, 103)]
    store.put(*waiting)
    store.gate.set()
    line = await queues.know(TEAM, RECIPIENT)
    assert sorted(store.asked) == [handoff_id(n) for n in range(1, 6)]
    assert (line.held, line.length, line.queued) == (2, 102, 3)
    assert [line.place(each.handoff) for each in waiting] == list(range(3, 103))
    taken = story(DELIVERED, after=waiting[0].handoff).handoff
    queues.note(taken)
    assert (line.held, line.position(taken)) == (3, 2)
    assert line.place(waiting[1].handoff) == 4
    queues.note(waiting[50].handoff)  # its next update
    assert line.queued == 3
    assert line.unacknowledged(2) == [handoff_id(6), handoff_id(7)]


async def test_what_changes_while_a_line_is_read_counts(queues: Queues, store: SlowReads) -> None:
    old = story(offered(), number=1)
    store.put(old)
    reading = asyncio.create_task(queues.know(TEAM, RECIPIENT))
    await turn()
    queues.note(story(DELIVERED, ACKNOWLEDGED, after=old.handoff).handoff)
    second = story(offered(), number=2).handoff
    queues.note(second)
    store.gate.set()
    line = await reading
    assert (line.held, line.position(second), line.place(second)) == (1, 2, 2)


async def test_a_line_is_of_its_recipient_alone(queues: Queues, store: SlowReads) -> None:
    store.gate.set()
    theirs, others = await queues.know(TEAM, RECIPIENT), await queues.know(TEAM, "other")
    first = story(offered(), number=1).handoff
    queues.note(first)
    moved = story(events.Reassigned(recipient="other", reason="reassigned"), after=first)
    queues.note(moved.handoff)
    assert (theirs.length, others.length) == (0, 1)


def test_agents_that_have_nothing_any_more_are_dropped() -> None:
    workloads = Workloads()
    workloads[TEAM, RECIPIENT].asked = 1
    for number in range(WORKLOADS_MIN):
        assert workloads[TEAM, f"agent-{number}"].inbox == 0
    assert set(workloads) == {(TEAM, RECIPIENT), (TEAM, f"agent-{WORKLOADS_MIN - 1}")}

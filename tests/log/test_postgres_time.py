"""The time is the database's: a node's clock is kept to it, a little at a time."""

from collections.abc import AsyncIterator

import pytest

from nodrop.app.machine import SteeredClock, SystemClock
from nodrop.log.postgres import PostgresFleet, PostgresStore
from nodrop.log.postgres.fleet import STEER_MS_MAX
from nodrop.model.limits import HOUR


class Drifting:
    """A clock that is wrong by so much, and says by how much it was steered.

    Right is this machine's own time. The server runs here and has the same; asked for it, it would
    say what it was when it began to answer, and nobody knows how long ago that is.
    """

    def __init__(self, wrong_ms: int) -> None:
        self.steered: list[int] = []
        self._wrong_ms = wrong_ms
        self._right = SystemClock()

    def now(self) -> int:
        return self._right.now() + self._wrong_ms

    def steer(self, by_ms: int) -> None:
        self.steered.append(by_ms)


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(database) as store:
        yield store


@pytest.mark.parametrize(
    ("wrong_ms", "steered"),
    [
        pytest.param(-HOUR, STEER_MS_MAX, id="behind"),
        pytest.param(HOUR, -STEER_MS_MAX, id="ahead"),
    ],
)
async def test_a_clock_that_is_wrong_is_steered_a_little(
    store: PostgresStore, wrong_ms: int, steered: int
) -> None:
    clock = Drifting(wrong_ms)
    fleet = PostgresFleet(store, node="a", clock=clock)
    await fleet.join()
    await fleet.attend(())
    assert clock.steered == [steered, steered]


async def test_a_node_that_is_right_is_left_alone(store: PostgresStore) -> None:
    """However long the database took to answer, it answered in between."""
    clock = Drifting(0)
    fleet = PostgresFleet(store, node="a", clock=clock)
    await fleet.join()
    assert abs(clock.steered[0]) <= 1, "a millisecond is as exact as it gets"


def test_a_clock_that_is_steered_never_runs_backwards() -> None:
    passed = [0]
    clock = SteeredClock(wall_ns=lambda: 10**15, passing_ns=lambda: passed[0])
    began = clock.now()
    clock.steer(-10)
    assert clock.now() == began, "it stands still"
    passed[0] += 10_000_000
    assert clock.now() == began, "until it is right"
    passed[0] += 5_000_000
    assert clock.now() == began + 5
    clock.steer(10)
    assert clock.now() == began + 15

"""Bodies at hand: bounded in memory, whatever their size."""

import tracemalloc
from collections.abc import Sequence
from typing import cast

import pytest

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store
from nodrop.relay.bodies import Bodies, MissingBodyError

MIB = 1024 * 1024


@pytest.mark.parametrize("size", [0, 10, 100, 1_000, 10_000])
def test_the_cache_takes_about_as_much_memory_as_it_may_whatever_it_holds(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodrop.relay.bodies.BYTES_MAX", 4 * MIB)
    bodies = Bodies(cast("Store", MemoryStore()))
    tracemalloc.start()
    try:
        for number in range(8 * MIB // (size + 300)):
            handoff_id = f"019b76da-a800-7000-8000-{number // 4:012d}"
            bodies.keep({("default", handoff_id, number % 4): bytes(size)})
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 2 * MIB < taken < 4.6 * MIB


def test_the_oldest_goes_first_and_what_was_used_counts_as_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodrop.relay.bodies.BYTES_MAX", 10_000)
    bodies = Bodies(cast("Store", MemoryStore()))
    for name in ("a", "b"):
        bodies.keep({("default", name, 1): bytes(4_000)})
    assert bodies.cached(("default", "a", 1)) == bytes(4_000)
    bodies.keep({("default", "c", 1): bytes(4_000)})
    assert bodies.cached(("default", "a", 1)) == bytes(4_000)
    with pytest.raises(MissingBodyError):
        bodies.cached(("default", "b", 1))


async def test_what_is_fetched_does_not_push_out_what_was_asked_for_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Shelf:
        async def bodies(
            self, _: str, wanted: Sequence[tuple[str, int]]
        ) -> dict[tuple[str, int], bytes]:
            return dict.fromkeys(wanted, bytes(8_000))

    monkeypatch.setattr("nodrop.relay.bodies.BYTES_MAX", 10_000)
    bodies = Bodies(cast("Store", Shelf()))
    result, payload = ("default", "a", 2), ("default", "a", 1)
    bodies.keep({result: b"the result"})
    bodies.keep({("default", "b", 1): bytes(4_000)})
    assert await bodies.fetch([result, payload]) == {
        result: b"the result",
        payload: bytes(8_000),
    }

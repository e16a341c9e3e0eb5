from nodrop.core import events
from nodrop.stores.sqlite.cache import Cache
from nodrop.testing.handoffs import TEAM, handoff_id, offered, story


def key(number: int) -> tuple[str, str]:
    return (TEAM, handoff_id(number))


def test_the_cache_is_bounded_and_forgets_what_was_not_used_for_longest() -> None:
    cache = Cache(handoffs_max=2)
    cache.keep([story(offered(), number=number).handoff for number in (1, 2)])
    assert cache.get(key(1)) is not None
    cache.keep([story(offered(), number=3).handoff])
    assert [number for number in (1, 2, 3) if cache.get(key(number))] == [1, 3]


def test_the_cache_has_the_last_that_was_kept() -> None:
    cache = Cache(handoffs_max=2)
    told = story(offered())
    later = story(events.Noted(), after=told.handoff)
    cache.keep([told.handoff, later.handoff])
    assert cache.get(key(1)) is later.handoff
    cache.clear()
    assert cache.get(key(1)) is None

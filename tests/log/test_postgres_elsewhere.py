"""What nodes tell each other of agents: all of it once, then only what has changed."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from nodrop.log.port import Attending
from nodrop.log.postgres import PostgresFleet, PostgresStore
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM


class CountingStore(PostgresStore):
    """Counts the rows that were read of what other nodes know."""

    read = 0

    async def ask(self, sql: str, *bound: Any) -> Sequence[Sequence[Any]]:
        rows = await super().ask(sql, *bound)
        self.read += len(rows) if "from attendance" in sql else 0
        return rows


@pytest.fixture
async def store(database: str) -> AsyncIterator[CountingStore]:
    async with await CountingStore.open(database) as store:
        yield store


@pytest.fixture
async def here(store: CountingStore) -> PostgresFleet:
    fleet = PostgresFleet(store, node="here")
    await fleet.join()
    return fleet


@pytest.fixture
async def there(store: CountingStore) -> PostgresFleet:
    fleet = PostgresFleet(store, node="there")
    await fleet.join()
    return fleet


def agent(number: int, *, connected: bool = True, seen_at: int = T0) -> Attending:
    return Attending(team=TEAM, agent=f"a{number}", connected=connected, seen_at=seen_at)


async def known(fleet: PostgresFleet) -> dict[str, bool]:
    roll = await fleet.attend(())
    return {name: told.connected for (_, name), told in roll.elsewhere.items()}


async def test_what_has_not_changed_is_not_read_again(
    store: CountingStore, here: PostgresFleet, there: PostgresFleet
) -> None:
    await there.attend([agent(number) for number in range(100)])
    assert len(await known(here)) == 100
    assert store.read == 100
    assert len(await known(here)) == 100
    assert store.read == 100, "nothing is new"
    await there.attend([agent(7, connected=False), agent(100)])
    assert await known(here) == {f"a{n}": n != 7 for n in range(101)}
    assert store.read == 102, "two are"


async def test_an_agent_is_connected_as_long_as_one_node_says_so(
    here: PostgresFleet, there: PostgresFleet, store: CountingStore
) -> None:
    third = PostgresFleet(store, node="third")
    await third.join()
    await there.attend([agent(1)])
    await third.attend([agent(1)])
    await there.attend([agent(1, connected=False)])
    assert await known(here) == {"a1": True}
    await third.leave()
    assert await known(here) == {"a1": False}


async def test_a_node_that_was_forgotten_is_told_so_and_believed_again(
    here: PostgresFleet, there: PostgresFleet, store: CountingStore
) -> None:
    await there.attend([agent(1), agent(2)])
    assert await known(here) == {"a1": True, "a2": True}
    await store.ask("update node set seen_at = 0 where id = 'there' returning 1")
    assert await known(here) == {}, "it is gone, and its row too"
    roll = await there.attend([])
    assert roll.forgotten
    assert await known(here) == {}
    roll = await there.attend([agent(2)])
    assert not roll.forgotten
    assert await known(here) == {"a2": True}

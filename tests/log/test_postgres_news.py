"""What a node has heard of the others when it decides, and what it rests on when it writes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from nodrop.log.port import Changes, ConflictError, Record, Team
from nodrop.log.postgres import PostgresFleet, PostgresStore
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM
from nodrop.testing.store_contract.setting import commit, noted, read_log

CHANGE = Changes(
    entries=[noted()], records=[Record(team=TEAM, kind="policy", id="policy", json=b"{}")]
)
"""Of what decisions rest on."""


@pytest.fixture
async def nodes(database: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two nodes on one database with a team."""
    async with AsyncExitStack() as stack:
        here, there = [
            await stack.enter_async_context(await PostgresStore.open(database)) for _ in range(2)
        ]
        await here.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
        yield here, there


async def joined(store: PostgresStore, name: str) -> PostgresFleet:
    fleet = PostgresFleet(store, node=name)
    await fleet.join()
    return fleet


async def hear(fleet: PostgresFleet) -> None:
    for news in await fleet.news():
        fleet.heard(news)


async def test_what_is_heard_after_a_decision_is_nothing_that_it_rests_on(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    here, there = nodes
    fleet = await joined(here, "here")
    await joined(there, "there")

    async def decide_and_hear() -> None:
        async with here.transaction() as work:
            await work.append(Changes(entries=[noted(actor="decided before")]))
            await commit(there, CHANGE)
            await hear(fleet)

    with pytest.raises(ConflictError):
        await decide_and_hear()
    assert [entry.actor for entry in await read_log(there)] == ["me"]

    await commit(here, Changes(entries=[noted(actor="decided after")]))
    assert [entry.actor for entry in await read_log(there)] == ["me", "decided after"]

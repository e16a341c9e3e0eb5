"""What one node does for all: never two that serve, and never nobody for long."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from nodrop.log.postgres import PostgresFleet, PostgresStore
from nodrop_proof.kit.postgres_server import PostgresServer


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(database) as store:
        yield store


async def joined(store: PostgresStore, name: str) -> PostgresFleet:
    fleet = PostgresFleet(store, node=name)
    await fleet.join()
    return fleet


async def test_of_nodes_that_ask_at_once_each_duty_is_ones(store: PostgresStore) -> None:
    fleets = [await joined(store, f"n{number}") for number in range(4)]
    duties = {f"d{number}" for number in range(20)}
    for _ in range(3):  # and it stays theirs
        claimed = await asyncio.gather(*(fleet.claim(duties) for fleet in fleets))
        assert sorted(duty for mine in claimed for duty in mine) == sorted(duties)


async def test_a_node_that_leaves_leaves_its_duties_to_others(store: PostgresStore) -> None:
    here, there = await joined(store, "here"), await joined(store, "there")
    assert await here.claim({"d"}) == {"d"}
    assert await there.claim({"d"}) == set()
    await here.leave()
    assert await there.claim({"d"}) == {"d"}


async def test_a_node_that_is_not_heard_of_any_more_has_no_duties(
    store: PostgresStore, postgres: PostgresServer
) -> None:
    here, there = await joined(store, "here"), await joined(store, "there")
    assert await here.claim({"d"}) == {"d"}
    postgres.run("update node set seen_at = 0 where id = 'here'")
    assert await there.claim({"d"}) == {"d"}
    await here.attend(())
    assert await here.claim({"d"}) == set()

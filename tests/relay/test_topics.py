"""Subscriptions of many agents at the same time: each stands, whatever the others do meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

from nodrop.app import open_relay
from nodrop.protocol.coordination.talk_requests import ListTopics, SubscribeTopic, UnsubscribeTopic
from nodrop.relay.coordination.topics import Topics, record
from nodrop.relay.relay import Caller, Relay

TEAM = "default"
AGENTS = 40
ROUNDS = 5
TOPIC = "deploys"


async def test_no_subscription_is_lost_to_another_at_the_same_time(tmp_path: Path) -> None:
    """On a file: a commit is under way while the next one is decided."""

    async def turn(relay: Relay, number: int) -> None:
        """Come and go; the even ones stay."""
        caller = Caller(team=TEAM, agent=f"agent-{number}")
        for _ in range(ROUNDS):
            for _ in range(number % 7):
                await asyncio.sleep(0)
            joined: Any = await relay.call(caller, "subscribe_topic", SubscribeTopic(), name=TOPIC)
            assert joined.answer.subscribed
            left: Any = await relay.call(
                caller, "unsubscribe_topic", UnsubscribeTopic(), name=TOPIC
            )
            assert not left.answer.subscribed
        if number % 2 == 0:
            await relay.call(caller, "subscribe_topic", SubscribeTopic(), name=TOPIC)

    database = tmp_path / "team.db"
    async with asyncio.timeout(30), open_relay(database, home=tmp_path) as relay:
        await asyncio.gather(*(turn(relay, number) for number in range(AGENTS)))
    async with open_relay(database, home=tmp_path) as relay:
        for number in range(AGENTS):
            caller = Caller(team=TEAM, agent=f"agent-{number}")
            found: Any = await relay.call(caller, "topics", ListTopics())
            assert (TOPIC in found.answer.topics) == (number % 2 == 0)


def test_topics_that_nobody_hears_of_take_no_memory_and_do_not_count() -> None:
    """They did: an agent that subscribed and left again filled the memory, and slowed each further count."""
    topics = Topics()
    for number in range(1_000):
        topics.put(record(TEAM, f"topic-{number}", {"agent-1"}))
        topics.put(record("another", f"topic-{number}", {"agent-1"}))
        if number % 10:
            topics.put(record(TEAM, f"topic-{number}", set()))
    assert topics.count(TEAM) == len(topics.heard_by(TEAM, "agent-1")) == 100
    assert sum(map(len, vars(topics)["_subscribers"].values())) == 1_100

"""What people pass and return becomes plain JSON, and nothing of it is lost on the way."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

import nodrop
from nodrop.client.client import Client
from nodrop.model.errors import InvalidRequestError, Problem

if TYPE_CHECKING:
    from conftest import FakeTransport, Working

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def me(relay: "FakeTransport") -> Client:
    return Client(relay, agent="inbox_monitor")


@dataclass
class Holder:
    held: dict[Any, str]


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({1: "a", "1": "b"}, "payload.1"),
        ({"rows": [{}, {1.5: "a", "1.5": "b"}]}, "payload.rows[1].1.5"),
        ([{Colour.RED: 1, "red": 2}], "payload[0].red"),
        ({"when": {NOON: 1, "2026-11-15T12:00:00Z": 2}}, "payload.when.2026-11-15T12:00:00Z"),
        (Holder({1: "a", "1": "b"}), "payload.held.1"),
    ],
)
async def test_keys_that_are_the_same_in_json_are_refused_and_none_is_lost(
    relay: "FakeTransport", me: Client, payload: Any, path: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await me.hand_off("code_agent", payload=payload)
    [problem] = refused.value.errors
    assert problem == Problem(path=path, message="the key is there more than once")
    with pytest.raises(InvalidRequestError, match=re.escape(path.replace("payload", "data", 1))):
        await me.emit("deployed", payload)
    assert relay.calls == []


async def test_keys_that_are_no_texts_become_texts(relay: "FakeTransport", me: Client) -> None:
    payload = {1: "a", "2": [3.5, {Colour.RED: {"x"}, NOON: None}]}
    await me.hand_off("code_agent", payload=payload)
    assert relay.calls[0][1]["payload"] == {
        "1": "a",
        "2": [3.5, {"red": ["x"], "2026-11-15T12:00:00Z": None}],
    }


async def test_a_result_of_which_json_would_lose_a_key_fails_for_good(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage() -> Any:
        return {1: "a", "1": "b"}

    async with working(agent):
        relay.deliver()
        said = await relay.next("fail")
    assert (said["code"], said["retryable"]) == ("result_invalid", False)
    assert said["reason"] == "the result: result.1: the key is there more than once"

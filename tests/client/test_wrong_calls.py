"""Arguments of the wrong kind are refused with a code and their name, and nothing is sent."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

import nodrop
from nodrop.client.client import Client
from nodrop.client.handoff import Handoff
from nodrop.model.errors import InvalidRequestError, Problem

if TYPE_CHECKING:
    from conftest import FakeTransport


@dataclass
class Offer:
    to: str


CALLS: list[tuple[Callable[[Any], Awaitable[Any]], str, str]] = [
    (lambda me: me.fan_out([{"to": "b"}]), "offers", "offers by labels of your own, got list"),
    (lambda me: me.fan_out(None), "offers", "offers by labels of your own, got NoneType"),
    (lambda me: me.offer_group("b"), "offers", "offers by labels of your own, got str"),
    (lambda me: me.offer_group({"a": None}), "offers.a", "object, got NoneType"),
    (lambda me: me.offer_group({"a": [1]}), "offers.a", "object, got list"),
    (lambda me: me.register({}), "manifest.agent_id", "str, got NoneType"),
    (lambda me: me.register({"agent_id": 1}), "manifest.agent_id", "str, got int"),
    (lambda me: me.register(None), "manifest", "object, got NoneType"),
    (lambda me: me.register([]), "manifest", "object, got list"),
    (lambda me: me.hand_off("b", contract={}), "contract", "what `contract` returned, got dict"),
    (lambda me: me.hand_off("b", watchers=1), "watchers", "texts, got int"),
    (lambda me: me.hand_off("b", watchers=["c", 1]), "watchers[1]", "str, got int"),
    (lambda me: me.find(tags=None), "tags", "texts, got NoneType"),
    (lambda me: me.find(tags=[None]), "tags[0]", "str, got NoneType"),
    (lambda me: me.handoff(1), "handoff_id", "str, got int"),
    (lambda me: me.group({}), "name", "str, got dict"),
]


@pytest.mark.parametrize(("call", "path", "said"), CALLS)
async def test_what_is_of_the_wrong_kind_is_named(
    relay: "FakeTransport", call: Callable[[Any], Awaitable[Any]], path: str, said: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await call(Client(relay, agent="inbox_monitor"))
    assert refused.value.errors == (Problem(path=path, message=f"Expected {said}"),)
    assert relay.calls == []


@pytest.mark.parametrize("wait", ["soon", "", -1, float("nan"), True, [], {}, ("1s",), b"1s"])
async def test_a_wait_that_is_no_duration_is_refused(relay: "FakeTransport", wait: Any) -> None:
    me = Client(relay, agent="inbox_monitor")
    handoff = Handoff({"id": "h1", "ref": "h1", "state": "offered"}, me)
    for call in (me.inbox, handoff.result, handoff.outcome, handoff.acknowledged):
        with pytest.raises(InvalidRequestError, match=r"^wait: .*duration"):
            await call(wait=wait)
    assert relay.calls == []


async def test_an_offer_of_a_group_may_be_anything_that_is_an_object(
    relay: "FakeTransport",
) -> None:
    me = Client(relay, agent="inbox_monitor")
    relay.answer("offer_group", {"group": {"id": "g"}})
    offers: dict[str, Any] = {"a": MappingProxyType({"to": "b"}), "b": Offer("c")}
    await me.offer_group(offers)
    assert relay.calls[0][1]["offers"] == {"a": {"to": "b"}, "b": {"to": "c"}}


@pytest.mark.parametrize(
    "said",
    [
        {"address": ""},
        {"address": 1},
        {"agent": ""},
        {"agent": 1},
        {"token": ""},
        {"token": b"nd_a"},
        {"team": ""},
        {"team": 1},
        {"transport": "pigeon"},
    ],
    ids=str,
)
async def test_whom_to_connect_to_as_whom_is_not_left_empty(
    said: dict[str, Any], tmp_path: Path
) -> None:
    # An agent that is a variable not set was `me`, the operator.
    [name] = said
    settings: dict[str, Any] = {"address": ":memory:", "home": tmp_path, **said}
    with pytest.raises(InvalidRequestError, match=f"^{name}: Expected ") as refused:
        async with nodrop.connect(**settings):
            pass
    assert "nd_a" not in str(refused.value)  # a token is nobody's to read, in a traceback either

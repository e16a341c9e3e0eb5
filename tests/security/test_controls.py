"""A control that merely breaks the relay is not taken for one that lets an attack through."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from kit.fortress import (
    TEAM,
    Attack,
    Control,
    Effect,
    Fortress,
    carried_out,
    let_in,
    unnoticed,
)
from nodrop.model.errors import WrongStateError
from nodrop.relay.identity.access import Access
from nodrop.relay.identity.refusals import Refusals
from nodrop.relay.relay import Caller
from nodrop.servers.http.door import HTTPDoor

ATTACK = Attack(
    name="a stranger offers",
    path="/v1/handoffs",
    body={"to": "code_agent", "capability": "bug_triage", "title": "forged"},
    token="none of the relay's",
    status=401,
    code="unauthenticated",
    reason="unauthenticated",
)
CONTROL = Control(check="tokens", family="", disabled=nullcontext, attack=ATTACK.name)


@pytest.mark.parametrize("effect", [let_in, carried_out, unnoticed])
@pytest.mark.parametrize(
    "broken",
    [
        lambda: mock.patch.object(HTTPDoor, "_caller", side_effect=RuntimeError),
        lambda: mock.patch.object(HTTPDoor, "_caller", side_effect=WrongStateError),
        nullcontext,
    ],
    ids=["a fault", "another refusal", "nothing at all"],
)
async def test_what_is_only_broken_lets_nothing_through(
    fortress: Fortress, broken: Callable[[], AbstractContextManager[Any]], effect: Effect
) -> None:
    control = replace(CONTROL, disabled=broken, effect=effect)
    assert f"{ATTACK.name}: did not get through" in await fortress.without(control, [ATTACK])


async def test_what_lets_an_attack_through_has_its_effect(fortress: Fortress) -> None:
    me = Caller(team=TEAM, agent="me", operator=True)
    at_home = replace(
        CONTROL, disabled=lambda: mock.patch.object(Access, "authenticate", return_value=me)
    )
    for effect in (let_in, carried_out):
        assert await fortress.without(replace(at_home, effect=effect), [ATTACK]) == []
    silent = replace(
        CONTROL, effect=unnoticed, disabled=lambda: mock.patch.object(Refusals, "note")
    )
    assert await fortress.without(silent, [ATTACK]) == []

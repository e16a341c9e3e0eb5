"""A requester that checks who signed an outcome, and takes nobody's word for it."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

import nodrop
from nodrop import app
from nodrop.model.errors import SignatureInvalidError
from nodrop.protocol.identity.keys import PrivateKey

OPERATOR = "nd_operator"


class Pair:
    """A requester and a recipient that have joined with keys."""

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self.home = home
        self.keys: dict[str, str] = {}

    async def join(self, agent: str) -> None:
        async with nodrop.connect(self.url, token=OPERATOR) as operator:
            invitation = await operator.invite(agent)
            await nodrop.join(invitation, address=self.url, home=self.home / agent)
            self.keys[agent] = (await operator.keys(agent))[0].public_key

    def connect(self, agent: str) -> AbstractAsyncContextManager[nodrop.Client]:
        return nodrop.connect(self.url, agent=agent, home=self.home / agent)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncGenerator[Pair]:
    async with app.open_relay(":memory:", home=tmp_path) as relay, app.listening(relay) as url:
        await relay.ensure_token("default", agent="me", role="operator", secret=OPERATOR)
        pair = Pair(url, tmp_path)
        for agent in ("asker", "doer"):
            await pair.join(agent)
        yield pair


async def finish(pair: Pair, handoff: nodrop.Handoff, ending: str, **said: object) -> None:
    async with pair.connect("doer") as doer:
        if ending == "complete":
            await doer.call("ack", handoff=handoff.id)
            said = {"attempt": 1, **said}
        await doer.call(ending, said, handoff=handoff.id)


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("complete", {"result": {"sum": 3}}),
        ("complete", {"result": None}),
        ("reject", {"reason": "busy"}),
    ],
)
async def test_an_outcome_is_verified_with_the_key_of_who_signed_it(
    pair: Pair, ending: str, said: dict[str, object]
) -> None:
    async with pair.connect("asker") as asker:
        handoff = await asker.hand_off("doer", payload={"a": 1})
        await finish(pair, handoff, ending, **said)
        await handoff.verify(pair.keys["doer"])
        for key in (pair.keys["asker"], PrivateKey.generate().public.text):
            with pytest.raises(SignatureInvalidError):
                await handoff.verify(key)
        with pytest.raises(SignatureInvalidError):
            await handoff.verify(pair.keys["doer"], team="another")


async def test_what_has_not_ended_has_no_signed_outcome(pair: Pair) -> None:
    async with pair.connect("asker") as asker:
        handoff = await asker.hand_off("doer", payload={"a": 1})
        with pytest.raises(SignatureInvalidError, match="no signed outcome"):
            await handoff.verify(pair.keys["doer"])


async def test_an_outcome_that_nobody_signed_is_not_verified(pair: Pair) -> None:
    async with pair.connect("asker") as asker:
        handoff = await asker.hand_off("doer", payload={"a": 1})
        await handoff.cancel()
        with pytest.raises(SignatureInvalidError, match="no signed outcome"):
            await handoff.verify(pair.keys["doer"])


async def test_a_relay_that_shows_another_result_than_was_signed_is_found_out(pair: Pair) -> None:
    async with pair.connect("asker") as asker:
        handoff = await asker.hand_off("doer", payload={"a": 1})
        await finish(pair, handoff, "complete", result={"sum": 3})
        await handoff.refresh()
        handoff.view["outcome"]["result"] = {"sum": 4}
        with pytest.raises(SignatureInvalidError, match="another outcome"):
            await handoff.verify(pair.keys["doer"])

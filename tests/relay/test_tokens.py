"""Tokens: one that is revoked takes no memory for long, however often an agent makes and revokes them."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nodrop.log.memory import MemoryStore
from nodrop.model.errors import NotFoundError, UnauthenticatedError
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol import requests as r
from nodrop.relay.identity import access
from nodrop.relay.relay import Caller, Relay
from nodrop.testing.handoffs import TEAM

AGENT = Caller(team=TEAM, agent="code_agent")
Started = Callable[[Any, Limits], Awaitable[Relay]]


async def made(relay: Relay) -> Any:
    return (await relay.call(AGENT, "create_token", r.CreateToken(agent="code_agent"))).answer


async def revoked(relay: Relay, token_id: str) -> Any:
    request = r.RevokeToken(token_id=token_id)
    return (await relay.call(AGENT, "revoke_token", request, name=token_id)).answer


async def test_the_last_tokens_that_were_revoked_are_remembered(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "REVOKED_MAX", 3)
    store = MemoryStore()
    relay = await started(store, DEFAULT)
    tokens = [await made(relay) for _ in range(10)]
    first = [await revoked(relay, token.token_id) for token in tokens[:8]]
    for restarted in (relay, await started(store, DEFAULT)):
        for token in tokens[:8]:
            with pytest.raises(UnauthenticatedError):
                await restarted.authenticate(token.token)
        for token in tokens[8:]:
            assert (await restarted.authenticate(token.token)).agent == "code_agent"
        for token, answer in zip(tokens[5:8], first[5:], strict=True):
            assert await revoked(restarted, token.token_id) == answer
        for token in tokens[:5]:
            with pytest.raises(NotFoundError):
                await revoked(restarted, token.token_id)
        listed: Any = (await restarted.call(AGENT, "list_tokens", r.ListTokens())).answer
        assert [token.token_id for token in listed.tokens] == [t.token_id for t in tokens[8:]]

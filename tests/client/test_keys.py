"""The SDK with a key: signs in with it, signs with it, and follows it when it is replaced."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import nodrop
from nodrop import app
from nodrop.client.auth import joining
from nodrop.client.auth.credentials import Credentials, CredentialsFile
from nodrop.client.auth.keys import AgentKey, KeyFile, Known
from nodrop.client.settings import load
from nodrop.client.transports.calls import Calls
from nodrop.client.transports.connecting import TransportName
from nodrop.model.errors import ConflictError, InvitationUsedError, SignatureStaleError
from nodrop.protocol.identity import bearer
from nodrop.relay.relay import Relay

WAIT = "20s"
TRANSPORTS: list[TransportName] = ["websocket", "http"]


class Served:
    """A relay on the network, and the home of its user."""

    def __init__(self, relay: Relay, url: str, home: Path) -> None:
        self.relay = relay
        self.url = url
        self.home = home

    async def joined(self, agent: str) -> KeyFile:
        async with nodrop.connect(self.url) as me:
            invitation = await me.invite(agent)
        await nodrop.join(invitation, address=self.url)
        return KeyFile(self.home, "default", agent)


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Served]:
    monkeypatch.setenv("NODROP_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    async with app.open_relay(":memory:", home=tmp_path) as relay, app.listening(relay) as url:
        await relay.ensure_token("default", agent="me", role="operator", secret="nd_operator")
        CredentialsFile(tmp_path).write(Credentials(url=url, operator="nd_operator"))
        yield Served(relay, url, tmp_path)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_two_agents_that_joined_trust_what_the_other_signed(
    served: Served, transport: TransportName
) -> None:
    for agent in ("asker", "doer"):
        await served.joined(agent)
    seen: list[bool] = []
    doer = nodrop.Agent("doer")

    @doer.capability("triage")
    async def triage(task: nodrop.Task, n: int) -> dict[str, int]:
        seen.append(task.sender_verified)
        return {"n": n + 1}

    working = asyncio.create_task(doer.serve(served.url, transport=transport))
    async with nodrop.connect(served.url, agent="asker", transport=transport) as me:
        handoff = await me.hand_off("doer", payload={"n": 1})
        outcome = await handoff.outcome(wait=WAIT)
    doer.stop()
    await working
    assert (outcome.result, outcome.verified, seen) == ({"n": 2}, True, [True])
    # Neither of them ever had a token.
    assert CredentialsFile(served.home).read().agents == {}


async def test_a_rotated_key_is_used_at_once(served: Served) -> None:
    file = await served.joined("asker")
    before = file.read().id
    async with nodrop.connect(served.url, agent="asker") as me:
        await joining.rotate(me, load(served.url, agent="asker"), agent="asker", overlap=0)
        assert (await me.keys("asker"))[0].expires_at is not None
        after = file.read().id
        assert after != before
        made = await me.hand_off("doer")
        assert made.sender_verified


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_revoked_agent_is_shut_out(served: Served, transport: TransportName) -> None:
    file = await served.joined("asker")
    async with (
        nodrop.connect(served.url) as operator,
        nodrop.connect(served.url, agent="asker", transport=transport) as me,
    ):
        waiting = asyncio.create_task(me.inbox(wait=WAIT))
        await me.inbox()
        await operator.revoke_key(file.read().id)
        with pytest.raises(nodrop.UnauthenticatedError):
            await waiting
        with pytest.raises(nodrop.UnauthenticatedError):
            await me.hand_off("doer")


async def test_an_invitation_that_was_used_leaves_the_key_as_it_was(served: Served) -> None:
    async with nodrop.connect(served.url) as me:
        invitation = await me.invite("asker")
    await nodrop.join(invitation, address=served.url)
    file = KeyFile(served.home, "default", "asker")
    before = file.read().id
    with pytest.raises(InvitationUsedError):
        await nodrop.join(invitation, address=served.url)
    assert file.read().id == before


async def test_a_key_for_another_relay_is_neither_replaced_nor_used(served: Served) -> None:
    file = await served.joined("asker")
    known = file.known()
    assert known is not None
    file.upcoming()
    file.keep(
        Known(
            url="https://elsewhere.example",
            team="default",
            agent="asker",
            relay_public_key=known.relay_public_key,
        )
    )
    async with nodrop.connect(served.url, agent="asker") as me:  # by a token that was minted
        assert not (await me.hand_off("doer")).sender_verified
    async with nodrop.connect(served.url) as operator:
        invitation = await operator.invite("asker")
    with pytest.raises(ConflictError):
        await nodrop.join(invitation, address=served.url)


async def test_a_number_that_cannot_be_signed_is_told_before_it_is_sent(served: Served) -> None:
    await served.joined("asker")
    async with nodrop.connect(served.url, agent="asker") as me:
        with pytest.raises(nodrop.InvalidRequestError, match="as text"):
            await me.hand_off("doer", payload={"id": 2**60})


class Impatient:
    """A transport whose relay was away for longer than a signature lasts."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    async def call(self, operation: str, fields: Any, **_: Any) -> dict[str, Any]:
        self.sent.append(dict(fields))
        if len(self.sent) == 1:
            raise SignatureStaleError
        return {"operation": operation}

    async def deliveries(self, **_: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None: ...


class Counting:
    """Signs with a number."""

    def __init__(self) -> None:
        self.count = 0

    def signs(self, operation: str) -> bool:
        return operation == "offer"

    def signature(self, operation: str, fields: Any, handoff: str | None) -> str:
        assert (operation, "signature" in fields, handoff) == ("offer", False, None)
        self.count += 1
        return str(self.count)


async def test_a_stale_signature_is_made_anew_for_the_same_command() -> None:
    transport = Impatient()
    await Calls(transport, agent="asker", signer=Counting()).call("offer", {"to": "doer"})
    first, second = transport.sent
    assert (first.pop("signature"), second.pop("signature")) == ("1", "2")
    assert first == second


async def test_a_bearer_token_is_renewed_before_it_expires(tmp_path: Path) -> None:
    file = KeyFile(tmp_path, "default", "asker")
    key = file.upcoming()
    file.keep(Known(url="http://x", team="default", agent="asker", relay_public_key=""))
    time = [1_000_000_000_000]
    agent = AgentKey(
        file,
        Known(url="", team="default", agent="asker", relay_public_key=""),
        clock=lambda: time[0],
    )
    first = await agent.current()
    assert first == await agent.current()
    assert await agent.renewed(first) is None
    time[0] += 540_000
    second = await agent.renewed(first)
    assert second is not None
    bearer.verify(second, bearer.peek(second)[1], key.public, now=time[0] + 599_000)

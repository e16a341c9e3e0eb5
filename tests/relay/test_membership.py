"""Keys and invitations when things happen at once, or nobody knows whether they happened."""

import asyncio

import msgspec
import pytest

from kit.keyholder import KeyHolder
from nodrop.model.errors import (
    InvitationUsedError,
    SignatureInvalidError,
    StoreUnavailableError,
    UnauthenticatedError,
)
from nodrop.protocol import requests
from nodrop.protocol.identity import key_views, signatures
from nodrop.protocol.views import LogAnswer
from nodrop.relay.relay import Caller, Relay
from nodrop.testing.clock import FakeClock
from nodrop_proof.kit.faulty import Fault, FaultyStore

ME = Caller(team="default", agent="me", operator=True)


async def invited(relay: Relay, agent: str = "asker") -> str:
    answer = (
        await relay.call(ME, "create_invitation", requests.CreateInvitation(agent=agent))
    ).answer
    assert isinstance(answer, key_views.InvitationAnswer)
    assert answer.invitation is not None
    return answer.invitation


async def join(relay: Relay, holder: KeyHolder, invitation: str) -> None:
    caller = await relay.authenticate(invitation)
    request = msgspec.convert(holder.joining(invitation), requests.Join)
    await relay.call(caller, "join", request)


async def keys_added(relay: Relay) -> int:
    request = requests.GetLog(type="key.added.v1")
    answer = (await relay.call(ME, "log", request)).answer
    assert isinstance(answer, LogAnswer)
    return len(answer.entries)


def signed_offer(holder: KeyHolder, now: int) -> requests.Offer:
    fields = {"to": "doer", "command_id": "c1"}
    sent = holder.signed("offer", fields, now=now)
    signature = signatures.as_sent(sent["signature"], fields)
    return requests.Offer(to="doer", command_id="c1", signature=signature)


async def test_a_key_revoked_in_the_same_commit_signs_nothing_after_it(
    relay: Relay, store: FaultyStore, clock: FakeClock
) -> None:
    holder = KeyHolder("asker")
    await join(relay, holder, await invited(relay))
    caller = Caller(team="default", agent="asker")
    before = store.transactions
    revoked, offered = await asyncio.gather(
        relay.call(ME, "revoke_key", requests.RevokeKey(key_id=holder.key.id)),
        relay.call(caller, "offer", signed_offer(holder, clock.now())),
        return_exceptions=True,
    )
    assert store.transactions - before == 1
    assert not isinstance(revoked, BaseException)
    assert isinstance(offered, SignatureInvalidError)


async def test_when_nobody_knows_whether_somebody_joined_it_is_looked_up(
    relay: Relay, store: FaultyStore
) -> None:
    invitation = await invited(relay)
    first, second = KeyHolder("asker"), KeyHolder("asker")
    store.fail_next(Fault.AFTER_COMMIT)
    with pytest.raises(StoreUnavailableError):
        await join(relay, first, invitation)
    with pytest.raises(InvitationUsedError):
        await join(relay, second, invitation)
    await join(relay, first, invitation)
    assert await keys_added(relay) == 1


async def test_nothing_is_decided_on_what_a_failed_commit_left_open(
    relay: Relay, store: FaultyStore
) -> None:
    invitation = await invited(relay)
    store.gate.clear()
    store.fail_next(Fault.AFTER_COMMIT)
    first = asyncio.ensure_future(join(relay, KeyHolder("asker"), invitation))
    for _ in range(20):
        await asyncio.sleep(0)
    second = asyncio.ensure_future(join(relay, KeyHolder("asker"), invitation))
    for _ in range(20):
        await asyncio.sleep(0)
    store.gate.set()
    ended = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(ended[0], StoreUnavailableError)
    assert isinstance(ended[1], StoreUnavailableError | InvitationUsedError)
    assert await keys_added(relay) == 1


async def test_a_joiner_that_went_away_has_joined_all_the_same(
    relay: Relay, store: FaultyStore
) -> None:
    invitation = await invited(relay)
    first = KeyHolder("asker")
    store.gate.clear()
    joining = asyncio.ensure_future(join(relay, first, invitation))
    for _ in range(20):
        await asyncio.sleep(0)
    joining.cancel()
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await joining
    with pytest.raises(InvitationUsedError):
        await join(relay, KeyHolder("asker"), invitation)


async def test_what_is_remembered_of_bearer_tokens_is_bounded(
    relay: Relay, clock: FakeClock
) -> None:
    holder = KeyHolder("asker")
    await join(relay, holder, await invited(relay))
    token = holder.bearer(clock.now())
    assert (await relay.authenticate(token)).key_id == holder.key.id
    await relay.call(ME, "revoke_key", requests.RevokeKey(key_id=holder.key.id))
    with pytest.raises(UnauthenticatedError):
        await relay.authenticate(token)

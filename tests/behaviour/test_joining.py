"""Who gets in, with what, and for how long."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

import pytest

from kit.keyholder import KeyHolder
from nodrop.model.errors import NodropError
from nodrop.testing.clock import FakeClock

HOUR = 3_600_000
MINUTE = 60_000

View = dict[str, Any]


class Member(Protocol):
    async def __call__(
        self, operation: str, handoff: str | None = None, /, **fields: Any
    ) -> View: ...


class Office(Protocol):
    clock: FakeClock

    async def person(self) -> Member: ...
    async def enter(self, secret: str) -> Member: ...
    async def join(self, name: str, *, role: str = ...) -> Member: ...
    async def restart(self, *, down_ms: int = ...) -> None: ...


async def invited(office: Office, **fields: Any) -> str:
    me = await office.person()
    return (await me("create_invitation", **fields))["invitation"]


async def joined(office: Office, holder: KeyHolder, invitation: str) -> View:
    return await (await office.enter(invitation))("join", **holder.joining(invitation))


async def signed_in(office: Office, holder: KeyHolder) -> Member:
    return await office.enter(holder.bearer(office.clock.now()))


async def member(office: Office, agent: str) -> KeyHolder:
    """Return an agent that has joined with a key."""
    holder = KeyHolder(agent)
    await joined(office, holder, await invited(office, agent=agent))
    return holder


async def refused(work: Awaitable[Any]) -> str:
    with pytest.raises(NodropError) as error:
        await work
    return error.value.code


async def try_in(office: Office, secret: str) -> str:
    """Return how somebody with `secret` is turned away."""

    async def ask() -> None:
        await (await office.enter(secret))("inbox")

    return await refused(ask())


# --- invitations ---------------------------------------------------------------------------------


async def test_an_invitation_lets_one_agent_in_once(office: Office) -> None:
    invitation = await invited(office, agent="newcomer")
    first, second = KeyHolder("newcomer"), KeyHolder("newcomer")
    answer = await joined(office, first, invitation)
    assert (answer["team"], answer["key"]["agent"]) == ("default", "newcomer")
    assert await refused(joined(office, second, invitation)) == "invitation_used"
    newcomer = await signed_in(office, first)
    assert (await newcomer("inbox"))["items"] == []
    assert await try_in(office, second.bearer(office.clock.now())) == "unauthenticated"


async def test_of_two_who_come_at_once_one_joins(office: Office) -> None:
    invitation = await invited(office, agent="newcomer")
    holders = [KeyHolder("newcomer") for _ in range(8)]
    entered = [await office.enter(invitation) for _ in holders]
    answers = await asyncio.gather(
        *(m("join", **h.joining(invitation)) for m, h in zip(entered, holders, strict=True)),
        return_exceptions=True,
    )
    refusals = [a.code for a in answers if isinstance(a, NodropError)]
    assert refusals == ["invitation_used"] * 7
    me = await office.person()
    assert len((await me("keys", agent="newcomer"))["keys"]) == 1


async def test_a_joiner_that_did_not_hear_the_answer_asks_again(office: Office) -> None:
    invitation = await invited(office, agent="newcomer")
    holder = KeyHolder("newcomer")
    first = await joined(office, holder, invitation)
    await office.restart()
    assert (await joined(office, holder, invitation))["key"] == first["key"]
    assert await refused(joined(office, KeyHolder("newcomer"), invitation)) == "invitation_used"


async def test_an_invitation_expires_and_can_be_taken_back(office: Office) -> None:
    short, long = await invited(office, expires="1h"), await invited(office)
    me = await office.person()
    listed = (await me("list_invitations"))["invitations"]
    assert [i["agent"] for i in listed] == [None, None]
    office.clock.advance(HOUR)
    assert await refused(joined(office, KeyHolder("late"), short)) == "unauthenticated"
    await me("revoke_invitation", named=listed[1]["invitation_id"])
    assert await refused(joined(office, KeyHolder("late"), long)) == "unauthenticated"
    assert (await me("list_invitations"))["invitations"] == []


async def test_an_invitation_is_for_joining_and_nothing_else(office: Office) -> None:
    bearer = await office.enter(await invited(office))
    assert await refused(bearer("inbox")) == "forbidden"
    assert await refused(bearer("offer", to="me")) == "forbidden"
    assert await refused(bearer("log")) == "forbidden"


async def test_an_invitation_without_a_name_takes_nobodys_name(office: Office) -> None:
    await office.join("code_agent")
    invitation = await invited(office)
    assert await refused(joined(office, KeyHolder("code_agent"), invitation)) == "forbidden"
    assert await refused(joined(office, KeyHolder("me"), invitation)) == "forbidden"
    assert await refused(joined(office, KeyHolder("relay"), invitation)) == "invalid_request"
    await joined(office, KeyHolder("newcomer"), invitation)


async def test_an_invitation_in_a_name_is_for_that_name(office: Office) -> None:
    invitation = await invited(office, agent="newcomer")
    assert await refused(joined(office, KeyHolder("other"), invitation)) == "forbidden"


async def test_whoever_joins_proves_that_it_holds_the_key(office: Office) -> None:
    invitation = await invited(office, agent="newcomer")
    thief, owner = KeyHolder("newcomer"), KeyHolder("newcomer")
    entered = await office.enter(invitation)
    stolen = thief.joining(invitation) | {"public_key": owner.key.public.text}
    assert await refused(entered("join", **stolen)) == "signature_invalid"
    elsewhere = owner.joining("ndi_another")
    assert await refused(entered("join", **elsewhere)) == "signature_invalid"
    bearer = owner.joining(invitation) | {"proof": owner.bearer(office.clock.now())}
    assert await refused(entered("join", **bearer)) == "signature_invalid"


async def test_only_operators_invite(office: Office) -> None:
    plain = await office.join("code_agent")
    assert await refused(plain("create_invitation")) == "forbidden"
    assert await refused(plain("list_invitations")) == "forbidden"
    assert await refused(plain("set_policy", signatures="required")) == "forbidden"


# --- bearer tokens -------------------------------------------------------------------------------


async def test_a_bearer_token_is_good_until_it_expires(office: Office) -> None:
    holder = await member(office, "newcomer")
    token = holder.bearer(office.clock.now())
    await (await office.enter(token))("inbox")
    office.clock.advance(9 * MINUTE)
    await (await office.enter(token))("inbox")
    office.clock.advance(MINUTE)
    assert await try_in(office, token) == "unauthenticated"


async def test_a_bearer_token_that_does_not_hold_is_refused(office: Office) -> None:
    holder, other = await member(office, "newcomer"), await member(office, "other")
    now = office.clock.now()
    seconds = now // 1000
    wrong = {
        "no algorithm": holder.bearer(now, header={"alg": "none"}),
        "another algorithm": holder.bearer(now, header={"alg": "HS256"}),
        "a key in the header": holder.bearer(now, header={"jwk": {"kty": "OKP"}}),
        "critical extensions": holder.bearer(now, header={"crit": ["b64"], "b64": False}),
        "made for requests": holder.bearer(now, header={"typ": "nodrop-request"}),
        "another key": holder.bearer(now, header={"kid": other.key.id}),
        "an unknown key": KeyHolder("newcomer").bearer(now),
        "for somebody else": holder.bearer(now, aud="elsewhere"),
        "in another's name": holder.bearer(now, iss="other"),
        "for another team": holder.bearer(now, sub="elsewhere"),
        "from the future": holder.bearer(now, iat=seconds + 61, exp=seconds + 120),
        "expired": holder.bearer(now, iat=seconds - 60, exp=seconds),
        "ends before it begins": holder.bearer(now, exp=seconds - 1),
        "lives too long": holder.bearer(now, exp=seconds + 901),
        "no end": holder.bearer(now, exp=None),
    }
    wrong["cut short"] = holder.bearer(now)[:-4]
    header, claims, _ = holder.bearer(now).split(".")
    wrong["not signed"] = f"{header}.{claims}."
    turned_away = {why: await try_in(office, token) for why, token in wrong.items()}
    assert turned_away == dict.fromkeys(wrong, "unauthenticated")
    # The control: nothing but these fields is what was wrong.
    at_the_edge = holder.bearer(now, iat=seconds + 60, exp=seconds + 960)
    await (await office.enter(at_the_edge))("inbox")


# --- rotation, revocation, roles -----------------------------------------------------------------


async def test_a_rotated_key_is_good_for_the_overlap(office: Office) -> None:
    old, new = await member(office, "newcomer"), KeyHolder("newcomer")
    itself = await signed_in(office, old)
    added = await itself("add_key", **new.adding("c1"), command_id="c1", overlap="1h")
    assert added["key"]["expires_at"] is None
    await (await signed_in(office, new))("inbox")
    office.clock.advance(HOUR - 1)
    await (await signed_in(office, old))("inbox")
    office.clock.advance(1)
    assert await try_in(office, old.bearer(office.clock.now())) == "unauthenticated"
    await (await signed_in(office, new))("inbox")
    await office.restart()
    assert await try_in(office, old.bearer(office.clock.now())) == "unauthenticated"
    await (await signed_in(office, new))("inbox")


async def test_a_revoked_key_is_good_for_nothing_at_once(office: Office) -> None:
    holder = await member(office, "newcomer")
    token = holder.bearer(office.clock.now())
    await (await office.enter(token))("inbox")
    me = await office.person()
    await me("revoke_key", named=holder.key.id)
    assert await try_in(office, token) == "unauthenticated"
    await office.restart()
    assert await try_in(office, holder.bearer(office.clock.now())) == "unauthenticated"


async def test_keys_are_their_agents_business_and_operators(office: Office) -> None:
    holder, other = await member(office, "newcomer"), await member(office, "other")
    itself = await signed_in(office, holder)
    assert await refused(itself("revoke_key", named=other.key.id)) == "not_found"
    assert await refused(itself("revoke_key", named="unknown")) == "not_found"
    more = KeyHolder("other")
    adding = itself("add_key", **more.adding("c1"), command_id="c1")
    assert await refused(adding) == "forbidden"
    raised = KeyHolder("newcomer")
    adding = itself("add_key", **raised.adding("c2"), command_id="c2", role="operator")
    assert await refused(adding) == "forbidden"
    replayed = itself("add_key", **raised.adding("c2"), command_id="c3")
    assert await refused(replayed) == "signature_invalid"


async def test_an_observer_looks_on(office: Office) -> None:
    holder = KeyHolder("auditor")
    await joined(office, holder, await invited(office, agent="auditor", role="observer"))
    auditor = await signed_in(office, holder)
    assert (await auditor("log", limit=1))["entries"]
    assert await refused(auditor("offer", to="me")) == "forbidden"
    assert await refused(auditor("take")) == "forbidden"
    raised = auditor("create_token", agent="auditor", role="agent")
    assert await refused(raised) == "forbidden"
    await auditor("create_token", agent="auditor", role="observer")


async def test_tokens_are_listed_until_they_are_revoked_to_operators_and_to_their_own_agents(
    office: Office,
) -> None:
    me = await office.person()
    made = await me("create_token", agent="code_agent", label="laptop")
    code_agent = await office.enter(made["token"])
    other = await me("create_token", agent="code_agent")

    async def listed(who: Any, **fields: Any) -> dict[str, str | None]:
        found = (await who("list_tokens", **fields))["tokens"]
        assert all("token" not in shown and "secret_sha256" not in shown for shown in found)
        return {shown["token_id"]: shown["label"] for shown in found}

    both = {made["token_id"]: "laptop", other["token_id"]: None}
    assert await listed(me, agent="code_agent") == both
    assert both.items() < (await listed(me)).items(), "the person has one too"
    assert await listed(code_agent) == both
    assert await listed(code_agent, agent="me") == {}, "not its to know of"
    await me("revoke_token", named=other["token_id"])
    assert await listed(me, agent="code_agent") == {made["token_id"]: "laptop"}


async def test_whoever_waits_hears_that_its_token_is_revoked(office: Office) -> None:
    me = await office.person()
    token = await me("create_token", agent="code_agent")
    waiter = await office.enter(token["token"])
    waiting = asyncio.ensure_future(refused(waiter("take", wait="60s")))
    while not (await me("get_agent", named="code_agent"))["agent"]["connected"]:  # noqa: ASYNC110  # it is asked
        await asyncio.sleep(0)  # in-process, asking alone gives nobody else a turn
    await me("revoke_token", named=token["token_id"])
    assert await waiting == "unauthenticated"

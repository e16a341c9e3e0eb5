"""Who said what: requests that their makers signed, and what becomes of copies and forgeries."""

from collections.abc import Awaitable
from typing import Any, Protocol

import pytest

from kit.keyholder import KeyHolder
from nodrop.model.errors import NodropError
from nodrop.testing.clock import FakeClock

MINUTE = 60_000
WINDOW = 5 * MINUTE
DAY = 24 * 60 * MINUTE

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


class Signatory:
    """An agent that joined with a key and signs what it says."""

    def __init__(self, office: Office, holder: KeyHolder) -> None:
        self.office = office
        self.holder = holder
        self._count = 0

    async def at_the_door(self) -> Member:
        return await self.office.enter(self.holder.bearer(self.office.clock.now()))

    def signed(
        self, operation: str, handoff: str | None = None, /, **fields: Any
    ) -> dict[str, Any]:
        self._count += 1
        named = {"command_id": f"{self.holder.agent}-{self._count}", **fields}
        return self.holder.signed(operation, named, now=self.office.clock.now(), handoff=handoff)

    async def __call__(self, operation: str, handoff: str | None = None, /, **fields: Any) -> View:
        sent = self.signed(operation, handoff, **fields)
        return await (await self.at_the_door())(operation, handoff, **sent)

    async def send(self, operation: str, handoff: str | None, sent: dict[str, Any]) -> View:
        return await (await self.at_the_door())(operation, handoff, **sent)


async def signatory(office: Office, agent: str) -> Signatory:
    me = await office.person()
    invitation = (await me("create_invitation", agent=agent))["invitation"]
    holder = KeyHolder(agent)
    await (await office.enter(invitation))("join", **holder.joining(invitation))
    return Signatory(office, holder)


@pytest.fixture
async def asker(office: Office) -> Signatory:
    return await signatory(office, "asker")


@pytest.fixture
async def doer(office: Office) -> Signatory:
    return await signatory(office, "doer")


async def refused(work: Awaitable[Any]) -> str:
    with pytest.raises(NodropError) as error:
        await work
    return error.value.code


PAYLOAD = {"amount": 1.0, "text": "déjà vu 😀", "big": 1e21, "small": 1e-7, "n": [1, None, True]}


async def test_a_signed_offer_and_its_signed_result_are_verified(
    asker: Signatory, doer: Signatory
) -> None:
    made = (await asker("offer", to="doer", title="Pay", payload=PAYLOAD))["handoff"]
    assert made["verified"] is True
    worker = await doer.at_the_door()
    (delivery,) = (await worker("take"))["deliveries"]
    assert delivery["handoff"]["verified"] is True
    assert delivery["handoff"]["payload"] == PAYLOAD
    await worker("ack", made["id"], attempt=1)
    done = await doer("complete", made["id"], attempt=1, result={"paid": 1.50})
    outcome = done["handoff"]["outcome"]
    assert (outcome["verified"], outcome["result"]) == (True, {"paid": 1.5})


async def test_what_nobody_signed_is_not_verified(office: Office, doer: Signatory) -> None:
    plain = await office.join("inbox_monitor")
    made = (await plain("offer", to="doer"))["handoff"]
    assert made["verified"] is False
    worker = await doer.at_the_door()
    await worker("ack", made["id"])
    done = await worker("complete", made["id"], attempt=1, result=1)
    assert done["handoff"]["outcome"]["verified"] is False


@pytest.mark.parametrize("ending", ["fail", "reject"])
async def test_the_other_endings_are_signed_too(
    asker: Signatory, doer: Signatory, ending: str
) -> None:
    made = (await asker("offer", to="doer"))["handoff"]
    worker = await doer.at_the_door()
    await worker("ack", made["id"])
    done = await doer(ending, made["id"], attempt=1, reason="cannot")
    outcome = done["handoff"]["outcome"]
    assert (outcome["verified"], outcome["reason"]) == (True, "cannot")


@pytest.mark.parametrize("said", [{}, {"escalation": []}])
async def test_the_teams_steps_are_beside_what_was_signed(
    office: Office, asker: Signatory, said: dict[str, Any]
) -> None:
    made = (await asker("offer", to="doer", payload=PAYLOAD, **said))["handoff"]
    assert (made["verified"], bool(made["team_steps"])) == (True, not said)
    me = await office.person()
    [offered] = (await me("log", type="handoff.offered.v1"))["entries"]
    kept = offered["body"]["signed"]["request"]
    assert kept.get("escalation", "absent") == said.get("escalation", "absent"), "as it was sent"
    assert "escalation" not in offered["data"]["terms"] or said
    other: list[Any] | None = None if said else []
    swapped = asker.signed("offer", to="doer", **said) | {"escalation": other}
    assert await refused(asker.send("offer", None, swapped)) == "signature_invalid"


async def test_a_body_that_was_swapped_is_refused(asker: Signatory) -> None:
    sent = asker.signed("offer", to="doer", payload={"amount": 1})
    for swap in (
        {"payload": {"amount": 2}},
        {"to": "thief"},
        {"deadline": "1h"},
        {"command_id": "another"},
        {"escalation": [{"when": "dead", "notify": "thief"}]},
        {"then": [{"to": "thief"}]},
    ):
        assert await refused(asker.send("offer", None, sent | swap)) == "signature_invalid"
    assert (await asker.send("offer", None, sent))["handoff"]["verified"] is True


async def test_a_trace_may_be_added_on_the_way(asker: Signatory) -> None:
    sent = asker.signed("offer", to="doer")
    traced = sent | {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    assert (await asker.send("offer", None, traced))["handoff"]["verified"] is True


async def test_a_signature_is_for_one_operation_and_one_handoff(
    asker: Signatory, doer: Signatory
) -> None:
    one = (await asker("offer", to="doer"))["handoff"]["id"]
    two = (await asker("offer", to="doer"))["handoff"]["id"]
    worker = await doer.at_the_door()
    for made in (one, two):
        await worker("ack", made)
    done = doer.signed("complete", one, attempt=1)
    assert await refused(doer.send("complete", two, done)) == "signature_invalid"
    assert await refused(doer.send("fail", one, done)) == "signature_invalid"
    other_attempt = done | {"attempt": 2}
    assert await refused(doer.send("complete", one, other_attempt)) == "signature_invalid"
    assert (await doer.send("complete", one, done))["handoff"]["state"] == "completed"


async def test_another_agents_key_is_refused(asker: Signatory, doer: Signatory) -> None:
    stolen = asker.signed("offer", to="doer")
    assert await refused(doer.send("offer", None, stolen)) == "signature_invalid"
    unknown = Signatory(asker.office, KeyHolder("asker")).signed("offer", to="doer")
    assert await refused(asker.send("offer", None, unknown)) == "signature_invalid"


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"typ": "JWT"},
        {"typ": "nodrop-proof"},
        {"sub": "another_team"},
        {"crit": ["b64"], "b64": False},
        {"jwk": {"kty": "OKP"}},
        {"iat": "now"},
    ],
    ids=str,
)
async def test_a_header_that_is_not_ours_is_refused(
    asker: Signatory, header: dict[str, Any]
) -> None:
    fields = {"to": "doer", "command_id": "c1"}
    sent = asker.holder.signed("offer", fields, now=asker.office.clock.now(), **header)
    assert await refused(asker.send("offer", None, sent)) == "signature_invalid"


async def test_what_is_no_signature_is_refused(asker: Signatory) -> None:
    nonsenses: list[Any] = [7, {"jws": "x", "sent": {}}, "", "a.b", "..", "x" * 5_000, "é..é"]
    for nonsense in nonsenses:
        sent: dict[str, Any] = {"to": "doer", "command_id": "c1", "signature": nonsense}
        assert await refused(asker.send("offer", None, sent)) == "signature_invalid"


async def test_a_signature_needs_a_command_id(asker: Signatory) -> None:
    sent = asker.signed("offer", to="doer")
    del sent["command_id"]
    assert await refused(asker.send("offer", None, sent)) == "signature_invalid"


async def test_a_number_that_cannot_be_signed_is_refused(asker: Signatory) -> None:
    sent = asker.signed("offer", to="doer", payload={"id": 7}) | {"payload": {"id": 2**60}}
    assert await refused(asker.send("offer", None, sent)) == "signature_invalid"


# --- replays -------------------------------------------------------------------------------------


async def test_a_copy_within_the_window_is_the_same_command(asker: Signatory) -> None:
    office = asker.office
    sent = asker.signed("offer", to="doer")
    made = (await asker.send("offer", None, sent))["handoff"]["id"]
    office.clock.advance(WINDOW)
    assert (await asker.send("offer", None, sent))["handoff"]["id"] == made
    await office.restart()
    assert (await asker.send("offer", None, sent))["handoff"]["id"] == made


async def test_a_copy_outside_the_window_is_refused(asker: Signatory) -> None:
    office = asker.office
    sent = asker.signed("offer", to="doer")
    made = (await asker.send("offer", None, sent))["handoff"]["id"]
    await office.restart(down_ms=WINDOW + 1_000)
    assert await refused(asker.send("offer", None, sent)) == "signature_stale"
    # The command itself is remembered for days: signed anew, it is still the same one.
    office.clock.advance(6 * DAY)
    fields = {name: value for name, value in sent.items() if name != "signature"}
    again = asker.holder.signed("offer", fields, now=office.clock.now())
    assert (await asker.send("offer", None, again))["handoff"]["id"] == made


async def test_a_request_from_the_future_is_refused(asker: Signatory) -> None:
    office = asker.office
    fields = {"to": "doer", "command_id": "c1"}
    now = office.clock.now()
    early = asker.holder.signed("offer", fields, now=now + WINDOW + 1_000)
    assert await refused(asker.send("offer", None, early)) == "signature_stale"
    in_time = asker.holder.signed("offer", fields, now=now + WINDOW)
    assert (await asker.send("offer", None, in_time))["handoff"]["verified"] is True


async def test_what_a_revoked_key_signed_is_refused(office: Office, asker: Signatory) -> None:
    plain = await office.join("asker")  # the same agent, by a token
    sent = asker.signed("offer", to="doer")
    me = await office.person()
    await me("revoke_key", named=asker.holder.key.id)
    assert await refused(plain("offer", **sent)) == "signature_invalid"
    del sent["signature"]
    assert (await plain("offer", **sent))["handoff"]["verified"] is False


# --- the rules of a team -------------------------------------------------------------------------


async def test_a_team_can_require_signatures(
    office: Office, asker: Signatory, doer: Signatory
) -> None:
    me = await office.person()
    plain = await office.join("inbox_monitor")
    before = (await plain("offer", to="doer"))["handoff"]["id"]
    rules = await me("set_policy", signatures="required")
    assert rules == await plain("get_policy")
    assert (rules["signatures"], rules["allow"]) == ("required", [])
    await office.restart()
    plain = await office.join("inbox_monitor")
    assert await refused(plain("offer", to="doer")) == "signature_required"
    assert await refused((await asker.at_the_door())("offer", to="doer")) == "signature_required"
    made = (await asker("offer", to="doer"))["handoff"]["id"]
    worker = await doer.at_the_door()
    for handoff in (before, made):
        await worker("ack", handoff)
        unsigned = worker("complete", handoff, attempt=1, result=1)
        assert await refused(unsigned) == "signature_required"
        done = await doer("complete", handoff, attempt=1, result=1)
        assert done["handoff"]["state"] == "completed"
    await (await office.person())("set_policy", signatures="optional")
    await plain("offer", to="doer")


async def test_rules_that_mean_nothing_are_refused(office: Office) -> None:
    me = await office.person()
    assert await refused(me("set_policy", signatures="maybe")) == "invalid_request"
    assert await refused(me("set_policy", allow=[{"from": "no/name"}])) == "invalid_request"
    allow = [{"from": "a", "to": "b", "capability": "c"}, {"to": "me"}]
    assert (await me("set_policy", allow=allow))["allow"] == [
        {"from": "a", "to": "b", "capability": "c"},
        {"from": "*", "to": "me", "capability": "*"},
    ]


# --- chains --------------------------------------------------------------------------------------


async def test_a_leg_is_verified_where_everything_before_it_is(
    asker: Signatory, doer: Signatory
) -> None:
    async def next_leg(*, signed: bool) -> View:
        made = (await asker("offer", to="doer", then=[{"to": "asker"}]))["handoff"]["id"]
        worker = await doer.at_the_door()
        await worker("ack", made)
        completing = doer if signed else worker
        done = await completing("complete", made, attempt=1, result=1)
        asking = await asker.at_the_door()
        return (await asking("get_handoff", done["handoff"]["next_leg"]))["handoff"]

    assert (await next_leg(signed=True))["verified"] is True
    assert (await next_leg(signed=False))["verified"] is False

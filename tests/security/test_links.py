"""Attacks on links: codes and bearers that must not sign in, and what a view link must not show or do.

The matrix goes over every operation there is. Each check, taken away, lets something through.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import msgspec
import pytest

from kit.fortress import (
    ELSEWHERE,
    UNKNOWN,
    Attack,
    Breach,
    Control,
    Fortress,
    let_in,
)
from nodrop.model.limits import DEFAULT
from nodrop.protocol import requests
from nodrop.protocol.coordination import talk_requests as talk
from nodrop.protocol.coordination import trigger_requests
from nodrop.protocol.operations import OPERATIONS, Operation
from nodrop.relay.identity import access, links
from nodrop.relay.identity.access import hashed
from nodrop.relay.identity.links import Link, Links
from nodrop.relay.shows import Caller

HOUR = 3_600_000
SECRET = "never-for-viewers"
"""In every free text and every value that anyone in the team ever sent."""
READABLE = {
    *("get_handoff", "list_handoffs", "trace", "get_group", "dead_letters", "log"),
    *("agents", "get_agent", "checkpoints", "keys", "whoami", "get_policy", "redeem_link"),
}
"""What a view link is for, as the documentation promises; with payloads, `triggers` too."""
WITH_PAYLOADS = READABLE | {"triggers"}

Made = dict[str, str]


async def make(fortress: Fortress, by: str = "me", **fields: Any) -> Any:
    return await fortress.ask(by, "create_link", requests.CreateLink(**fields))


async def redeem(fortress: Fortress, code: str) -> Any:
    return await fortress.ask("me", "redeem_link", requests.RedeemLink(code=code))


async def revoke(fortress: Fortress, link: Any) -> None:
    request = requests.RevokeToken(token_id=link["token_id"])
    await fortress.ask("me", "revoke_token", request)


async def ended(fortress: Fortress) -> tuple[Made, Made]:
    """Return codes and bearers that sign no one in, by what is wrong with them."""
    codes: Made = {}
    bearers: Made = {}
    for kind in ("view", "sign_in"):
        revoked = await make(fortress, kind=kind)
        bearers[f"a revoked {kind} link's"] = (await redeem(fortress, revoked["code"]))["token"]
        await revoke(fortress, revoked)
        codes[f"revoked {kind}"] = revoked["code"]
        expired = await make(fortress, kind=kind, expires_in="12h")
        codes[f"expired {kind}"] = expired["code"]
        if kind == "view":
            bearers["an expired view link's"] = (await redeem(fortress, expired["code"]))["token"]
    old = await make(fortress)
    bearers["an expired session's"] = (await redeem(fortress, old["code"]))["token"]
    fortress.clock.advance(11 * HOUR)
    used = await make(fortress)
    signed_in = (await redeem(fortress, used["code"]))["token"]
    view = await make(fortress, kind="view")
    viewer = (await redeem(fortress, view["code"]))["token"]
    unused = await make(fortress, expires_in="24h")
    fortress.clock.advance(2 * HOUR)
    codes |= {
        "used": used["code"],
        "made up": "a" * 43,
        "empty": "",
        "a bearer": signed_in,
        "a viewer's bearer": viewer,
        "a token": "token-me",
        "the hash of a code": hashed(unused["code"]),
        "the id of a link": unused["token_id"],
        "a piece more": unused["code"] + "a",
        "a piece less": unused["code"][:-1],
        "in capitals": unused["code"].upper(),
        "with a blank": unused["code"] + " ",
        "very long": "a" * 100_000,
        "not text that is sent": "\x00\N{SNOWMAN}",
    }
    bearers |= {
        "a view link's code": view["code"],
        "an unused sign-in link's code": unused["code"],
        "a used sign-in link's code": used["code"],
        "what a view link's bearer would be of a sign-in code": links.view_bearer(used["code"]),
        "the hash of a bearer": hashed(signed_in),
        "a piece less": viewer[:-1],
        "the prefix alone": "ndv_",
    }
    return codes, bearers


def path_of(operation: Operation, about: str = UNKNOWN) -> str:
    return f"/v1/{operation.path.format(id=about, name='name')}"


def bad_codes(codes: Made) -> Iterator[Attack]:
    refused: dict[str, Any] = {"status": 403, "code": "link_invalid", "reason": "link_invalid"}
    for trick, code in codes.items():
        sent = {"code": code}
        for by, token in (("a stranger", None), ("an operator", "token-me")):
            yield Attack(
                name=f"{by}: {trick}", path="/v1/links/redeem", body=sent, token=token, **refused
            )


def bad_bearers(bearers: Made) -> Iterator[Attack]:
    refused: dict[str, Any] = {
        "status": 401,
        "code": "unauthenticated",
        "reason": "unauthenticated",
    }
    for operation in OPERATIONS.values():
        if operation.name == "redeem_link":
            continue  # which takes no bearer
        for trick, bearer in bearers.items():
            yield Attack(
                name=f"{operation.name}: {trick}",
                method=operation.method,
                path=path_of(operation),
                body={} if operation.changes else msgspec.UNSET,
                token=bearer,
                **refused,
            )


BODIES: dict[str, Any] = {
    "offer": {"to": "code_agent", "capability": "bug_triage", "title": "forged"},
    "note_team": {"text": "forged"},
    "create_token": {"agent": "viewer", "role": "observer"},
    "create_link": {"kind": "view"},
    "cancel": {},
}
"""What it takes for these to be carried out, were they not refused; the rest is refused earlier."""


def commands(fortress: Fortress, viewers: Made) -> Iterator[Attack]:
    refused: dict[str, Any] = {"status": 403, "code": "forbidden", "reason": "forbidden"}
    for who, token in viewers.items():
        may = WITH_PAYLOADS if "payloads" in who else READABLE
        for operation in OPERATIONS.values():
            if operation.name in may:
                continue
            states = ("offered", "completed") if operation.about_handoff else ("",)
            for state in states:
                yield Attack(
                    name=f"{who}: {operation.name}: {state}",
                    method=operation.method,
                    path=path_of(operation, fortress.handoffs.get(state, UNKNOWN)),
                    body=_body(operation) if operation.changes else msgspec.UNSET,
                    token=token,
                    **refused,
                )


def _body(operation: Operation) -> Any:
    """Return a request that is well formed: what is refused here is who asks."""
    if operation.name in BODIES:
        return BODIES[operation.name]
    wanted = {
        "seq": 1,
        "attempt": 1,
        "question": "?",
        "answer": 1,
        "checkpoint": 1,
        "to": "me",
        "text": "forged",
        "status": "forged",
        "type": "forged",
        "capability": "bug_triage",
        "agent": "viewer",
        "public_key": "A" * 43,
        "proof": "p",
        "url": "https://example.com/forged",
    }
    if operation.name == "register":
        return {"agent_id": "name"}
    if operation.name == "offer_group":
        return {"offers": {"a": {"to": "code_agent", "title": "forged"}}}
    if operation.name == "put_trigger":
        return {"on": "forged", "offer": {"to": "code_agent", "title": "forged"}}
    named = "{name}" in operation.path
    required = [f for f in msgspec.structs.fields(operation.request) if f.required]
    return {
        f.encode_name: wanted[f.encode_name]
        for f in required
        if not (named and f.encode_name in {"name", "agent", "token_id", "key_id", "invitation_id"})
    }


async def viewers_of(fortress: Fortress) -> Made:
    """Return the bearers of view links."""
    plain = await make(fortress, kind="view")
    full = await make(fortress, kind="view", payloads=True)
    return {
        "a viewer": (await redeem(fortress, plain["code"]))["token"],
        "a viewer of payloads": (await redeem(fortress, full["code"]))["token"],
    }


async def prepare(fortress: Fortress, family: str) -> list[Attack]:
    if family == "commands":
        return list(commands(fortress, await viewers_of(fortress)))
    codes, bearers = await ended(fortress)
    return list(bad_codes(codes) if family == "codes" else bad_bearers(bearers))


FAMILIES = ("codes", "bearers", "commands")


@asynccontextmanager
async def opened(**limits: Any) -> AsyncGenerator[Fortress]:
    fortress = Fortress(limits=msgspec.structs.replace(DEFAULT, **limits))
    await fortress.open()
    yield fortress
    await fortress.relay.stop()


@pytest.fixture
async def fortress() -> AsyncGenerator[Fortress]:
    """Let the matrix try as many codes as it likes: the rate has a test of its own."""
    async with opened(sign_ins_per_second_max=1e6) as fortress:
        yield fortress


@pytest.mark.parametrize("family", FAMILIES)
async def test_every_attack_is_refused_is_noted_and_changes_nothing(
    fortress: Fortress, family: str
) -> None:
    assert await fortress.withstand(await prepare(fortress, family)) == []


async def test_there_are_enough_attacks_and_every_operation_is_attacked(
    fortress: Fortress,
) -> None:
    attacks = [made for family in FAMILIES for made in await prepare(fortress, family)]
    assert len({msgspec.json.encode(made) for made in attacks}) == len(attacks)
    assert len(attacks) > 900
    refused = {made.name.split(": ")[1] for made in await prepare(fortress, "commands")}
    assert refused | READABLE == OPERATIONS.keys()


async def test_a_code_of_another_team_is_none_of_this_one(fortress: Fortress) -> None:
    link = await make(fortress, kind="view")
    sent: dict[str, Any] = {"json": {"code": link["code"]}}
    foreign = await fortress.stranger.request("POST", f"/teams/{ELSEWHERE}/v1/links/redeem", **sent)
    assert (foreign.status, foreign.json()["code"]) == (403, "link_invalid")
    own = await fortress.stranger.request("POST", "/teams/default/v1/links/redeem", **sent)
    assert own.json()["team"] == "default"


async def test_one_address_may_try_only_so_many_codes() -> None:
    async with opened(sign_ins_per_second_max=2.0, burst_seconds=2.0) as fortress:

        async def attempt() -> Any:
            sent = {"code": "guessed"}
            answer = await fortress.stranger.request("POST", "/v1/links/redeem", json=sent)
            return answer.json()["code"]

        assert [await attempt() for _ in range(6)] == ["link_invalid"] * 4 + ["rate_limited"] * 2
        fortress.clock.advance(1_000)
        assert [await attempt() for _ in range(3)] == ["link_invalid"] * 2 + ["rate_limited"]


# --- what is shown -------------------------------------------------------------------------------


async def planted(fortress: Fortress) -> dict[str, str]:
    """Put the secret into everything that can hold words or data; return what there is to read."""
    ask = fortress.ask
    said: dict[str, Any] = {
        "title": SECRET,
        "payload": {"a": SECRET, SECRET: 1},
        "expected_outcome": SECRET,
        "trigger": SECRET,
        "observations": [SECRET],
        "parameters": {"a": SECRET},
        "covariates": {"a": SECRET},
        "metadata": {"a": SECRET},
    }
    offer = requests.Offer(to="code_agent", capability="bug_triage", **said)

    async def offered(**more: Any) -> str:
        made = msgspec.structs.replace(offer, **more)
        return (await ask("inbox_monitor", "offer", made))["handoff"]["id"]

    done, dead, asked = await offered(), await offered(), await offered()
    for about in (done, dead, asked):
        await ask("code_agent", "ack", requests.Ack(status=SECRET), about)
    await ask("code_agent", "update", requests.Update(attempt=1, status=SECRET), done)
    await ask("code_agent", "step", requests.Step(attempt=1, value=SECRET), done, name="step")
    await ask("code_agent", "checkpoint", requests.Checkpoint(attempt=1, checkpoint=SECRET), done)
    blocks = requests.Block(attempt=1, question=SECRET, name=SECRET)
    question = await ask("code_agent", "block", blocks, done)
    answer = requests.Answer(seq=question["handoff"]["question"]["seq"], answer=SECRET)
    await ask("inbox_monitor", "answer", answer, done)
    await ask("me", "note", requests.Note(text=SECRET), done)
    await ask("code_agent", "complete", requests.Complete(attempt=1, result=SECRET), done)
    await ask("code_agent", "fail", requests.Fail(attempt=1, reason=SECRET), dead)
    await ask("code_agent", "block", blocks, asked)
    for verb, request in (
        ("reject", requests.Reject(reason=SECRET)),
        ("counter", requests.Counter(deadline="2d", reason=SECRET)),
        ("release", requests.Release(attempt=1, reason=SECRET, checkpoint=SECRET)),
    ):
        about = await offered()
        if verb == "release":
            await ask("code_agent", "ack", requests.Ack(), about)
        await ask("code_agent", verb, request, about)
    await ask("inbox_monitor", "cancel", requests.Cancel(reason=SECRET), await offered())
    moved = requests.Reassign(to="bystander", capability="deploy", reason=SECRET)
    await ask("inbox_monitor", "reassign", moved, await offered())
    discarded = await offered()
    await ask("code_agent", "reject", requests.Reject(reason=SECRET), discarded)
    await ask("me", "discard", requests.Discard(reason=SECRET), discarded)
    members = {"a": requests.Offer(to="code_agent", capability="bug_triage", **said)}
    group = await ask("me", "offer_group", requests.OfferGroup(offers=members, title=SECRET))
    await ask("me", "note_team", requests.Note(text=SECRET))
    rule = trigger_requests.PutTrigger(on="happened", offer=offer)
    await ask("me", "put_trigger", rule, name="rule")
    await ask("me", "emit", trigger_requests.Emit(type="happened", data={"a": SECRET}))
    await _talk(fortress)
    shown = await ask("me", "get_handoff", requests.GetHandoff(), done)
    return {"id": done, "chain": shown["handoff"]["correlation_id"], "group": _group_id(group)}


def _group_id(group: Any) -> str:
    return group["group"]["id"] if "id" in group["group"] else group["group"]["group_id"]


async def _talk(fortress: Fortress) -> None:
    await fortress.ask("me", "say", talk.Say(text=SECRET, to="code_agent"))
    await fortress.ask("me", "say", talk.Say(text=SECRET, to="viewer"))
    await fortress.ask("me", "tell_status", talk.TellStatus(status=SECRET, text=SECRET))


def reads(about: dict[str, str]) -> dict[str, list[str]]:
    """Return every address below which a viewer reads, by operation."""
    names = {"trace": about["chain"], "get_group": about["group"], "get_agent": "code_agent"}
    found = {
        operation.name: [
            f"/v1/{operation.path.format(id=about['id'], name=names.get(operation.name, ''))}"
        ]
        for operation in OPERATIONS.values()
        if operation.name in WITH_PAYLOADS and not operation.changes
    }
    found["log"] += [f"/v1/log?handoff_id={about['id']}", f"/v1/log?text={SECRET}"]
    found["get_handoff"] += [f"/v1/handoffs/{about['id']}?wait=1s"]
    return found


SHOWN = {"get_handoff", "list_handoffs", "trace", "get_group", "dead_letters", "log", "triggers"}
"""Reads that hold words and data: with payloads they show the secret, so it was there to be hidden."""


async def leaks(fortress: Fortress, token: str, about: dict[str, str]) -> set[str]:
    """Return the reads whose answers hold the secret."""
    found: set[str] = set()
    viewer = fortress.stranger.with_headers(authorization=f"Bearer {token}")
    for name, addresses in reads(about).items():
        for address in addresses:
            answer = (await viewer.request("GET", address)).body.decode()
            if SECRET in answer:
                found.add(name)
    async with viewer.exchange("GET", "/v1/log", headers={"accept": "text/event-stream"}) as stream:
        await stream.started()
        async for chunk in stream.chunks():
            if SECRET.encode() in chunk:
                found.add("the live log")
            break
    async with fortress.stranger.channel() as channel:
        channel.tell({"id": 0, "op": "hello", "token": token})
        await channel.frame()
        channel.tell(
            {"id": 1, "op": "log"},
            {"id": 2, "op": "get_handoff", "handoff_id": about["id"]},
            {"id": 3, "op": "list_handoffs"},
        )
        frames = [await channel.frame() for _ in range(3)]
        assert {"ok"} <= frames[0].keys()
        if SECRET in str(frames):
            found.add("the channel")
    return found


async def test_a_view_link_shows_no_body_in_any_read(fortress: Fortress) -> None:
    about = await planted(fortress)
    viewers = await viewers_of(fortress)
    assert await leaks(fortress, viewers["a viewer"], about) == set()
    assert await leaks(fortress, viewers["a viewer of payloads"], about) == {
        *SHOWN,
        "the live log",
        "the channel",
    }


async def test_without_the_check_of_bodies_they_are_shown(fortress: Fortress) -> None:
    about = await planted(fortress)
    viewers = await viewers_of(fortress)
    with mock.patch.object(Caller, "sees_bodies", property(lambda _: True)):
        shown = await leaks(fortress, viewers["a viewer"], about)
    assert {"get_handoff", "list_handoffs", "trace", "log", "the channel"} <= shown


# --- controls ------------------------------------------------------------------------------------


def known(breach: Breach) -> bool:
    """It was answered with a bearer."""
    return let_in(breach) and b'"token"' in breach.body


CONTROLS = [
    Control(
        check="used, expired and revoked codes",
        family="codes",
        disabled=lambda: mock.patch.object(Link, "redeemable", return_value=True),
        attack="a stranger: used",
        effect=known,
    ),
    Control(
        check="the expiry of codes",
        family="codes",
        disabled=lambda: mock.patch.object(Link, "redeemable", return_value=True),
        attack="a stranger: expired view",
        effect=known,
    ),
    Control(
        check="the end of bearers",
        family="bearers",
        disabled=lambda: mock.patch.object(Link, "good", return_value=True),
        attack="list_handoffs: an expired session's",
        effect=let_in,
    ),
    Control(
        check="what a viewer may ask for",
        family="commands",
        disabled=lambda: mock.patch.object(access, "require_role"),
        attack="a viewer: offer: ",
    ),
    Control(
        check="that a view link is for viewing",
        family="commands",
        disabled=lambda: mock.patch.object(Links, "authenticate", _as_operator),
        attack="a viewer: create_token: ",
    ),
]


def _as_operator(self: Links, bearer_sha256: str, *, now: int) -> Caller | None:
    assert self
    assert bearer_sha256
    assert now
    return Caller(team="default", agent="me", operator=True)


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.check)
async def test_without_one_check_what_it_is_against_gets_through(
    fortress: Fortress, control: Control
) -> None:
    attacks = await prepare(fortress, control.family)
    assert await fortress.without(control, attacks) == []

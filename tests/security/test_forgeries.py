"""Forgeries: bearer tokens and signed requests that are not what they say, in every way there is.

Each is refused, is in the security log once, and changes nothing; and each check of the relay's,
taken away, lets something through.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import msgspec
import pytest

from kit.fortress import ELSEWHERE, UNKNOWN, Attack, Control, Fortress, let_in
from kit.keyholder import KeyHolder
from nodrop.protocol import requests
from nodrop.protocol.identity import bearer, keys, signatures
from nodrop.protocol.identity.bearer import Claims
from nodrop.protocol.identity.keys import PublicKey, encode
from nodrop.protocol.operations import OPERATIONS
from nodrop.relay.identity.keys import Key
from nodrop.relay.identity.signing import Signing

FORGERIES_MIN = 800
MINUTE = 60_000
DAY = 24 * 60 * MINUTE

Team = dict[str, KeyHolder]


@pytest.fixture
async def team(fortress: Fortress) -> Team:
    """Keys of the team's agents: current ones, one that was revoked, one that was rotated out."""
    holders = {agent: KeyHolder(agent) for agent in ("inbox_monitor", "code_agent", "bystander")}
    holders |= {"revoked": KeyHolder("inbox_monitor"), "replaced": KeyHolder("inbox_monitor")}
    holders["unknown"] = KeyHolder("inbox_monitor")
    for name in ("revoked", "replaced"):
        await add(fortress, holders[name])
    key_id = holders["revoked"].key.id
    await fortress.ask("me", "revoke_key", requests.RevokeKey(key_id=key_id), name=key_id)
    for name in ("inbox_monitor", "code_agent", "bystander"):
        await add(fortress, holders[name])
    return holders


async def add(fortress: Fortress, holder: KeyHolder) -> None:
    proved = holder.adding(holder.key.id)
    request = requests.AddKey(**proved, command_id=holder.key.id, overlap=0)
    await fortress.ask(holder.agent, "add_key", request)


# --- bearer tokens -------------------------------------------------------------------------------


def bearers(fortress: Fortress, team: Team) -> dict[str, str]:
    """Return bearer tokens that let nobody in, by what is wrong with them."""
    now = fortress.clock.now()
    own = team["inbox_monitor"]
    good = own.bearer(now)
    header, payload, signature = good.split(".")
    seconds = now // 1000
    claims: dict[str, dict[str, Any]] = {
        "has expired": {"iat": seconds - 700, "exp": seconds - 100},
        "is from the future": {"iat": seconds + 300, "exp": seconds + 600},
        "lives too long": {"exp": seconds + 3_600},
        "ends before it begins": {"exp": seconds - 1},
        "never ends": {"exp": None},
        "is for somebody else": {"aud": "another"},
        "is for nobody": {"aud": None},
        "is for many": {"aud": ["nodrop", "another"]},
        "is another team's": {"sub": ELSEWHERE},
        "is nobody's team's": {"sub": "nowhere"},
        "says another name": {"iss": "me"},
        "says a colleague's name": {"iss": "code_agent"},
        "says no name": {"iss": None},
    }
    headers: dict[str, dict[str, Any]] = {
        "alg none": {"alg": "none"},
        "alg None": {"alg": "None"},
        "no alg": {"alg": None},
        "alg HS256": {"alg": "HS256"},
        "alg ES256": {"alg": "ES256"},
        "alg Ed25519": {"alg": "Ed25519"},
        "a key that nobody knows": {"kid": team["unknown"].key.id},
        "a colleague's key": {"kid": team["code_agent"].key.id},
        "no key": {"kid": None},
        "its key inside": {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": own.key.public.text}},
        "a key elsewhere": {"jku": "https://evil.example/keys"},
        "a certificate elsewhere": {"x5u": "https://evil.example/cert"},
        "critical extras": {"crit": ["exp"], "exp": seconds},
        "unencoded": {"b64": False, "crit": ["b64"]},
        "typ at will": {"typ": "at+jwt"},
        "typ of a request": {"typ": signatures.REQUEST},
        "typ of a proof": {"typ": signatures.PROOF},
    }
    with_secret = (
        f"{encode(msgspec.json.encode({'alg': 'HS256', 'typ': 'JWT', 'kid': own.key.id}))}"
    )
    hmacked = hmac.new(
        keys.decode(own.key.public.text), f"{with_secret}.{payload}".encode(), hashlib.sha256
    )
    return {
        **{name: own.bearer(now, **said) for name, said in claims.items()},
        **{name: own.bearer(now, header=said) for name, said in headers.items()},
        **{
            f"signed with {name}": team[name].bearer(now)
            for name in ("unknown", "revoked", "replaced")
        },
        "a public key for a secret": f"{with_secret}.{payload}.{encode(hmacked.digest())}",
        "not signed": f"{header}.{payload}.",
        "without the signature's part": f"{header}.{payload}",
        "signed by halves": f"{header}.{payload}.{signature[:43]}",
        "signed twice": f"{good}.{signature}",
        "another's claims": f"{header}.{team['code_agent'].bearer(now).split('.')[1]}.{signature}",
        "another's header": f"{team['code_agent'].bearer(now).split('.')[0]}.{payload}.{signature}",
        "with padding": f"{good}==",
        "a proof": team["inbox_monitor"].adding("n")["proof"],
    }


def forged_bearers(fortress: Fortress, team: Team) -> Iterator[Attack]:
    made = bearers(fortress, team)
    for operation in OPERATIONS.values():
        if operation.name == "redeem_link":
            continue  # which takes no bearer
        path = f"/v1/{operation.path.format(id=UNKNOWN, name='name')}"
        body: Any = {} if operation.changes else msgspec.UNSET
        for name, token in made.items():
            yield Attack(
                name=f"{operation.name}: {name}",
                method=operation.method,
                path=path,
                body=body,
                token=token,
                status=401,
                code="unauthenticated",
                reason="unauthenticated",
            )


# --- signed requests -----------------------------------------------------------------------------

SIGNED: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "offer": (
        "inbox_monitor",
        None,
        {"to": "code_agent", "capability": "bug_triage", "title": "t", "payload": {"n": 1}},
    ),
    "complete": ("code_agent", "accepted", {"attempt": 1, "result": {"n": 1}}),
    "fail": ("code_agent", "accepted", {"attempt": 1, "reason": "because"}),
    "reject": ("code_agent", "delivered", {"attempt": 1, "reason": "because"}),
}
"""By operation: who signs it, about a handoff in which state, and what it says."""

SWAPPED: dict[str, list[dict[str, Any]]] = {
    "offer": [
        *({"to": name} for name in ("bystander", "me", "inbox_monitor", "nobody_yet")),
        {"to": None},
        {"capability": "deploy"},
        {"capability": None},
        {"title": "T"},
        {"payload": {"n": 2}},
        {"payload": {"n": 1, "m": None}},
        {"payload": None},
        {"deadline": "1m"},
        {"priority": "urgent"},
        {"then": [{"to": "bystander"}]},
        {"watchers": ["bystander"]},
        {"idempotency_key": "another"},
        {"metadata": {"x": 1}},
        {"command_id": "another"},
        {"timeout": "1m"},
    ],
    "complete": [{"result": {"n": 2}}, {"result": None}, {"attempt": 2}, {"command_id": "another"}],
    "fail": [{"reason": "else"}, {"retryable": True}, {"attempt": 2}, {"command_id": "another"}],
    "reject": [{"reason": "else"}, {"attempt": 2}, {"command_id": "another"}],
}
"""What somebody on the way puts into a request that is signed."""


HEADERS: tuple[dict[str, Any], ...] = (
    {"alg": "none"},
    {"alg": "HS256"},
    {"kid": "nobody's"},
    {"typ": "JWT"},
    {"typ": signatures.PROOF},
    {"typ": signatures.STATEMENT},
    {"sub": ELSEWHERE},
    {"crit": ["x"], "x": 1},
    {"jwk": {}},
    {"b64": False},
)
"""Of signatures that are not made here."""


class Forger:
    """Makes signed requests of one kind, each wrong in one way."""

    def __init__(self, fortress: Fortress, team: Team, operation: str) -> None:
        agent, state, self.fields = SIGNED[operation]
        self.operation = operation
        self.team = team
        self.own = team[agent]
        self.now = fortress.clock.now()
        self.about = fortress.handoffs[state] if state else None
        self.others = [i for i in fortress.handoffs.values() if i != self.about]

    def sign(self, holder: KeyHolder | None = None, /, **made: Any) -> dict[str, Any]:
        """Return the request, signed; `op`, `about`, `at` are others than they should be."""
        fields = {**self.fields, "command_id": self.operation}
        operation, about = made.pop("op", self.operation), made.pop("about", self.about)
        now = made.pop("at", self.now)
        return (holder or self.own).signed(operation, fields, now=now, handoff=about, **made)

    def attack(self, name: str, body: Any, code: str, *, by: str | None = None) -> Attack:
        path = OPERATIONS[self.operation].path.format(id=self.about, name="")
        return Attack(
            name=f"{self.operation}: {name}",
            path=f"/v1/{path}",
            body=body,
            token=f"token-{by or self.own.agent}",
            status=403,
            code=code,
            reason=code,
        )

    def all(self) -> Iterator[Attack]:
        """Yield every forgery."""
        good = self.sign()
        yield self.attack("unsigned", {**self.fields, "command_id": "1"}, "signature_required")
        yield self.attack("null", {**good, "signature": None}, "signature_required")
        for minutes in (-6, -60, 6, 60):
            late = self.sign(at=self.now + minutes * MINUTE)
            yield self.attack(f"{minutes} minutes off", late, "signature_stale")
        for name, body in self._invalid(good):
            yield self.attack(name, body, "signature_invalid")
        for by in ("me", "bystander"):
            if self.operation == "offer":
                yield self.attack(f"sent by {by}", good, "signature_invalid", by=by)

    def _invalid(self, good: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        for swapped in SWAPPED[self.operation]:
            yield f"swapped {swapped}", {**good, **swapped}
        names = [
            n for n in self.team if n != self.own.agent and self.team[n].agent == self.own.agent
        ]
        for name in (*names, "bystander"):
            yield f"signed with the {name} key", self.sign(self.team[name])
        yield "a colleague's key id", self.sign(kid=self.team["bystander"].key.id)
        for header in HEADERS:
            yield f"header {header}", self.sign(**header)
        for operation in {"offer", "complete", "fail", "reject"} - {self.operation}:
            yield f"signed as {operation}", self.sign(op=operation)
        for other in self.others if self.about else ():
            yield f"signed for {other}", self.sign(about=other)
        protected, _, signature = good["signature"].split(".")
        for name, text in (
            ("nothing", ""),
            ("words", "please"),
            ("no signature", f"{protected}.."),
            ("half a signature", f"{protected}..{signature[:43]}"),
            ("not detached", f"{protected}.e30.{signature}"),
            ("padded", f"{good['signature']}=="),
            ("very long", "a" * (keys.JWS_CHARS_MAX + 1)),
        ):
            yield name, {**good, "signature": text}
        yield "no command id", {n: v for n, v in good.items() if n != "command_id"}


def forged_requests(fortress: Fortress, team: Team) -> Iterator[Attack]:
    for operation in SIGNED:
        yield from Forger(fortress, team, operation).all()


Family = Callable[[Fortress, Team], Iterator[Attack]]
FAMILIES: dict[str, Family] = {"bearers": forged_bearers, "requests": forged_requests}


async def prepare(fortress: Fortress, team: Team, family: str) -> list[Attack]:
    if family == "requests":
        await fortress.ask("me", "set_policy", requests.SetPolicy(signatures="required"))
    return list(FAMILIES[family](fortress, team))


@pytest.mark.parametrize("family", FAMILIES)
async def test_every_forgery_is_refused_is_noted_and_changes_nothing(
    fortress: Fortress, team: Team, family: str
) -> None:
    assert await fortress.withstand(await prepare(fortress, team, family)) == []


async def test_there_are_enough_forgeries_and_none_twice(fortress: Fortress, team: Team) -> None:
    attacks = [made for family in FAMILIES for made in await prepare(fortress, team, family)]
    assert len({msgspec.json.encode(made) for made in attacks}) == len(attacks)
    assert len(attacks) >= FORGERIES_MIN


async def test_what_is_forged_would_have_been_taken(fortress: Fortress, team: Team) -> None:
    bearer = team["inbox_monitor"].bearer(fortress.clock.now())
    welcome = Attack(
        name="", method="GET", path="/v1/inbox", token=bearer, status=200, code="", reason=None
    )
    assert (await fortress.send(welcome)).status == 200
    await fortress.ask("me", "set_policy", requests.SetPolicy(signatures="required"))
    for operation in ("offer", "complete", "reject"):
        forger = Forger(fortress, team, operation)
        answer = await fortress.send(forger.attack("", forger.sign(), ""))
        assert answer.status in {200, 201}, answer.body


# --- controls ------------------------------------------------------------------------------------


def timeless(token: str, claims: Claims, key: PublicKey, *, now: int) -> None:
    """Prove a token as if it had come when it was made."""
    assert now
    VERIFY(token, claims, key, now=claims.iat * 1000)


VERIFY = bearer.verify
CONTROLS = [
    Control(
        check="the time",
        family="bearers",
        disabled=lambda: mock.patch.object(bearer, "verify", timeless),
        attack="inbox: has expired",
        effect=let_in,
    ),
    Control(
        check="the lifetime",
        family="bearers",
        disabled=lambda: mock.patch.object(bearer, "LIFETIME_SECONDS_MAX", 86_400),
        attack="inbox: lives too long",
        effect=let_in,
    ),
    Control(
        check="the audience",
        family="bearers",
        disabled=lambda: mock.patch.object(bearer, "AUDIENCE", "another"),
        attack="inbox: is for somebody else",
        effect=let_in,
    ),
    Control(
        check="the purpose",
        family="bearers",
        disabled=lambda: mock.patch.object(bearer, "TYP", signatures.REQUEST),
        attack="inbox: typ of a request",
        effect=let_in,
    ),
    Control(
        check="the signature",
        family="bearers",
        disabled=lambda: mock.patch.object(PublicKey, "verify", return_value=b""),
        attack="inbox: not signed",
        effect=let_in,
    ),
    Control(
        check="good keys",
        family="bearers",
        disabled=lambda: mock.patch.object(Key, "good", return_value=True),
        attack="inbox: signed with revoked",
        effect=let_in,
    ),
    Control(
        check="good keys",
        family="requests",
        disabled=lambda: mock.patch.object(Key, "good", return_value=True),
        attack="offer: signed with the revoked key",
    ),
    Control(
        check="the window",
        family="requests",
        disabled=lambda: mock.patch.object(signatures, "check_window"),
        attack="complete: -6 minutes off",
    ),
    Control(
        check="any signature at all",
        family="requests",
        disabled=lambda: mock.patch.object(Signing, "check", return_value=None),
        attack="offer: unsigned",
    ),
    Control(
        check="the signature",
        family="requests",
        disabled=lambda: mock.patch.object(PublicKey, "verify", return_value=b""),
        attack="offer: swapped {'to': 'me'}",
    ),
]


@pytest.mark.parametrize(
    "control", CONTROLS, ids=lambda control: f"{control.check}: {control.family}"
)
async def test_without_one_check_the_forgery_it_is_against_gets_through(
    fortress: Fortress, team: Team, control: Control
) -> None:
    attacks = await prepare(fortress, team, control.family)
    assert await fortress.without(control, attacks) == []

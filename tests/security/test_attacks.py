"""The attack matrix: who, with what credential, for which operation, by what trick. Everything is refused, with its code, is
in the security log once, and changes nothing; and each check, taken away, lets something through.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock
from urllib.parse import quote

import msgspec
import pytest
from msgspec.structs import replace

from kit.fortress import (
    ELSEWHERE,
    UNKNOWN,
    Attack,
    Breach,
    Control,
    Fortress,
    let_in,
    unnoticed,
)
from nodrop.model import decisions
from nodrop.model.roles import Role
from nodrop.protocol import requests
from nodrop.protocol.operations import OPERATIONS, Operation
from nodrop.relay import shows
from nodrop.relay.coordination import conditions
from nodrop.relay.directory import discovery, manifests
from nodrop.relay.handoffs import following
from nodrop.relay.identity import access, roles
from nodrop.relay.identity.access import Access, hashed
from nodrop.relay.identity.refusals import Refusals
from nodrop.relay.identity.rules import Rules
from nodrop.relay.relay import Caller
from nodrop.servers.gate import Gate
from nodrop.servers.http.door import HTTPDoor

ATTACKS_MIN = 2_000
CLOSED = [operation for operation in OPERATIONS.values() if operation.name != "redeem_link"]
"""Everything that takes a bearer; `test_links` is about the rest."""

BODIES: dict[str, Any] = {
    "offer": {"to": "code_agent", "capability": "bug_triage", "title": "forged"},
    "block": {"attempt": 1, "question": "?"},
    "answer": {"seq": 1, "answer": 1},
    "agree": {"seq": 1},
    "decline": {"seq": 1},
    "checkpoint": {"attempt": 1, "checkpoint": 1},
    "counter": {"attempt": 1, "deadline": "2d"},
    "reassign": {"to": "me"},
    "note": {"text": "forged"},
    "note_team": {"text": "forged"},
    "register": {"agent_id": "code_agent"},
    "create_token": {"agent": "inbox_monitor"},
    "contract": {"capability": "bug_triage"},
    "offer_group": {"offers": {"a": {"to": "code_agent", "title": "forged"}}},
    "emit": {"type": "forged"},
    "put_trigger": {"on": "forged", "offer": {"to": "code_agent", "title": "forged"}},
    "put_outlet": {"url": "https://example.com/forged"},
    "say": {"text": "forged", "to": "code_agent"},
    "tell_status": {"status": "forged"},
}
"""What the operations need to be taken seriously."""
ATTEMPT = {"attempt": 1}
RECIPIENTS = ("ack", "reject", "counter", "update", "block", "complete", "fail", "release")
REQUESTERS = ("cancel", "reassign", "settle", "redrive", "discard", "accept", "erase")


def path_of(operation: Operation, about: str = UNKNOWN, prefix: str = "/v1") -> str:
    named = {"register": "code_agent", "remove_agent": "code_agent", "get_agent": "code_agent"}
    name = named.get(operation.name, "name")
    return f"{prefix}/{operation.path.format(id=about, name=name)}"


def body_of(operation: Operation, **more: Any) -> Any:
    if not operation.changes:
        return msgspec.UNSET
    body = BODIES.get(operation.name)
    if body is None:
        body = ATTEMPT if operation.name in {*RECIPIENTS, "step"} else {}
    return body | more


def attack(operation: str, **fields: Any) -> Attack:
    """Return an attack on an operation, with what it needs to be taken seriously."""
    made = OPERATIONS[operation]
    by, trick = fields.pop("by", "a stranger"), fields.pop("trick")
    fields.setdefault("path", path_of(made, fields.pop("about", UNKNOWN)))
    fields.setdefault("body", body_of(made))
    return Attack(name=f"{by}: {operation}: {trick}", method=made.method, **fields)


# --- the matrix ----------------------------------------------------------------------------------


def wrong_credentials(fortress: Fortress) -> Iterator[Attack]:
    good = "token-me"
    headers = {
        "none": {},
        "garbled": {"authorization": "Bearer token-mE"},
        "a piece more": {"authorization": "Bearer token-me2"},
        "a piece less": {"authorization": "Bearer token-m"},
        "revoked": {"authorization": f"Bearer {fortress.revoked}"},
        "nothing after the scheme": {"authorization": "Bearer "},
        "no scheme": {"authorization": good},
        "basic": {"authorization": f"Basic {good}"},
        "another scheme": {"authorization": f"Token {good}"},
        "in a cookie": {"cookie": f"token={good}; authorization=Bearer {good}"},
        "in another header": {"x-api-key": good, "x-authorization": f"Bearer {good}"},
        "the hash of one": {"authorization": f"Bearer {hashed(good)}"},
        "two in one": {"authorization": f"Bearer {good},{good}"},
        "not latin": {"authorization": "Bearer \xff\xfe"},
    }
    refused = {"status": 401, "code": "unauthenticated", "reason": "unauthenticated"}
    for operation in CLOSED:
        for trick, sent in headers.items():
            yield attack(operation.name, trick=trick, headers=sent, **refused)
        for query in ("token", "access_token", "authorization"):
            path = f"{path_of(operation)}?{query}={good}"
            yield attack(operation.name, trick=f"in ?{query}", path=path, **refused)
        if operation.changes:
            body = body_of(operation, token=good, authorization=f"Bearer {good}")
            yield attack(operation.name, trick="in the body", body=body, **refused)


def foreign_teams(_: Fortress) -> Iterator[Attack]:
    refused = {"status": 404, "code": "not_found", "reason": "foreign_team"}
    for operation in CLOSED:
        for agent in ("inbox_monitor", "watcher", "me"):
            for team in (ELSEWHERE, "nowhere"):
                path = path_of(operation, prefix=f"/teams/{team}/v1")
                said = {"by": agent, "trick": team, "token": f"token-{agent}", **refused}
                yield attack(operation.name, path=path, **said)


def roles_too_low(fortress: Fortress) -> Iterator[Attack]:
    refused = {"status": 403, "code": "forbidden", "reason": "forbidden"}
    for agent, role in (("watcher", Role.OBSERVER), ("inbox_monitor", Role.AGENT)):
        for name, may in roles.MAY.items():
            if role not in may:
                for state in ("offered", "completed") if "{id}" in OPERATIONS[name].path else ("",):
                    about = fortress.handoffs.get(state, UNKNOWN)
                    said = {"by": agent, "trick": state, "token": f"token-{agent}", **refused}
                    yield attack(name, about=about, **said)
    own = {"by": "inbox_monitor", "token": "token-inbox_monitor", **refused}
    for name in ("register", "remove_agent"):
        yield attack(name, trick="for another", **own)
    for agent, role in (
        ("code_agent", "agent"),
        ("me", "operator"),
        ("inbox_monitor", "operator"),
        ("inbox_monitor", "observer"),
    ):
        body = {"agent": agent, "role": role}
        yield attack("create_token", trick=f"{agent} as {role}", body=body, **own)
    body = BODIES["offer"] | {"from": "me"}
    yield attack("offer", trick="in another name", body=body, **own)


def foreign_handoffs(fortress: Fortress) -> Iterator[Attack]:
    refused = {"status": 404, "code": "not_found"}
    for agent in ("bystander", "foreigner"):
        # Of another team nothing is ever found, so there is nothing to note but an unknown id.
        reason = "foreign_handoff" if agent == "bystander" else None
        for operation in OPERATIONS.values():
            if not operation.about_handoff:
                continue
            for state, handoff_id in fortress.handoffs.items():
                for about in (handoff_id, f"inbox_monitor%2Fkey-{state}"):
                    said = {"by": agent, "trick": state, "token": f"token-{agent}", **refused}
                    yield attack(operation.name, about=about, reason=reason, **said)
        for handoff_id in fortress.handoffs.values():
            body = {"to": "me", "parent_id": handoff_id}
            said = {"by": agent, "trick": "as parent", "token": f"token-{agent}", **refused}
            yield attack("offer", body=body, reason=reason, **said)


def others_commands(fortress: Fortress) -> Iterator[Attack]:
    refused = {"status": 403, "code": "forbidden", "reason": "forbidden"}
    for state, about in fortress.handoffs.items():
        for agent, commands in (
            ("inbox_monitor", (*RECIPIENTS, "checkpoint", "step")),
            ("me", (*RECIPIENTS, "checkpoint", "step")),
            ("code_agent", REQUESTERS),
        ):
            for name in commands:
                said = {"by": agent, "trick": state, "token": f"token-{agent}", **refused}
                yield attack(name, about=about, **said)


RULES = requests.SetPolicy(
    allow=(
        requests.AllowSpec(from_="inbox_monitor", to="code_agent", capability="bug_triage"),
        requests.AllowSpec(from_="code_agent", to="inbox_monitor"),
    )
)


ALLOWED = {"to": "code_agent", "capability": "bug_triage"}


def rules(fortress: Fortress) -> Iterator[Attack]:
    forbidden = {"status": 403, "code": "forbidden", "reason": "rule"}
    no_match = {"status": 404, "code": "no_match", "reason": "rule"}
    offers: list[tuple[str, Any, Any]] = [
        ("inbox_monitor", {"to": "bystander"}, forbidden),
        ("inbox_monitor", {"to": "bystander", "capability": "deploy"}, forbidden),
        ("inbox_monitor", {"to": "code_agent", "capability": "deploy"}, forbidden),
        ("inbox_monitor", {"to": "nobody_yet"}, forbidden),
        ("inbox_monitor", {"to": "inbox_monitor"}, forbidden),
        ("inbox_monitor", {"to": "me"}, forbidden),
        ("inbox_monitor", {"capability": "deploy"}, no_match),
        ("bystander", ALLOWED, forbidden),
        ("bystander", {"capability": "bug_triage"}, no_match),
        ("code_agent", {"to": "bystander"}, forbidden),
        ("me", ALLOWED, forbidden),
        ("me", {"capability": "bug_triage"}, no_match),
        ("me", ALLOWED | {"from": "bystander"}, forbidden),
        ("me", {"to": "bystander", "from": "inbox_monitor"}, forbidden),
        ("inbox_monitor", ALLOWED | {"then": [{"to": "bystander"}]}, forbidden),
        ("inbox_monitor", ALLOWED | {"then": [{"to": "inbox_monitor"}, {"to": "me"}]}, forbidden),
        (
            "inbox_monitor",
            ALLOWED | {"then": [{"to": "inbox_monitor"}, {"to": "code_agent"}]},
            forbidden,
        ),
        (
            "inbox_monitor",
            ALLOWED | {"then": [{"to": "inbox_monitor"}, {"capability": "deploy"}]},
            forbidden,
        ),
    ]
    for agent, body, refused in offers:
        yield attack(
            "offer",
            by=agent,
            trick=str(body),
            body=body,
            token=f"token-{agent}",
            **refused,
        )
    for state in ("offered", "delivered", "accepted", "blocked"):
        for agent in ("inbox_monitor", "me"):
            said = {"by": agent, "token": f"token-{agent}", "about": fortress.handoffs[state]}
            for body, refused in (
                ({"to": "bystander", "capability": "deploy"}, forbidden),
                ({"to": "me"}, forbidden),
                ({"capability": "deploy"}, no_match),
            ):
                yield attack("reassign", trick=state, body=body, **said, **refused)
    for state in ("failed", "rejected", "expired"):
        for agent in ("inbox_monitor", "me"):
            said = {"by": agent, "token": f"token-{agent}", "about": fortress.handoffs[state]}
            for body, refused in (
                ({"to": "bystander", "capability": "deploy"}, forbidden),
                ({"capability": "deploy"}, no_match),
            ):
                yield attack("redrive", trick=state, body=body, **said, **refused)


HOSTS = (
    "evil.example",
    "evil.example:6377",
    "127.0.0.1.evil.example",
    "localhost.evil.example:6377",
    "",
    "169.254.169.254",
    "10.0.0.1:6377",
    "[::ffff:127.0.0.1]",
    "user@127.0.0.1",
    "127.0.0.1, evil.example",
    "127.0.0.1:6377@evil.example",
    "localhost\x00",
    "0",
)
ORIGINS = (
    "http://evil.example",
    "null",
    "http://127.0.0.1:9999",
    "https://localhost:6377.evil.example",
    "file://",
    "http://localhost:6377",
    "http://127.0.0.1",
    "",
)


def rebinding(_: Fortress) -> Iterator[Attack]:
    refused = {"status": 403, "code": "forbidden", "token": "token-me", "by": "a page"}
    for name in ("offer", "list_handoffs", "log", "take", "create_token", "agents", "register"):
        for host in HOSTS:
            said = {"trick": f"host {host!r}", "headers": {"host": host}, **refused}
            yield attack(name, reason="foreign_host", **said)
        for origin in ORIGINS:
            said = {"trick": f"origin {origin!r}", "headers": {"origin": origin}, **refused}
            yield attack(name, reason="foreign_origin", **said)


SCHEMAS: tuple[Any, ...] = (
    *(
        {"$ref": target}
        for target in (
            "http://127.0.0.1:6377/healthz",
            "https://evil.example/schema.json",
            "file:///etc/passwd",
            "//evil.example/x",
            "ftp://evil.example/x",
            "schema.json",
            "../schema.json",
        )
    ),
    {"properties": {"a": {"$ref": "http://evil.example/x"}}},
    {"items": {"$ref": "http://evil.example/x"}},
    {"allOf": [{"$ref": "http://evil.example/x"}]},
    {"$dynamicRef": "http://evil.example/x"},
    {"type": "string", "pattern": "((a{1000}){1000}){1000}"},
    {"type": "string", "pattern": "(a{65535}){65535}"},
    {"type": "string", "pattern": r"^(a+)+\1$"},
    {"type": "string", "pattern": "^(?=(a+)+)b"},
    {"type": "string", "pattern": "(?<!(a*)*)b"},
    {"patternProperties": {"((a{1000}){1000}){1000}": {}}},
)


def hostile_schemas(_: Fortress) -> Iterator[Attack]:
    refused = {"status": 422, "code": "invalid_request", "reason": "schema"}
    for schema in SCHEMAS:
        for side in ("input_schema", "output_schema"):
            can = {"name": "x", side: schema}
            body = {"agent_id": "code_agent", "capabilities": [can]}
            said = {"by": "code_agent", "token": "token-code_agent", "trick": f"{side} {schema}"}
            yield attack("register", body=body, **said, **refused)
        for side in ("input", "output"):
            said = {"by": "bystander", "token": "token-bystander", "trick": f"{side} {schema}"}
            asked = quote(msgspec.json.encode(schema))
            yield attack("agents", path=f"/v1/agents?{side}={asked}", **said, **refused)
            body = {"capability": "bug_triage", side: schema}
            yield attack("contract", body=body, **said, **refused)


CONDITIONS = (
    "event.a.all(x, event.a.all(y, event.a.all(z, x + y + z > 0)))",
    "event.a.map(x, event.a.map(y, x * y)).size() > 0",
    "event.a.filter(x, event.a.exists(y, y == x)).size() > 0",
    "event.a.exists_one( x , event.b . all ( y , y > x ) )",
    "[event.a.all(x, true)].all(y, event.a.all(z, y))",
    " && ".join(["event.a.all(x, x > 0)"] * 9),
    "event.a.all(x, true) ? event.b.map(y, event.b.map(z, z)).size() > 0 : false",
    "event.a == '" + "a" * 1_000 + "'",
    "(" * 600 + "true" + ")" * 600,
    "event.s.matches('" + "(a+)+" * 300 + "')",
    " || ".join(["event.a.b.c.d.e.f == 1"] * 60),
    "event.s + " * 120 + "event.s == ''",
    "[" * 600 + "1" + "]" * 600 + " == []",
    "!" * 1_100 + "true",
    "-" * 1_100 + "1 > 0",
    "event.a.existsOne(x, event.a.existsOne(y, x == y))",
    r"r'\' == '' || event.a.all(x, event.a.all(y, true)) || '' == ''",
    "'''a'b''' == '' || event.a.all(x, event.a.all(y, true)) || '' == ''",
    '"""a"b""" == "" || event.a.all(x, event.a.all(y, true)) || "" == ""',
    "true // '\n && event.a.all(x, event.a.all(y, true)) // '",
    "event.a.all // (\n (x, event.a.all(y, true))",
    "['a']" + ".map(x, x + x + x + x + x + x + x + x)" * 8 + " == []",
    "event.a.map(x, [x, x]).size() > 0",
    "event.s" + " + event.s" * 20 + " == ''",
    "event.s.matches(event.pattern)",
    "event.s.matches('((a{1000}){1000}){1000}')",
    "event.s.matches('(a{1000}){10}b')",
    "event.s.matches('(a{0,1000}){,10}' + 'b')",
)
"""Conditions that would take a relay's time: nested loops, also where they hide, more of them than
fit, values that grow, patterns that take long.
"""


def hostile_conditions(_: Fortress) -> Iterator[Attack]:
    refused = {"status": 422, "code": "invalid_request", "reason": "condition"}
    for condition in CONDITIONS:
        rule = BODIES["put_trigger"] | {"when": condition}
        for name, body in (("put_trigger", rule), ("test_trigger", {"rule": rule})):
            said = {"by": "me", "token": "token-me", "trick": condition[:60]}
            yield attack(name, body=body, **said, **refused)


FAMILIES: dict[str, Callable[[Fortress], Iterator[Attack]]] = {
    "wrong credentials": wrong_credentials,
    "foreign teams": foreign_teams,
    "roles too low": roles_too_low,
    "foreign handoffs": foreign_handoffs,
    "others' commands": others_commands,
    "rules": rules,
    "rebinding": rebinding,
    "hostile schemas": hostile_schemas,
    "hostile conditions": hostile_conditions,
}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


async def prepare(fortress: Fortress, family: str) -> list[Attack]:
    if family == "rules":
        await fortress.ask("me", "set_policy", RULES)
    return list(FAMILIES[family](fortress))


async def test_every_attack_is_refused_is_noted_and_changes_nothing(
    fortress: Fortress, family: str
) -> None:
    assert await fortress.withstand(await prepare(fortress, family)) == []


async def test_there_are_enough_attacks_and_none_twice(fortress: Fortress) -> None:
    attacks = [attack for family in FAMILIES for attack in await prepare(fortress, family)]
    assert len({msgspec.json.encode(attack) for attack in attacks}) == len(attacks)
    assert len(attacks) >= ATTACKS_MIN


async def test_unknown_and_foreign_ids_give_the_same_answer_to_the_letter(
    fortress: Fortress,
) -> None:
    compared = 0
    for attack_ in foreign_handoffs(fortress):
        foreign = await fortress.send(attack_)
        [handoff_id] = [i for i in fortress.handoffs.values() if i in str(attack_)] or [None]
        if handoff_id is None:
            continue
        blank = msgspec.json.decode(
            msgspec.json.encode(attack_).replace(handoff_id.encode(), UNKNOWN.encode()),
            type=Attack,
        )
        unknown = await fortress.send(blank)
        assert (foreign.status, foreign.headers) == (unknown.status, unknown.headers)
        assert foreign.body.replace(handoff_id.encode(), UNKNOWN.encode()) == unknown.body
        compared += 1
    assert compared > 400


async def test_no_secret_and_no_payload_is_in_the_security_log(fortress: Fortress) -> None:
    for family in FAMILIES:
        for attack_ in (await prepare(fortress, family))[::7]:
            await fortress.send(attack_)
    noted = repr(fortress.relay.refusals.of("default", limit=10_000))
    for secret in ("token-me", fortress.revoked, "the words", "the data", "key-"):
        assert secret not in noted


# --- controls ------------------------------------------------------------------------------------


@contextmanager
def revocation_forgotten() -> Generator[None]:
    """Let tokens in that were revoked."""
    authenticate = Access.authenticate

    def forgetful(self: Access, secret: str, *, address: str | None = None) -> Caller:
        for token in vars(self)["_revoked"].values():
            self.put(replace(token, revoked_at=None))
        return authenticate(self, secret, address=address)

    with mock.patch.object(Access, "authenticate", forgetful):
        yield


@contextmanager
def teams_forgotten() -> Generator[None]:
    """Serve whoever is somewhere at home in every team."""
    caller: Any = vars(HTTPDoor)["_caller"]

    def at_home(self: HTTPDoor, scope: Any, headers: Any, _team: Any, operation: str) -> Any:
        return caller(self, scope, headers, None, operation)

    with mock.patch.object(HTTPDoor, "_caller", at_home):
        yield


@contextmanager
def sight_for_everybody() -> Generator[None]:
    """Show every handoff to whoever asks."""
    with (
        mock.patch.object(shows, "may_see", return_value=True),
        mock.patch.object(following, "may_see", return_value=True),
    ):
        yield


def no_problems(*_: Any) -> Iterator[Any]:
    return iter(())


def everybody(
    _rules: Rules, _team: str, _sender: str, found: Mapping[str, Any], _capability: str
) -> Mapping[str, Any]:
    return found


def shown(breach: Breach) -> bool:
    """What only the parties may read was in the answer."""
    return let_in(breach) and b"the data" in breach.body


CONTROLS = [
    Control(
        check="revocation",
        family="wrong credentials",
        disabled=revocation_forgotten,
        attack="a stranger: offer: revoked",
    ),
    Control(
        check="teams",
        family="foreign teams",
        disabled=teams_forgotten,
        attack=f"me: offer: {ELSEWHERE}",
    ),
    Control(
        check="what a manifest's schemas are",
        family="hostile schemas",
        disabled=lambda: mock.patch.object(manifests, "schema_problems", no_problems),
        attack="code_agent: register: input_schema {'$ref': 'file:///etc/passwd'}",
    ),
    Control(
        check="what shapes asked for are",
        family="hostile schemas",
        disabled=lambda: mock.patch.object(discovery, "schema_problems", no_problems),
        attack="bystander: agents: input {'$ref': 'file:///etc/passwd'}",
        effect=let_in,
    ),
    Control(
        check="roles",
        family="roles too low",
        disabled=lambda: mock.patch.object(access, "require_role"),
        attack="watcher: offer: ",
    ),
    Control(
        check="sight",
        family="foreign handoffs",
        disabled=sight_for_everybody,
        attack="bystander: get_handoff: completed",
        effect=shown,
    ),
    Control(
        check="parties",
        family="others' commands",
        disabled=lambda: mock.patch.object(decisions, "_require"),
        attack="code_agent: cancel: offered",
    ),
    Control(
        check="rules",
        family="rules",
        disabled=lambda: mock.patch.object(Rules, "require"),
        attack="inbox_monitor: offer: {'to': 'bystander'}",
    ),
    Control(
        check="rules for legs",
        family="rules",
        disabled=lambda: mock.patch.object(Rules, "require_legs"),
        attack=f"inbox_monitor: offer: {ALLOWED | {'then': [{'to': 'bystander'}]}}",
    ),
    Control(
        check="rules for candidates",
        family="rules",
        disabled=lambda: mock.patch.object(Rules, "admitted", everybody),
        attack="inbox_monitor: offer: {'capability': 'deploy'}",
    ),
    Control(
        check="what a condition costs",
        family="hostile conditions",
        disabled=lambda: mock.patch.object(conditions.Cost, "_read", return_value=()),
        attack="me: put_trigger: event.s.matches('((a{1000}){1000}){1000}')",
    ),
    Control(
        check="host",
        family="rebinding",
        disabled=lambda: mock.patch.object(Gate, "_names_this_relay", return_value=True),
        attack="a page: offer: host 'evil.example'",
    ),
    Control(
        check="origin",
        family="rebinding",
        disabled=lambda: mock.patch.object(Gate, "_is_own_page", return_value=True),
        attack="a page: offer: origin 'http://evil.example'",
    ),
    Control(
        check="the security log",
        family="foreign teams",
        disabled=lambda: mock.patch.object(Refusals, "note"),
        attack=f"me: offer: {ELSEWHERE}",
        effect=unnoticed,
    ),
]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.check)
async def test_without_one_check_what_it_is_against_gets_through(
    fortress: Fortress, control: Control
) -> None:
    attacks = await prepare(fortress, control.family)
    assert await fortress.without(control, attacks) == []

"""Real answers of every operation, held against what the OpenAPI document says of them."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from kit.asgi import Response, Visitor
from kit.keyholder import KeyHolder
from nodrop.log.port import Store
from nodrop.log.sqlite import SQLiteStore
from nodrop.protocol.openapi import document
from nodrop.protocol.operations import OPERATIONS
from nodrop.testing.clock import FakeClock

DOCUMENT = document()


class Described:
    """Asks over HTTP, and checks request and answer against the document."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    async def ask(
        self, who: Visitor, operation: str, body: Any = None, *, query: str = "", **blanks: str
    ) -> Any:
        route = OPERATIONS[operation]
        described = DOCUMENT["paths"][f"/{route.path}"][route.method.lower()]
        path = f"/v1/{route.path.format(**blanks)}{query}"
        if body is None:
            response = await who.request(route.method, path)
        else:
            content = described["requestBody"]["content"]["application/json"]
            check(content["schema"], body)
            response = await who.request(route.method, path, json=body)
        check_response(described, response)
        if response.status < 400:
            self.seen.add(operation)
        return response.json()


def check(schema: dict[str, Any], value: Any) -> None:
    validator = jsonschema_rs.Draft202012Validator(schema | {"components": DOCUMENT["components"]})
    assert [
        f"{error.instance_path}: {error.message}" for error in validator.iter_errors(value)
    ] == []


def check_response(described: dict[str, Any], response: Response) -> None:
    said = described["responses"].get(str(response.status))
    if said is None:
        assert response.status >= 400
        said = DOCUMENT["components"]["responses"]["problem"]
    kind = response.headers["content-type"]
    check(said["content"][kind]["schema"], response.json())


class Cast:
    """Who takes part: each asks for operations by their names."""

    def __init__(self, stranger: Visitor, clock: FakeClock) -> None:
        self.clock = clock
        self.described = Described()
        self._visitors = {
            agent: stranger.with_headers(authorization=f"Bearer token-{agent}")
            for agent in ("inbox_monitor", "code_agent", "me")
        }

    @property
    def asked_for(self) -> set[str]:
        return self.described.seen

    async def requester(self, operation: str, body: Any = None, **about: str) -> Any:
        return await self._ask("inbox_monitor", operation, body, **about)

    async def worker(self, operation: str, body: Any = None, **about: str) -> Any:
        return await self._ask("code_agent", operation, body, **about)

    async def operator(self, operation: str, body: Any = None, **about: str) -> Any:
        return await self._ask("me", operation, body, **about)

    async def offered(self, **fields: Any) -> str:
        """Return the id of a handoff to the worker."""
        offer = {"to": "code_agent", "payload": {"n": 1}} | fields
        return (await self.requester("offer", offer))["handoff"]["id"]

    async def _ask(self, agent: str, operation: str, body: Any, **about: str) -> Any:
        return await self.described.ask(self._visitors[agent], operation, body, **about)


async def a_chain_is_worked_through(cast: Cast) -> None:
    full = {
        "capability": "bug_triage",
        "trigger": "Bug report detected",
        "title": "Login button",
        "expected_outcome": "A timeline",
        "accept_within": "15m",
        "update_every": "30m",
        "deadline": "4h",
        "attempts_max": 3,
        "backoff": {"first": "2s", "factor": 2, "max": "5m"},
        "escalation": [{"when": "unacknowledged", "after": "1h", "notify": "me"}],
        "then": [{"to": "inbox_monitor", "title": "Response"}],
        "watchers": ["support_agent"],
        "idempotency_key": "msg_123",
        "metadata": {"a": 1},
    }
    chain = await cast.offered(**full)
    assert await cast.offered(**full) == chain
    await cast.worker("take", {"max": 5, "heartbeat_seconds": 10, "process": "p1"})
    await cast.worker("heartbeat", {"process": "p1"})
    await cast.worker("ack", {"attempt": 1, "status": "Queued", "eta": "2h"}, id=chain)
    await cast.worker("update", {"attempt": 1, "status": "Looking"}, id=chain)
    await cast.worker("step", {"attempt": 1, "value": 1}, id=chain, name="ticket")
    await cast.worker("get_step", id=chain, name="ticket")
    await cast.worker("checkpoint", {"attempt": 1, "checkpoint": [1]}, id=chain)
    blocked = await cast.worker("block", {"attempt": 1, "question": "Which?"}, id=chain)
    await cast.requester("inbox")
    seq = blocked["handoff"]["question"]["seq"]
    await cast.requester("answer", {"seq": seq, "answer": "1.2"}, id=chain)
    await cast.requester("note", {"text": "noted"}, id=chain)
    await cast.worker("complete", {"attempt": 1, "result": {"ok": True}}, id=chain)
    leg = (await cast.requester("get_handoff", id=chain))["handoff"]["next_leg"]
    await cast.requester("trace", name=blocked["handoff"]["correlation_id"])
    await cast.requester("ack", {}, id=leg)
    await cast.requester("complete", {"attempt": 1, "result": None}, id=leg)
    await cast.requester("settle", {}, id=leg)
    await cast.requester("erase", {}, id=leg)
    await cast.operator("refusals")


async def terms_are_agreed_on_and_declined(cast: Cast) -> None:
    for verb in ("agree", "decline"):
        bargain = await cast.offered()
        countered = await cast.worker("counter", {"deadline": "2d", "reason": "busy"}, id=bargain)
        seq = countered["handoff"]["question"]["seq"]
        await cast.requester(verb, {"seq": seq}, id=bargain)


async def work_is_given_back_passed_on_and_cancelled(cast: Cast) -> None:
    released = await cast.offered()
    await cast.worker("ack", {}, id=released)
    await cast.worker("release", {"attempt": 1, "checkpoint": {"a": 1}}, id=released)
    await cast.requester("reassign", {"to": "inbox_monitor"}, id=released)
    await cast.requester("cancel", {"reason": "never mind"}, id=released)


async def dead_letters_are_decided_about(cast: Cast) -> None:
    rejected, failed = await cast.offered(), await cast.offered()
    late = await cast.offered(deadline="10s")
    await cast.worker("reject", {"reason": "no"}, id=rejected)
    await cast.worker("ack", {}, id=failed)
    await cast.worker("fail", {"attempt": 1, "reason": "broken", "code": "crash"}, id=failed)
    await cast.worker("ack", {}, id=late)
    cast.clock.advance(11_000)
    await cast.worker("complete", {"attempt": 1, "result": "at last"}, id=late)
    listed = await cast.operator("dead_letters", query="?limit=10")
    assert {h["id"] for h in listed["handoffs"]} >= {rejected, failed, late}
    await cast.operator("redrive", {"to": "inbox_monitor"}, id=rejected)
    await cast.operator("dismiss", {}, id=failed)
    await cast.operator("discard", {}, id=failed)
    await cast.operator("accept", {}, id=late)


async def a_team_coordinates(cast: Cast) -> None:
    offers = {"a": {"to": "code_agent", "title": "one"}, "b": {"to": "support", "title": "two"}}
    group = await cast.requester("offer_group", {"offers": offers, "join": "any"})
    await cast.requester("get_group", name=group["group"]["id"])
    rule = {"on": "email.*", "when": "true", "offer": {"to": "code_agent", "title": "${event.id}"}}
    await cast.operator("put_trigger", rule, name="mail")
    await cast.requester("emit", {"type": "email.received", "event_id": "e1", "data": {"n": 1}})
    await cast.requester("triggers")
    await cast.operator("test_trigger", {"trigger": "mail"})
    await cast.operator("remove_trigger", name="mail")
    hook = {"url": "https://example.com/hook", "kinds": ["outcome"]}
    await cast.requester("put_outlet", hook, name="hook")
    await cast.requester("outlets")
    await cast.requester("remove_outlet", name="hook")
    await cast.requester("subscribe_topic", {}, name="mobile")
    await cast.requester("topics")
    await cast.worker("tell_status", {"status": "stuck", "topic": "mobile"})
    said = await cast.worker("say", {"text": "hello", "to": "inbox_monitor"})
    await cast.requester("say", {"text": "yes?", "thread": said["thread"]})
    await cast.requester("messages")
    await cast.requester("unsubscribe_topic", name="mobile")


async def people_look_around(cast: Cast) -> None:
    await cast.worker("agents")
    await cast.worker("agents", query="?capability=bug_triage&limit=3&input=%7B%7D")
    await cast.worker("get_agent", name="code_agent")
    contract = await cast.requester("contract", {"capability": "bug_triage", "timeout": "2m"})
    under = {"capability": "bug_triage", "timeout": "2m", "contract_digest": contract["digest"]}
    await cast.offered(**under)
    await cast.requester("note_team", {"text": "noted"})
    await cast.requester("list_handoffs", query="?limit=5")
    await cast.requester("log", query="?limit=500")
    await cast.requester("checkpoints")
    await cast.operator("backup", {})
    token = await cast.operator("create_token", {"agent": "support_agent"})
    await cast.operator("list_tokens", query="?agent=support_agent")
    await cast.operator("revoke_token", name=token["token_id"])
    reach = {"public": True, "a2a": "https://agents.example/coder", "token": "s"}
    assert (await cast.operator("set_reach", reach, name="code_agent"))["token"] is True
    await cast.operator("get_reach", name="code_agent")
    await cast.operator("remove_agent", name="code_agent")


async def somebody_joins_with_a_key(cast: Cast, stranger: Visitor) -> None:
    await cast.operator("set_policy", {"signatures": "optional", "allow": [{"from": "*"}]})
    await cast.worker("get_policy")
    who = {"team": "default", "agent": "code_agent", "role": "agent"}
    assert await cast.worker("whoami") == who
    unused = await cast.operator("create_invitation", {"expires": "1h"})
    await cast.operator("list_invitations")
    await cast.operator("revoke_invitation", name=unused["invitation_id"])
    invitation = (await cast.operator("create_invitation", {"agent": "new"}))["invitation"]
    joiner, later = KeyHolder("new"), KeyHolder("new")
    invited = stranger.with_headers(authorization=f"Bearer {invitation}")
    await cast.described.ask(invited, "join", joiner.joining(invitation))
    bearer = joiner.bearer(cast.clock.now())
    itself = stranger.with_headers(authorization=f"Bearer {bearer}")
    added = later.adding("c1") | {"command_id": "c1", "overlap": "1h"}
    await cast.described.ask(itself, "add_key", added)
    offer = {"to": "code_agent", "command_id": "c2", "payload": {"n": 1.5}}
    signed = joiner.signed("offer", offer, now=cast.clock.now())
    assert (await cast.described.ask(itself, "offer", signed))["handoff"]["verified"] is True
    await cast.described.ask(itself, "keys", query="?agent=new")
    await cast.described.ask(itself, "revoke_key", name=joiner.key.id)


async def a_link_is_redeemed(cast: Cast, stranger: Visitor) -> None:
    link = await cast.operator("create_link", {"kind": "view", "expires_in": "1h"})
    signed_in = await cast.described.ask(stranger, "redeem_link", {"code": link["code"]})
    viewer = stranger.with_headers(authorization=f"Bearer {signed_in['token']}")
    await cast.described.ask(viewer, "list_handoffs")
    await cast.operator("list_tokens")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    """A file: what is in memory has no backup."""
    async with await SQLiteStore.open(tmp_path / "nodrop.db") as store:
        yield store


async def test_every_operation_answers_as_it_is_described(
    stranger: Visitor, clock: FakeClock
) -> None:
    cast = Cast(stranger, clock)
    manifest = {"agent_id": "code_agent", "capabilities": [{"name": "bug_triage"}]}
    await cast.worker("register", manifest, name="code_agent")
    await a_chain_is_worked_through(cast)
    await terms_are_agreed_on_and_declined(cast)
    await work_is_given_back_passed_on_and_cancelled(cast)
    await dead_letters_are_decided_about(cast)
    await a_team_coordinates(cast)
    await people_look_around(cast)
    await somebody_joins_with_a_key(cast, stranger)
    await a_link_is_redeemed(cast, stranger)
    assert cast.asked_for == OPERATIONS.keys()


async def test_a_refusal_is_as_it_is_described(stranger: Visitor, clock: FakeClock) -> None:
    cast = Cast(stranger, clock)
    problem = await cast.requester("create_token", {"agent": "me"})
    assert problem["code"] == "forbidden"

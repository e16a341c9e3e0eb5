"""An agent opened to the world: callers without a token reach that agent, within bounds, and no more."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final
from unittest import mock

import grpc.aio
import pytest
from a2a.types import SendMessageRequest, a2a_pb2, a2a_pb2_grpc
from msgspec.structs import replace

from nodrop.model.limits import DEFAULT
from nodrop.relay.room import Rates, Room
from nodrop.servers.a2a import handler
from nodrop.servers.a2a.door import A2ADoor
from nodrop.servers.a2a.handler import Handler

AGENT: Final = "/agents/coder"
CURRENT: Final = {"a2a-version": "1.0"}
EXTENSION: Final = "urn:nodrop:a2a:handoff:v1"
UNGUESSABLE: Final = "5e3f1c9a-77aa-4a1e-9d0c-2f6b1d1f9a10"
SECONDS_MAX: Final = 20


def message(text: str = "hi", **fields: Any) -> dict[str, Any]:
    said = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}]} | fields
    return {"message": said, "configuration": {"returnImmediately": True}}


def terms(**said: Any) -> dict[str, Any]:
    return message(metadata={EXTENSION: said})


async def opened(office: Any, **bounds: Any) -> Any:
    """Open the coder to the world, within these bounds; return somebody without a token."""
    if bounds:
        office.limits = replace(DEFAULT, **bounds)
        await office.restart(grpc_port=0)
    me = await office.member("me")
    await me("set_reach", name="coder", public=True)
    return await office.http(None)


class Reference:
    """What each method of A2A is asked for about one task."""

    def __init__(self, task: str) -> None:
        push = f"{AGENT}/tasks/{task}/pushNotificationConfigs"
        self.asked: dict[str, tuple[str, str, Any]] = {
            "get": ("GET", f"{AGENT}/tasks/{task}", None),
            "cancel": ("POST", f"{AGENT}/tasks/{task}:cancel", {}),
            "subscribe": ("POST", f"{AGENT}/tasks/{task}:subscribe", {}),
            "answer": ("POST", f"{AGENT}/message:send", message(taskId=task)),
            "push to": ("POST", push, {"url": "https://example.com/", "taskId": task}),
            "pushes": ("GET", push, None),
            "a push": ("GET", f"{push}/a", None),
            "drop a push": ("DELETE", f"{push}/a", None),
        }


async def test_tasks_of_members_are_none_to_who_has_no_token(office: Any) -> None:
    anybody, planner = await opened(office), await office.member("planner")
    foreign = (await planner("offer", to="coder", payload={}))["handoff"]
    before = await office.entries()
    for task in (foreign["id"], foreign["id"][:13], foreign["ref"]):
        for what, (method, path, body) in Reference(task).asked.items():
            answer = await anybody.request(method, path, json=body, headers=CURRENT)
            refused = 400 if "push" in what else 404  # of no task at all may anything be pushed
            assert answer.status_code == refused, (what, answer.text)
    context = {"contextId": foreign["correlation_id"]}
    listed = await anybody.get(f"{AGENT}/tasks", params=context, headers=CURRENT)
    assert listed.json()["tasks"] == []
    assert await office.entries() == before


async def test_nothing_else_of_the_relay_is_open(office: Any) -> None:
    anybody = await opened(office)
    await office.token("tester")
    before = await office.entries()
    for method, path in (
        ("GET", "/v1/log"),
        ("GET", "/v1/agents"),
        ("GET", "/v1/handoffs"),
        ("POST", "/v1/handoffs"),
        ("POST", "/mcp"),
        ("POST", "/a2a/message:send"),
        ("POST", "/agents/tester/message:send"),
        ("POST", "/teams/others/agents/coder/message:send"),
        ("GET", AGENT),
    ):
        answer = await anybody.request(method, path, json=message(), headers=CURRENT)
        assert answer.status_code in {401, 404}, (method, path, answer.text)
    assert await office.entries() == before


BEYOND: dict[str, dict[str, Any]] = {
    "a leg to another agent": {"then": [{"to": "tester"}]},
    "an escalation to another agent": {
        "escalation": [{"when": "dead", "reassign": {"to": "tester"}}]
    },
    "news for another agent": {"watchers": ["tester"]},
    "a place below another's handoff": {"parentId": "01a00000-0000-7000-8000-000000000000"},
}


@pytest.mark.parametrize("said", BEYOND.values(), ids=BEYOND)
async def test_without_a_token_work_goes_to_that_agent_alone(office: Any, said: Any) -> None:
    anybody = await opened(office)
    await office.token("tester")
    before = await office.entries()
    answer = await anybody.post(f"{AGENT}/message:send", json=terms(**said), headers=CURRENT)
    assert (answer.status_code, "forbidden" in answer.text) == (400, True), answer.text
    assert await office.entries() == before
    noted = office.relay.refusals.of("default", limit=100)
    assert [(r.actor, r.reason, r.count) for r in noted] == [("anonymous", "forbidden", 1)]


async def test_without_the_check_another_agent_would_be_reached(office: Any) -> None:
    """CONTROL: a chain leads from the agent that is open to one that is not."""
    anybody, coder = await opened(office), await office.member("coder")
    tester = await office.member("tester")
    with mock.patch.object(handler, "_BEYOND", frozenset[str]()):
        said = terms(**BEYOND["a leg to another agent"])
        sent = (await anybody.post(f"{AGENT}/message:send", json=said, headers=CURRENT)).json()
    await coder("ack", sent["task"]["id"])
    await coder("complete", sent["task"]["id"], attempt=1, result={})
    assert len((await tester("take"))["deliveries"]) == 1


async def test_nothing_is_pushed_for_who_has_no_token(office: Any) -> None:
    anybody, before = await opened(office), await office.entries()
    hook = {"url": "https://example.com/hook"}
    said = message()
    said["configuration"]["taskPushNotificationConfig"] = hook
    answer = await anybody.post(f"{AGENT}/message:send", json=said, headers=CURRENT)
    assert (answer.status_code, "unauthenticated" in answer.text) == (400, True)
    assert await office.entries() == before
    sent = (await anybody.post(f"{AGENT}/message:send", json=message(), headers=CURRENT)).json()
    before = await office.entries()
    for what, (method, path, body) in Reference(sent["task"]["id"]).asked.items():
        if "push" in what:
            answer = await anybody.request(method, path, json=body, headers=CURRENT)
            assert "unauthenticated" in answer.text, (what, answer.text)
    assert await office.entries() == before


async def test_names_that_others_could_guess_are_refused(office: Any) -> None:
    """All callers without a token are one agent to the relay: a key or a context is a secret."""
    anybody = await opened(office)
    first = terms(idempotencyKey=UNGUESSABLE)
    sent = [(await anybody.post(f"{AGENT}/message:send", json=first)).json() for _ in range(2)]
    assert sent[0]["task"]["id"] == sent[1]["task"]["id"]
    guessed = await anybody.post(f"{AGENT}/message:send", json=terms(idempotencyKey="1"))
    assert (guessed.status_code, "UUID" in guessed.text) == (400, True)
    short = (await anybody.post(f"{AGENT}/message:send", json=message(contextId="c1"))).json()
    assert short["task"]["contextId"] == "c1"
    guessed = await anybody.get(f"{AGENT}/tasks", params={"contextId": "c1"})
    assert (guessed.status_code, "UUID" in guessed.text) == (400, True)
    own = {"contextId": sent[0]["task"]["contextId"]}
    listed = (await anybody.get(f"{AGENT}/tasks", params=own)).json()["tasks"]
    assert [task["id"] for task in listed] == [sent[0]["task"]["id"]]


async def test_a_payload_that_takes_long_to_check_is_given_up_on_without_a_token_too(
    office: Any,
) -> None:
    tree: dict[str, Any] = {"type": "object", "required": ["op"], "properties": {}}
    branch = {"$ref": "#/$defs/e"}
    options = [
        {"type": "integer"},
        {**tree, "properties": {"op": {"const": "add"}, "a": branch, "b": branch}},
        {**tree, "properties": {"op": {"const": "mul"}, "a": branch, "b": branch}},
    ]
    schema = {
        "type": "object",
        "properties": {"e": branch},
        "$defs": {"e": {"anyOf": options}},
    }
    coder = await office.member("coder")
    can = [{"name": "calculate", "input_schema": schema}]
    await coder("register", name="coder", manifest={"agent_id": "coder", "capabilities": can})
    bad: Any = {"op": "none"}
    for _ in range(25):
        bad = {"op": "add", "a": bad, "b": 1}
    anybody, before = await opened(office), await office.entries()
    said = message(parts=[{"data": {"e": bad}}])
    answer = await anybody.post(f"{AGENT}/message:send", json=said, headers=CURRENT)
    assert (answer.status_code, "payload_invalid" in answer.text) == (400, True)
    assert await office.entries() == before


# --- how much, and how often ---------------------------------------------------------------------

CALLS: Final = 6
BURST: Final = CALLS * DEFAULT.burst_seconds
OPEN: Final = 3
WAITS: Final = 2
BYTES: Final = 20_000


async def send(anybody: Any, **fields: Any) -> Any:
    return await anybody.post(f"{AGENT}/message:send", json=message(**fields), headers=CURRENT)


async def rate(office: Any) -> int:
    """Return how many calls one address may make at once."""
    anybody = await opened(office, anonymous_calls_per_second_max=CALLS)
    for number in range(int(BURST) + 1):
        answer = await anybody.get(f"{AGENT}/tasks/none", headers=CURRENT)
        if answer.status_code == 429:
            assert answer.json()["code"] == "rate_limited"
            assert int(answer.headers["retry-after"]) >= 1
            assert (await (await office.http("planner")).get(f"{AGENT}/tasks")).status_code == 200
            office.clock.advance(1_000)
            assert (await send(anybody)).status_code == 200
            return number
    return -1


async def room(office: Any) -> int:
    """Return how many unfinished handoffs all of them may have; members have room beside."""
    anybody = await opened(office, anonymous_open_handoffs_max=OPEN)
    for number in range(OPEN + 1):
        answer = await send(anybody)
        if "queue_full" in answer.text:
            planner = await office.member("planner")
            assert (await planner("offer", to="coder", payload={}))["handoff"]["id"]
            return number
    return -1


async def waits(office: Any) -> int:
    """Return how many streams all of them may follow at a time."""
    anybody = await opened(office, anonymous_waits_max=WAITS)
    task = (await send(anybody)).json()["task"]["id"]
    subscribe = f"{AGENT}/tasks/{task}:subscribe"
    before = len(await office.entries())
    held: list[Any] = []  # let go of, a stream would be closed
    for number in range(WAITS + 1):
        request = anybody.build_request("POST", subscribe, json={}, headers=CURRENT)
        stream = await anybody.send(request, stream=True)
        held.append(stream.aiter_lines())
        first = await anext(held[-1])
        if "rate_limited" in first:
            blocking: dict[str, Any] = {**message(), "configuration": {}}
            refused = await anybody.post(f"{AGENT}/message:send", json=blocking, headers=CURRENT)
            assert "rate_limited" in refused.text
            assert len(await office.entries()) == before, "refused before anything is stored"
            return number
    return -1


async def size(office: Any) -> int:
    """Return how large a request may be; over gRPC too."""
    anybody = await opened(office, anonymous_request_bytes_max=BYTES)
    before = await office.entries()
    answer = await send(anybody, text="x" * BYTES)
    if answer.status_code != 413:
        return -1
    assert answer.json()["code"] == "too_large"
    assert await office.entries() == before
    card = (await anybody.get(f"{AGENT}/.well-known/agent-card.json")).json()
    (place,) = [i["url"] for i in card["supportedInterfaces"] if i["protocolBinding"] == "GRPC"]
    async with grpc.aio.insecure_channel(place) as channel:
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        request = SendMessageRequest(tenant="coder")
        request.configuration.return_immediately = True
        request.message.message_id = "m1"
        request.message.role = a2a_pb2.ROLE_USER
        request.message.parts.add().text = "hi"
        assert (await stub.SendMessage(request)).task.id
        before = await office.entries()
        request.message.parts[0].text = "x" * BYTES
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.SendMessage(request)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert await office.entries() == before
    member = await office.http("planner")
    large = await member.post(f"{AGENT}/message:send", json=message("x" * BYTES), headers=CURRENT)
    assert large.status_code == 200
    return BYTES


BOUNDS: dict[str, tuple[Callable[[Any], Any], int, Callable[[], AbstractContextManager[Any]]]] = {
    "calls of one address": (
        rate,
        int(BURST),
        lambda: mock.patch.object(Rates, "spend_anonymous"),
    ),
    "unfinished handoffs": (
        room,
        OPEN,
        lambda: mock.patch.object(Room, "why_full", return_value=None),
    ),
    "waiting callers": (
        waits,
        WAITS,
        lambda: mock.patch.object(Handler, "_waiting", return_value=nullcontext()),
    ),
    "a request": (
        size,
        BYTES,
        lambda: mock.patch.object(A2ADoor, "request_bytes_max", return_value=1_000_000),
    ),
}
"""Bounds: how each is found out, its refusal, and the control that takes it away."""


@pytest.mark.parametrize("what", BOUNDS)
async def test_callers_without_a_token_are_bounded(office: Any, what: str) -> None:
    found, bound, without = BOUNDS[what]
    async with asyncio.timeout(SECONDS_MAX):
        assert await found(office) == bound
        with without():
            assert await found(office) == -1, "CONTROL: it is this check that refuses"

"""The same bad request, over every door: the same code, and the same paths in `errors`."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kit.asgi import Visitor
from nodrop.model.errors import NodropError
from nodrop.model.limits import DEFAULT
from nodrop.protocol.operations import OPERATIONS
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.inprocess import InProcessTransport

Told = tuple[str, list[str]]
Ask = Callable[[str, bytes, str | None], Awaitable[Told]]
AskInProcess = Callable[[str, dict[str, Any], str | None], Awaitable[Told]]


def told(problem: Any) -> Told:
    return problem["code"], [error["path"] for error in problem["errors"]]


@pytest.fixture
def over_http(requester: Visitor) -> Ask:
    async def ask(operation: str, fields: bytes, handoff: str | None) -> Told:
        route = OPERATIONS[operation]
        path = route.path.format(id=handoff, name="")
        response = await requester.request(route.method, f"/v1/{path}", fields)
        problem = response.json()
        assert response.headers["content-type"] == "application/problem+json"
        assert response.status == problem["status"]
        return told(problem)

    return ask


@pytest.fixture
def over_websocket(requester: Visitor) -> Ask:
    async def ask(operation: str, fields: bytes, handoff: str | None) -> Told:
        about = b"" if handoff is None else b'"handoff_id":%b,' % msgspec.json.encode(handoff)
        frame = b'{"id":7,"op":"%b",%b' % (operation.encode(), about) + fields.lstrip()[1:]
        async with requester.channel() as channel:
            channel.tell({"id": 1, "op": "hello"})
            assert "ok" in await channel.frame()
            channel.tell(frame.replace(b",}", b"}"))
            answer = await channel.frame()
        return told(answer["error"])

    return ask


@pytest.fixture
async def in_process(relay: Relay) -> AskInProcess:
    transport = InProcessTransport(relay, Caller(team="default", agent="inbox_monitor"))

    async def ask(operation: str, fields: dict[str, Any], handoff: str | None) -> Told:
        with pytest.raises(NodropError) as refused:
            await transport.call(operation, fields, handoff=handoff)
        return refused.value.code, [problem.path for problem in refused.value.errors]

    return ask


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


ONCE_TOO_DEEP = nested(DEFAULT.json_levels_max + 1)
NO_END = nested(DEFAULT.json_levels_max * 5)

# operation, fields, handoff, code, paths
WRONG: list[tuple[str, dict[str, Any], str | None, str, list[str]]] = [
    ("offer", {"to": "b", "titles": "x"}, None, "invalid_request", ["titles"]),
    ("offer", {"to": "b", "title": 3}, None, "invalid_request", ["title"]),
    ("offer", {"to": "b", "priority": "soon"}, None, "invalid_request", ["priority"]),
    ("offer", {"to": "b", "deadline": "soon"}, None, "invalid_request", ["deadline"]),
    ("offer", {"payload": 1}, None, "invalid_request", ["to"]),
    ("offer", {"to": "b", "escalation": [{}]}, None, "invalid_request", ["escalation[0].when"]),
    ("offer", {"to": "b", "then": [{"too": 1}]}, None, "invalid_request", ["then[0].too"]),
    ("offer", {"to": "b", "backoff": {"first": []}}, None, "invalid_request", ["backoff.first"]),
    ("offer", {"to": "b", "payload": 2**63}, None, "invalid_request", ["payload"]),
    ("offer", {"to": "b", "payload": {"a": [10**30]}}, None, "invalid_request", ["payload.a[0]"]),
    ("offer", {"to": "b", "payload": ONCE_TOO_DEEP}, None, "too_large", ["payload"]),
    ("offer", {"to": "b", "metadata": {"a": NO_END}}, None, "too_large", ["metadata"]),
    ("offer", {"to": "b", "payload": "x" * 1_048_576}, None, "too_large", []),
    ("offer", {"to": "b", "supersedes": "x"}, None, "unsupported_field", ["supersedes"]),
    ("take", {"max": 0}, None, "invalid_request", ["max"]),
    ("take", {"wait": -1}, None, "invalid_request", ["wait"]),
    ("ack", {"attempt": "1"}, "nobody/x", "invalid_request", ["attempt"]),
    ("ack", {}, "nobody/x", "not_found", []),
    ("answer", {"seq": 1}, "nobody/x", "invalid_request", ["answer"]),
    ("note_team", {"text": " "}, None, "invalid_request", ["text"]),
    ("create_token", {"agent": "me"}, None, "forbidden", []),
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_every_door_refuses_a_wrong_request_with_the_same_words(
    wrong: tuple[str, dict[str, Any], str | None, str, list[str]],
    over_http: Ask,
    over_websocket: Ask,
    in_process: AskInProcess,
) -> None:
    operation, fields, handoff, code, paths = wrong
    data = msgspec.json.encode(fields)
    quoted = handoff and handoff.replace("/", "%2F")
    assert await over_http(operation, data, quoted) == (code, paths)
    assert await over_websocket(operation, data, handoff) == (code, paths)
    assert await in_process(operation, fields, handoff) == (code, paths)


# What a caller in this process cannot even say, or says in its own way.
WRONG_ON_A_WIRE: list[tuple[bytes, str, list[str]]] = [
    (b'{"to":"b","payload":NaN}', "invalid_request", [""]),
    (b'{"to":"b","payload":1e999}', "invalid_request", ["payload"]),
    (b'{"to":"b","payload":{"a":[1e999]}}', "invalid_request", ["payload.a[0]"]),
    (b'{"to":"b","payload":"\\ud800"}', "invalid_request", [""]),
    (b'{"to":"b","payload":"\xff"}', "invalid_request", [""]),
    (b'{"to":"b","to":"c"}', "invalid_request", ["to"]),
    (b'{"to":"b", "payload": {"a": 1, "b": {"c": 1, "c": 2}}}', "invalid_request", ["payload.b.c"]),
    (b'{"to":"b"', "invalid_request", [""]),
    (b'{"to":"b"}}', "invalid_request", [""]),
    (b'{"to":"b","payload":' + b"[" * 5_000 + b"]" * 5_000 + b"}", "too_large", ["payload"]),
    (b'{"to":"b","payload":' + b"9" * 5_000 + b"}", "invalid_request", ["payload"]),
]


@pytest.mark.parametrize(("fields", "code", "paths"), WRONG_ON_A_WIRE)
async def test_both_wires_refuse_bytes_that_are_no_sound_json_with_the_same_words(
    fields: bytes, code: str, paths: list[str], over_http: Ask, over_websocket: Ask
) -> None:
    assert await over_http("offer", fields, None) == (code, paths)
    assert await over_websocket("offer", fields, None) == (code, paths)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "payload"),
        ({"a": [float("inf")]}, "payload.a[0]"),
        ("\ud800", ""),
        (object(), "payload"),
        ({1: "a", "1": "b"}, "payload.1"),
    ],
)
async def test_a_value_that_json_cannot_write_is_refused_in_process(
    value: Any,
    path: str,
    in_process: AskInProcess,
) -> None:
    asked = await in_process("offer", {"to": "b", "payload": value}, None)
    assert asked == ("invalid_request", [path])


async def test_a_value_that_contains_itself_is_refused_in_process(
    in_process: AskInProcess,
) -> None:
    endless: list[Any] = []
    endless.append(endless)
    asked = await in_process("offer", {"to": "b", "payload": endless}, None)
    assert asked == ("too_large", ["payload"])

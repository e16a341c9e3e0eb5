"""Whatever is wrong with a request has A2A's own code for it, and nothing of it is stored."""

from typing import Any

import msgspec
import pytest

from nodrop.model.limits import DEFAULT

AGENT = "/agents/coder"
CURRENT = {"a2a-version": "1.0"}
UNKNOWN = "0199aaaa-0000-7000-8000-000000000000"


def message(**fields: Any) -> dict[str, Any]:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}], **fields}


def call(method: str = "SendMessage", params: Any = None, **more: Any) -> dict[str, Any]:
    params = {"message": message()} if params is None else params
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **more}


def deep(levels: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":' + b"[" * levels


NO_REQUESTS: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", -32700),
    "no JSON": (b"{nope", -32700),
    "no UTF-8": (b'{"a": "\xff"}', -32700),
    "half of it": (b'{"jsonrpc": "2.0", "id": 1, "meth', -32700),
    "a list": (b"[]", -32600),
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}]', -32600),
    "a number": (b"7", -32600),
    "another version of JSON-RPC": (b'{"jsonrpc":"1.0","id":1,"method":"GetTask"}', -32600),
    "no method": (b'{"jsonrpc":"2.0","id":1}', -32600),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    "a method that there is not": (b'{"jsonrpc":"2.0","id":1,"method":"Explode"}', -32601),
    "brackets without an end": (deep(100_000), -32700),
}


@pytest.mark.parametrize("what", NO_REQUESTS)
async def test_what_is_no_request_of_json_rpc_is_refused(office: Any, what: str) -> None:
    body, code = NO_REQUESTS[what]
    planner, before = await office.http("planner"), await office.entries()
    answer = await planner.post(f"{AGENT}/", content=body, headers=CURRENT)
    refused = answer.json()["error"]
    if what == "brackets without an end":
        assert refused["code"] in {-32700, -32602}
    else:
        assert refused["code"] == code
    assert await office.entries() == before


PARAMS: dict[str, Any] = {
    "no message": {},
    "no parts": {"message": {**message(), "parts": []}},
    "no message id": {"message": {"role": "ROLE_USER", "parts": [{"text": "hi"}]}},
    "no role": {"message": {"messageId": "m1", "parts": [{"text": "hi"}]}},
    "parts that are a text": {"message": message(parts="hi")},
    "params that are a list": [],
    "a part of nothing": {"message": message(parts=[{"text": 7}])},
    "a negative history": {"message": message(), "configuration": {"historyLength": -1}},
    "a term that there is not": {
        "message": message(metadata={"urn:nodrop:a2a:handoff:v1": {"x": 1}})
    },
    "terms that are a text": {"message": message(metadata={"urn:nodrop:a2a:handoff:v1": "x"})},
    "a deadline that is none": {
        "message": message(metadata={"urn:nodrop:a2a:handoff:v1": {"deadline": "soon"}})
    },
    "a priority that is none": {
        "message": message(metadata={"urn:nodrop:a2a:handoff:v1": {"priority": "now"}})
    },
    "a context of odd characters": {"message": message(contextId="a\u202eb")},
    "a decision where none is due": {
        "message": message(metadata={"urn:nodrop:a2a:handoff:v1": {"decision": "agree"}})
    },
    "a webhook that is no address": {
        "message": message(),
        "configuration": {"taskPushNotificationConfig": {"url": "file:///etc/passwd"}},
    },
    "a webhook in a private network": {
        "message": message(),
        "configuration": {"taskPushNotificationConfig": {"url": "http://10.0.0.1/hook"}},
    },
    "a webhook that would break a header": {
        "message": message(),
        "configuration": {
            "taskPushNotificationConfig": {"url": "https://example.com/", "token": "a\r\nb: c"}
        },
    },
}


@pytest.mark.parametrize("what", PARAMS)
async def test_params_that_are_wrong_are_refused_over_both_bindings(office: Any, what: str) -> None:
    planner, before = await office.http("planner"), await office.entries()
    answer = await planner.post(f"{AGENT}/", json=call(params=PARAMS[what]), headers=CURRENT)
    assert answer.json()["error"]["code"] == -32602
    answer = await planner.post(f"{AGENT}/message:send", json=PARAMS[what], headers=CURRENT)
    assert answer.status_code == 400
    details = answer.json()["error"]["details"]
    assert details[0]["reason"] in {"INVALID_PARAMS", "INVALID_REQUEST"}
    assert await office.entries() == before


NO_JSON = {
    "a number that is none": b'{"x": NaN}',
    "a number without end": b'{"x": -Infinity}',
    "a number too large": b'{"x": 1e400}',
    "a number of many digits": b'{"x": ' + b"9" * 5_000 + b"}",
}


@pytest.mark.parametrize("what", NO_JSON)
async def test_numbers_that_json_has_not_are_refused_without_our_words(
    office: Any, what: str
) -> None:
    planner, before = await office.http("planner"), await office.entries()
    part = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":DATA}]}}'
    sent = part.replace(b"DATA", NO_JSON[what])
    headers = {**CURRENT, "content-type": "application/json"}
    answer = await planner.post(f"{AGENT}/message:send", content=sent, headers=headers)
    assert (answer.status_code, "sys." in answer.text) == (400, False)
    called = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":' + sent + b"}"
    answer = await planner.post(f"{AGENT}/", content=called, headers=headers)
    assert (answer.json()["error"]["code"], "sys." in answer.text) == (-32602, False)
    assert await office.entries() == before


async def test_what_is_nested_deeper_than_a2a_can_say_is_said_in_json(office: Any) -> None:
    """A native agent may nest 64 levels; protobuf reads a third of that, and lists hold them all."""
    planner, http = await office.member("planner"), await office.http("planner")
    coder = await office.member("coder")
    nested: Any = "x"
    for _ in range(50):
        nested = {"k": nested}
    can = [{"name": "dig", "input_schema": {"examples": [nested]}}]
    await coder("register", name="coder", manifest={"agent_id": "coder", "capabilities": can})
    task = (await planner("offer", to="coder", payload=nested))["handoff"]["id"]
    await coder("ack", task)
    await coder("block", task, attempt=1, question="?")
    question = (await planner("get_handoff", task))["handoff"]["question"]
    await planner("answer", task, seq=question["seq"], answer=nested)
    await coder("complete", task, attempt=1, result=nested)
    shown = (await http.get(f"{AGENT}/tasks/{task}", headers=CURRENT)).json()
    said = [shown["artifacts"][0]["parts"][0], *(m["parts"][0] for m in shown["history"])]
    deep = [
        msgspec.json.decode(part["text"]) for part in said if part.get("text", "").startswith("{")
    ]
    assert deep == [nested] * 3
    listed = await http.get(f"{AGENT}/tasks", params={"includeArtifacts": True}, headers=CURRENT)
    assert [found["id"] for found in listed.json()["tasks"]] == [task]
    got = await http.post(f"{AGENT}/", json=call("GetTask", {"id": task}), headers=CURRENT)
    assert got.json()["result"]["id"] == task
    card = await http.post(f"{AGENT}/", json=call("GetExtendedAgentCard", {}), headers=CURRENT)
    assert card.json()["result"]["skills"][0]["id"] == "dig"


async def test_huge_parts_are_refused_and_not_stored(office: Any) -> None:
    planner, before = await office.http("planner"), await office.entries()
    over_a_payload = call(params={"message": message(parts=[{"text": "x" * 1_100_000}])})
    answer = await planner.post(f"{AGENT}/", json=over_a_payload, headers=CURRENT)
    assert answer.json()["error"]["code"] == -32602
    assert "too_large" in answer.text
    over_a_request = call(params={"message": message(parts=[{"text": "x" * 1_400_000}])})
    answer = await planner.post(f"{AGENT}/", json=over_a_request, headers=CURRENT)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert await office.entries() == before


async def test_a_media_type_that_nobody_declared_is_refused(office: Any) -> None:
    planner, before = await office.http("planner"), await office.entries()
    odd = {"message": message(parts=[{"raw": "dGNr", "mediaType": "application/x-odd"}])}
    answer = await planner.post(f"{AGENT}/", json=call(params=odd), headers=CURRENT)
    assert answer.json()["error"]["code"] == -32005
    assert await office.entries() == before


async def test_a_body_that_is_no_json_by_its_own_account_is_refused(office: Any) -> None:
    planner, before = await office.http("planner"), await office.entries()
    headers = {**CURRENT, "content-type": "text/xml"}
    answer = await planner.post(f"{AGENT}/", json=call(), headers=headers)
    assert answer.json()["error"]["code"] == -32005
    answer = await planner.post(f"{AGENT}/message:send", json=call(), headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"]["details"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"
    assert await office.entries() == before


@pytest.mark.parametrize("version", ["0.1", "2.0", "99", "one"])
async def test_another_version_is_refused(office: Any, version: str) -> None:
    planner, before = await office.http("planner"), await office.entries()
    headers = {"a2a-version": version}
    answer = await planner.post(f"{AGENT}/", json=call(), headers=headers)
    assert answer.json()["error"]["code"] == -32009
    answer = await planner.post(
        f"{AGENT}/message:send", json={"message": message()}, headers=headers
    )
    assert answer.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert await office.entries() == before


async def test_a_client_of_1_0_that_forgot_to_say_so_is_understood(office: Any) -> None:
    planner = await office.http("planner")
    sent = {"message": message(), "configuration": {"returnImmediately": True}}
    answer = await planner.post(f"{AGENT}/", json=call(params=sent))
    assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    answer = await planner.post(f"{AGENT}/message:send", json=sent)
    assert answer.json()["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"


@pytest.mark.parametrize("method", ["GetTask", "CancelTask", "SubscribeToTask"])
async def test_unknown_and_foreign_tasks_are_not_found(office: Any, method: str) -> None:
    planner, stranger = await office.http("planner"), await office.member("stranger")
    foreign = (await stranger("offer", to="coder", payload={}))["handoff"]["id"]
    before = await office.entries()
    answers: list[Any] = []
    for task_id in (UNKNOWN, foreign, foreign[:10], "", "x" * 5_000, "a/b", "\u0000"):
        params = {"id": task_id}
        answer = await planner.post(f"{AGENT}/", json=call(method, params), headers=CURRENT)
        refused = answer.json()["error"]
        assert refused["code"] == (-32602 if task_id == "" else -32001)
        answers.append(refused)
    assert answers[0] == answers[1]
    assert await office.entries() == before


async def test_a_list_of_a_state_that_there_is_not_is_refused(office: Any) -> None:
    planner = await office.http("planner")
    sent = {"message": message(), "configuration": {"returnImmediately": True}}
    await planner.post(f"{AGENT}/message:send", json=sent)
    for status in ("NOPE", "submitted", 99):
        listing = call("ListTasks", {"status": status})
        answer = (await planner.post(f"{AGENT}/", json=listing, headers=CURRENT)).json()
        assert (answer["id"], answer["error"]["code"]) == (1, -32602)
        assert "TASK_STATE_SUBMITTED" in answer["error"]["message"]
        answer = await planner.get(f"{AGENT}/tasks", params={"status": status}, headers=CURRENT)
        assert answer.status_code == 400
        assert answer.json()["error"]["details"][0]["reason"] == "INVALID_PARAMS"
    for status, found in (("TASK_STATE_SUBMITTED", 1), ("TASK_STATE_WORKING", 0)):
        listing = call("ListTasks", {"status": status})
        answer = (await planner.post(f"{AGENT}/", json=listing, headers=CURRENT)).json()
        assert len(answer["result"].get("tasks", [])) == found
        answer = await planner.get(f"{AGENT}/tasks", params={"status": status}, headers=CURRENT)
        assert len(answer.json().get("tasks", [])) == found


async def test_the_skill_of_whoever_declares_nothing_is_no_capability(office: Any) -> None:
    planner = await office.http("planner")
    card = (await planner.get(f"{AGENT}/.well-known/agent-card.json")).json()
    (skill,) = card["skills"]
    terms = {"urn:nodrop:a2a:handoff:v1": {"capability": skill["id"]}}
    sent = {"message": message(metadata=terms), "configuration": {"returnImmediately": True}}
    task = (await planner.post(f"{AGENT}/message:send", json=sent)).json()["task"]
    me = await office.member("me")
    assert (await me("get_handoff", task["id"]))["handoff"]["capability"] is None


async def test_a_task_of_one_agent_is_none_of_another(office: Any) -> None:
    planner = await office.http("planner")
    await office.token("tester")
    sent = {"message": message(), "configuration": {"returnImmediately": True}}
    task = (await planner.post(f"{AGENT}/message:send", json=sent)).json()["task"]["id"]
    assert (await planner.get(f"{AGENT}/tasks/{task}")).status_code == 200
    assert (await planner.get(f"/agents/tester/tasks/{task}")).status_code == 404


async def test_whoever_cannot_be_known_is_told_how_to_be(office: Any) -> None:
    nobody, before = await office.http(None), await office.entries()
    for headers in ({}, {"authorization": "Bearer nd_wrong"}, {"authorization": "Basic abc"}):
        answer = await nobody.post(f"{AGENT}/", json=call(), headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert await office.entries() == before


async def test_an_agent_that_there_is_not_and_a_foreign_team_are_not_found(office: Any) -> None:
    planner = await office.http("planner")
    foreign = await office.http("spy", team="others")
    for client, path in (
        (planner, "/agents/nobody/"),
        (planner, "/teams/others/agents/coder/"),
        (foreign, "/teams/default/agents/coder/"),
        (foreign, f"{AGENT}/"),
        (planner, f"{AGENT}/no/such/path"),
    ):
        assert (await client.post(path, json=call(), headers=CURRENT)).status_code == 404
    assert (await planner.get("/agents/nobody/.well-known/agent-card.json")).status_code == 404


async def test_an_observer_hands_nothing_off(office: Any) -> None:
    await office.relay.ensure_token("default", agent="eye", role="observer", secret="nd_eye")
    nobody, before = await office.http(None), await office.entries()
    headers = {**CURRENT, "authorization": "Bearer nd_eye"}
    answer = await nobody.post(f"{AGENT}/", json=call(), headers=headers)
    assert (answer.json()["error"]["code"], "forbidden" in answer.text) == (-32600, True)
    assert await office.entries() == before


async def test_a_body_counts_among_what_is_on_its_way_of_its_agent(office: Any) -> None:
    planner = await office.http("planner")
    sent = msgspec.json.encode(call("GetTask", {"id": UNKNOWN})) + b" " * 9_000
    headers = {**CURRENT, "content-type": "application/json"}
    incoming, most = office.relay.incoming, DEFAULT.incoming_bytes_per_agent_max
    with incoming.counting(("default", "planner")) as counted:
        counted(most - 9_000)
        refused = await planner.post(f"{AGENT}/", content=sent, headers=headers)
        assert refused.json()["code"] == "queue_full"
    answer = await planner.post(f"{AGENT}/", content=sent, headers=headers)
    assert "queue_full" not in answer.text
    assert answer.json()["error"]["code"] == -32001
    with incoming.counting(("default", "planner")) as counted:
        counted(most)  # nothing of it is still counted

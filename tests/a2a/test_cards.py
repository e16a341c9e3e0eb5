"""Cards and discovery files: every agent has one, asleep or not, signed by the relay."""

from typing import Any

import httpx
import msgspec
import pytest
from a2a.client import A2ACardResolver
from a2a.types import GetExtendedAgentCardRequest
from a2a.utils.signing import (
    InvalidSignaturesError,
    create_signature_verifier,
)
from jwt import PyJWK

CARD = "/agents/coder/.well-known/agent-card.json"
MANIFEST = {
    "agent_id": "coder",
    "description": "Fixes bugs – schnell",
    "tags": ["code"],
    "capabilities": [
        {
            "name": "bug_triage",
            "description": "Finds out",
            "input_schema": {"email_id": "string"},
            "timeout_seconds": 3.5,
        }
    ],
}


async def keys_of(http: httpx.AsyncClient) -> dict[str, Any]:
    keys = (await http.get("/.well-known/jwks.json")).json()["keys"]
    return {key["kid"]: key for key in keys}


async def test_a_card_says_what_the_manifest_says_and_how_to_speak(office: Any) -> None:
    coder = await office.member("coder")
    await coder("register", name="coder", manifest=MANIFEST)
    card = (await (await office.http(None)).get(CARD)).json()
    assert (card["name"], card["description"]) == ("coder", "Fixes bugs – schnell")
    assert [skill["id"] for skill in card["skills"]] == ["bug_triage"]
    spoken = {(i["protocolBinding"], i["protocolVersion"]) for i in card["supportedInterfaces"]}
    assert spoken == {(b, v) for b in ("JSONRPC", "HTTP+JSON") for v in ("1.0", "0.3")}
    assert card["capabilities"]["streaming"] is True
    assert card["capabilities"]["extensions"][0]["uri"] == "urn:nodrop:a2a:handoff:v1"
    assert card["securityRequirements"] == [{"schemes": {"bearer": {}}}]
    assert "email_id" not in str(card)  # schemas are for those who may call it


async def test_the_extended_card_has_the_schemas(office: Any) -> None:
    coder = await office.member("coder")
    await coder("register", name="coder", manifest=MANIFEST)
    planner = await office.peer("planner", "coder")
    card = await planner.client.get_extended_agent_card(GetExtendedAgentCardRequest())
    params = card.capabilities.extensions[0].params
    assert params["capabilities"]["bug_triage"]["input_schema"]["email_id"] == "string"
    assert card.signatures


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256"])
async def test_a_card_is_signed_and_a_changed_one_is_not(office: Any, algorithm: str) -> None:
    coder = await office.member("coder")
    await coder("register", name="coder", manifest=MANIFEST)
    http = await office.http(None)
    keys = await keys_of(http)
    assert {key["alg"] for key in keys.values()} == {"EdDSA", "ES256"}

    def trusted(kid: str | None, _jku: str | None) -> PyJWK:
        return PyJWK(keys[kid or ""])

    verify = create_signature_verifier(trusted, [algorithm])
    resolver = A2ACardResolver(http, f"{office.url}/agents/coder")
    card = await resolver.get_agent_card(signature_verifier=verify)
    card.description = "Breaks bugs"
    with pytest.raises(InvalidSignaturesError):
        verify(card)


async def test_a_card_that_did_not_change_is_not_sent_again(office: Any) -> None:
    http = await office.http(None)
    first = await http.get(CARD)
    assert first.headers["last-modified"] == "Thu, 01 Jan 2026 00:00:00 GMT"
    again = await http.get(CARD, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    coder = await office.member("coder")
    await coder("register", name="coder", manifest=MANIFEST)
    changed = await http.get(CARD, headers={"if-none-match": first.headers["etag"]})
    assert changed.status_code == 200


async def test_strangers_see_public_agents_and_members_see_their_team(office: Any) -> None:
    me = await office.member("me")
    stranger, member = await office.http(None), await office.http("planner")
    catalog = "/.well-known/ai-catalog.json"

    def names(answer: httpx.Response) -> set[str]:
        return {entry["displayName"] for entry in answer.json()["entries"]}

    assert names(await stranger.get(catalog)) == set()
    assert names(await member.get(catalog)) == {"coder", "me", "planner"}
    await me("set_reach", name="coder", public=True)
    (entry,) = (await stranger.get(catalog)).json()["entries"]
    assert entry["type"] == "application/a2a-agent-card+json"
    assert entry["identifier"] == "urn:air:127.0.0.1:default:coder"
    assert (await stranger.get(entry["url"])).json()["name"] == "coder"
    assert "securityRequirements" not in (await stranger.get(entry["url"])).json()


async def test_agents_are_searched_for_by_words_and_filters(office: Any) -> None:
    coder = await office.member("coder")
    await coder("register", name="coder", manifest=MANIFEST)
    member = await office.http("planner")

    async def found(**query: Any) -> list[tuple[str, int]]:
        answer = (await member.post("/search", json={"query": query, "pageSize": 10})).json()
        return [(entry["displayName"], entry["score"]) for entry in answer["results"]]

    assert await found(text="bug triage please") == [("coder", 66)]
    assert await found(filter={"capabilities": ["bug_triage"]}) == [("coder", 100)]
    assert await found(filter={"type": "application/mcp-server-card+json"}) == []
    assert len(await found()) == 3
    for bad in (b"", b"[]", b'{"pageSize": 0}', b'{"query": {"odd": 1}}', b'{"pageToken": "x"}'):
        assert (await member.post("/search", content=bad)).status_code == 422


async def test_the_relay_itself_asks_whoever_offers_a_capability(office: Any) -> None:
    coder = await office.member("coder")
    await coder("register", name="coder", manifest=MANIFEST)
    member = await office.http("planner")
    card = (await member.get("/.well-known/agent-card.json")).json()
    assert [skill["id"] for skill in card["skills"]] == ["bug_triage"]
    urn = "urn:nodrop:a2a:handoff:v1"
    message = {
        "messageId": "m1",
        "role": "ROLE_USER",
        "parts": [{"data": {"email_id": "msg_123"}}],
        "metadata": {urn: {"capability": "bug_triage"}},
    }
    sent = {"message": message, "configuration": {"returnImmediately": True}}
    address = card["supportedInterfaces"][1]["url"]
    task = (await member.post(f"{address}/message:send", json=sent)).json()["task"]
    assert task["metadata"][urn]["to"] == "coder"
    assert (await member.get(f"{address}/tasks/{task['id']}")).status_code == 200
    del message["metadata"]
    refused = await member.post(f"{address}/message:send", json=sent)
    assert (refused.status_code, "capability_required" in refused.text) == (400, True)


async def test_a_public_agent_takes_messages_from_anybody_and_shows_them_to_nobody_else(
    office: Any,
) -> None:
    anybody, me = await office.http(None), await office.member("me")
    sent = {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
        "configuration": {"returnImmediately": True},
    }
    assert (await anybody.post("/agents/coder/message:send", json=sent)).status_code == 401
    await me("set_reach", name="coder", public=True)
    task = (await anybody.post("/agents/coder/message:send", json=sent)).json()["task"]
    handoff = (await me("get_handoff", task["id"]))["handoff"]
    assert (handoff["from"], handoff["verified"]) == ("anonymous", False)
    assert (await anybody.get(f"/agents/coder/tasks/{task['id']}")).status_code == 200
    member = await office.http("planner")
    assert (await member.get(f"/agents/coder/tasks/{task['id']}")).status_code == 404
    assert (await anybody.get("/agents/coder/tasks")).status_code == 400  # whose?
    mine = await anybody.get("/agents/coder/tasks", params={"contextId": task["contextId"]})
    assert [listed["id"] for listed in mine.json()["tasks"]] == [task["id"]]
    await me("set_reach", name="coder", public=False)
    assert (await anybody.get(f"/agents/coder/tasks/{task['id']}")).status_code == 401


async def test_nobody_joins_as_whoever_calls_without_a_token(office: Any) -> None:
    me = await office.member("me")
    made = await me("create_invitation", agent="planner", expires="1h")
    assert made["invitation"]
    http = await office.http("me")
    refused = await http.post("/v1/invitations", json={"agent": "anonymous"})
    assert refused.status_code == 422


async def test_the_same_message_twice_is_two_tasks_unless_a_key_says_otherwise(
    office: Any,
) -> None:
    planner = await office.peer("planner", "coder")
    first, second = await planner.task("hi"), await planner.task("hi")
    assert first.id != second.id  # a message id alone says nothing
    keyed = [await planner.task("hi", terms={"idempotencyKey": "k1"}) for _ in range(2)]
    assert keyed[0].id == keyed[1].id
    headers = {"A2A-Extensions": "urn:nodrop:a2a:handoff:v1", "Idempotency-Key": "k2"}
    headed = [await planner.task("hi", headers=headers) for _ in range(2)]
    assert headed[0].id == headed[1].id
    without = {"Idempotency-Key": "k3"}
    bare = [await planner.task("hi", headers=without) for _ in range(2)]
    assert bare[0].id != bare[1].id
    refused = await planner.refused(planner.task("other", terms={"idempotencyKey": "k1"}))
    assert refused.data["code"] == "idempotency_conflict" if refused.data else refused.message


async def test_tasks_are_listed_by_their_latest_change_in_pages(office: Any) -> None:
    http, coder = await office.http("planner"), await office.member("coder")
    planner = await office.peer("planner", "coder")
    tasks: list[str] = []
    for text in ("one", "two", "three"):
        tasks.append((await planner.task(text, context_id=f"c-{text}")).id)
        office.clock.advance(1_000)
    await coder("ack", tasks[0])
    everything = (await http.get("/agents/coder/tasks")).json()
    assert [t["id"] for t in everything["tasks"]] == [tasks[0], tasks[2], tasks[1]]
    assert (everything["totalSize"], everything["nextPageToken"]) == (3, "")
    page = (await http.get("/agents/coder/tasks", params={"pageSize": 2})).json()
    more = {"pageSize": 2, "pageToken": page["nextPageToken"]}
    rest = (await http.get("/agents/coder/tasks", params=more)).json()
    assert [t["id"] for t in page["tasks"] + rest["tasks"]] == [tasks[0], tasks[2], tasks[1]]
    working = {"status": "TASK_STATE_WORKING"}
    assert (await http.get("/agents/coder/tasks", params=working)).json()["totalSize"] == 1
    context = {"contextId": "c-two"}
    listed = (await http.get("/agents/coder/tasks", params=context)).json()["tasks"]
    assert [t["id"] for t in listed] == [tasks[1]]
    for bad in ({"pageSize": 0}, {"pageSize": 101}, {"pageToken": "x"}, {"historyLength": -1}):
        assert (await http.get("/agents/coder/tasks", params=bad)).status_code == 400


async def test_other_terms_are_agreed_to_or_declined(office: Any) -> None:
    planner, coder = await office.peer("planner", "coder"), await office.member("coder")
    for decision, state in (("agree", "working"), ("decline", "rejected")):
        task = await planner.task("Fix it")
        await coder("counter", task.id, deadline="2d", reason="busy")
        asked = await planner.get(task)
        assert office.state(asked) == "input_required"
        assert "busy" in asked.status.message.parts[0].text
        unclear = planner.send("hm", task_id=task.id, message_id="m2")
        assert "agree or decline" in (await planner.refused(unclear)).message
        said = {"decision": decision}
        answered = await planner.task("So be it", task_id=task.id, message_id="m3", terms=said)
        assert office.state(answered) == state


async def test_a_text_that_is_an_object_will_do_where_the_agent_takes_one(office: Any) -> None:
    coder = await office.member("coder")
    await coder("register", name="coder", manifest=MANIFEST)
    planner = await office.peer("planner", "coder")
    task = await planner.task('{"email_id": "msg_123"}')
    handoff = (await coder("get_handoff", task.id))["handoff"]
    assert handoff["payload"] == {"email_id": "msg_123"}
    refused = await planner.refused(planner.task("just words"))
    assert "payload" in refused.message


async def test_parts_come_out_as_they_went_in(office: Any) -> None:
    planner = await office.http("planner")
    parts = [
        {"text": "see", "metadata": {"n": 1}},
        {"raw": "dGNr", "filename": "a.png", "mediaType": "image/png"},
        {"url": "https://example.com/a.pdf", "mediaType": "application/pdf"},
        {"data": {"deep": [1, {"x": None}]}},
    ]
    message = {"messageId": "m", "role": "ROLE_USER", "parts": parts, "metadata": {"theirs": "x"}}
    sent = {"message": message, "configuration": {"returnImmediately": True}}
    task = (await planner.post("/agents/coder/message:send", json=sent)).json()["task"]
    (asked,) = task["history"]
    assert msgspec.convert(asked["parts"], list[Any]) == parts
    assert asked["metadata"] == {"theirs": "x"}


async def test_without_the_extra_a_relay_says_what_to_install(
    office: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ImportError("No module named 'a2a'")

    monkeypatch.setattr("nodrop.servers.a2a.door._import", missing)
    answer = await (await office.http("planner")).get(CARD)
    assert (answer.status_code, answer.json()["code"]) == (501, "not_installed")
    assert "nodrop[relay]" in answer.json()["next"]
    assert (await (await office.http("planner")).get("/v1/agents")).status_code == 200


@pytest.mark.parametrize("path", ["/agents/coder", "/teams/default/agents/coder"])
async def test_the_address_of_an_agent_read_is_its_manifest_byte_for_byte(
    office: Any, path: str
) -> None:
    sent = b'{ "agent_id": "coder",\n  "capabilities": [] }\n'
    coder = await office.http("coder")
    assert (await coder.put("/v1/agents/coder", content=sent)).status_code == 200
    found = await (await office.http("planner")).get(path)
    assert (found.status_code, found.content) == (200, sent)
    assert (await (await office.http("planner")).head(path)).status_code == 200
    assert (await (await office.http(None)).get(path)).status_code == 401

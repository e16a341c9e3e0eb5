"""The discovery endpoint: an agent's manifest at an address of its own, as it was sent."""

import pytest

from kit.asgi import Visitor

MANIFEST = b"""{
  "agent_id": "code_agent",
  "capabilities": [ {"name": "bug_triage", "input_schema": {"email_id":"string"}} ],
  "description": "\\u2713 done"
}
"""


async def publish(worker: Visitor) -> None:
    sent = await worker.request("PUT", "/v1/agents/code_agent", MANIFEST)
    assert sent.status == 200


@pytest.mark.parametrize("path", ["/agents/code_agent", "/teams/default/agents/code_agent"])
async def test_a_manifest_is_returned_byte_for_byte(
    worker: Visitor, requester: Visitor, path: str
) -> None:
    await publish(worker)
    found = await requester.request("GET", path)
    assert (found.status, found.body) == (200, MANIFEST)
    assert found.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "path",
    [
        "/agents/nobody",
        "/agents/",
        "/agents/code_agent/",
        "/agents",
        "/teams/other/agents/code_agent",
        "/teams/other/agents/nobody",
        "/teams/default/agents/code_agent/more",
    ],
)
async def test_there_is_nothing_at_other_addresses(
    worker: Visitor, requester: Visitor, path: str
) -> None:
    await publish(worker)
    missing = await requester.request("GET", path)
    assert (missing.status, missing.json()["code"]) == (404, "not_found")


async def test_it_is_for_the_team_and_for_reading(
    stranger: Visitor, worker: Visitor, requester: Visitor
) -> None:
    await publish(worker)
    assert (await stranger.request("GET", "/agents/code_agent")).status == 401
    refused = await requester.request("PUT", "/agents/code_agent", MANIFEST)
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    await worker.request("DELETE", "/v1/agents/code_agent")
    assert (await requester.request("GET", "/agents/code_agent")).status == 404

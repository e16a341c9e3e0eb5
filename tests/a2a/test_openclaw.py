"""What OpenClaw 2026.9.6 says, as `make openclaw` wrote it down, said again to this relay."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodrop.servers.listener.server import listen

RECORDED = json.loads((Path(__file__).parent / "openclaw.json").read_text(encoding="utf-8"))


class Replayed:
    """OpenClaw's gateway, as far as it was recorded: the first answers, then the last for ever."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Any] = []
        said = [s for s in RECORDED["to_openclaw"] if s["method"] == "POST"]
        self._sent = [s for s in said if json.loads(s["body"])["method"] == "SendMessage"]
        self._got = [s for s in said if json.loads(s["body"])["method"] == "GetTask"]
        self._card = next(s for s in RECORDED["to_openclaw"] if s["method"] == "GET")["answer"]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive()).get("body", b"")
        if scope["method"] == "GET":
            card = json.loads(self._card)
            card["supportedInterfaces"][0]["url"] = f"{self.url}/a2a/v1"
            answer = card
        else:
            call = json.loads(body)
            self.asked.append(call)
            left = self._sent if call["method"] == "SendMessage" else self._got
            said = left.pop(0) if len(left) > 1 else left[0]
            answer = json.loads(said["answer"]) | {"id": call["id"]}
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": msgspec.json.encode(answer)})


async def test_a_handoff_goes_to_openclaw_and_its_answer_comes_back(office: Any) -> None:
    claw = Replayed()
    async with listen(claw, host="127.0.0.1", port=0, frame_bytes_max=1_000_000) as url:
        claw.url = url
        me, planner = await office.member("me"), await office.member("planner")
        await me("set_reach", name="openclaw", a2a=url, token="peer", private=True)
        asked = {"text": "Please have the NDA read."}
        handoff = (await planner("offer", to="openclaw", payload=asked))["handoff"]["id"]
        async with asyncio.timeout(20):
            while not (view := (await me("get_handoff", handoff))["handoff"])["outcome"]:
                await office.pass_a_second()
        await me("set_reach", name="openclaw", a2a="")
    assert view["outcome"]["result"].startswith("OpenClaw was told: ")
    assert "read: the NDA" in view["outcome"]["result"]
    assert [c["method"] for c in claw.asked].count("SendMessage") == 1
    (recorded,) = [s for s in RECORDED["to_openclaw"] if "SendMessage" in s["body"]]
    assert claw.asked[0]["params"]["message"]["parts"] == [asked]
    assert json.loads(recorded["body"])["params"]["message"]["parts"] == [asked]


async def test_openclaws_requests_over_mcp_are_answered(office: Any) -> None:
    openclaw, lawyer = await office.http("openclaw"), await office.member("lawyer")
    handoff = ""
    for said in RECORDED["to_relay"]:
        body = said["body"]
        if '"name":"wait"' in body:
            recorded = json.loads(body)["params"]["arguments"]["handoff"]
            await lawyer("ack", handoff)
            await lawyer("complete", handoff, attempt=1, result="read: the NDA")
            body = body.replace(recorded, handoff)
        answer = await openclaw.request(
            said["method"], said["path"], content=body.encode(), headers=said["headers"]
        )
        assert answer.status_code == said["status"], said
        if '"name":"hand_off"' in body:
            handoff = answer.json()["result"]["content"][0]["text"].split("handoff ")[1][:36]
        elif '"name":"wait"' in body:
            assert "read: the NDA" in answer.text
    assert handoff


@pytest.mark.parametrize("method", ["SendMessage"])
async def test_openclaws_own_client_says_no_version_and_is_understood(
    office: Any, method: str
) -> None:
    # As its channel `a2a:<peer>` sends it: no A2A-Version, one context for ever, never asks again.
    openclaw = await office.http("openclaw")
    call = {
        "jsonrpc": "2.0",
        "id": "1",
        "method": method,
        "params": {
            "message": {
                "messageId": "b8a9",
                "contextId": "ctx-oc-relay",
                "role": "ROLE_USER",
                "parts": [{"text": "hello from OpenClaw"}],
            },
            "configuration": {"returnImmediately": True},
        },
    }
    answers = [(await openclaw.post("/agents/coder/", json=call)).json() for _ in range(2)]
    tasks = [answer["result"]["task"] for answer in answers]
    assert {task["contextId"] for task in tasks} == {"ctx-oc-relay"}
    assert tasks[0]["id"] != tasks[1]["id"]

"""Agents that live elsewhere: the relay carries handoffs to them over A2A and their results back."""

import asyncio
import itertools
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from nodrop.model.errors import ForbiddenError, InvalidRequestError
from nodrop.servers.a2a.calling.errand import Errand
from nodrop.servers.listener.server import listen

PATIENCE_SECONDS = 20
PUBLIC = "93.184.215.14"
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Abroad:
    """An A2A agent that does what a test says, and remembers what it was told."""

    def __init__(self) -> None:
        self.url = ""
        self.sent: list[Any] = []
        self.calls: list[str] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self.by_message: dict[str, str] = {}
        self.tokens: set[str] = set()
        self.traces: set[str] = set()
        self.arrived = asyncio.Event()
        self.lose_answers = False
        self.next_state = "TASK_STATE_WORKING"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["path"].endswith("agent-card.json"):
            answer: Any = self.card()
        else:
            self.tokens.add(headers.get("authorization", ""))
            self.traces |= {headers["traceparent"]} if "traceparent" in headers else set()
            answer = self.answer(msgspec.json.decode(body))
        if answer is None:
            return  # the connection breaks
        data = msgspec.json.encode(answer)
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": data})

    def card(self) -> Any:
        return {
            "name": "abroad",
            "description": "Far away",
            "version": "1",
            "supportedInterfaces": [
                {"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "capabilities": {"streaming": False},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "travel", "name": "Travel", "description": "Goes", "tags": ["far"]}],
        }

    def answer(self, call: Any) -> Any:
        method, params = call["method"], call["params"]
        self.calls.append(method)
        if method == "SendMessage":
            result: Any = {"task": self.take(params["message"])}
            if self.lose_answers:
                return None
        elif method == "CancelTask":
            self.tasks[params["id"]]["status"]["state"] = "TASK_STATE_CANCELED"
            result = self.tasks[params["id"]]
        elif params["id"] in self.tasks:
            result = self.tasks[params["id"]]
        else:
            error = {"code": -32001, "message": "Task not found"}
            return {"jsonrpc": "2.0", "id": call["id"], "error": error}
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}

    def take(self, message: Any) -> Any:
        self.sent.append(message)
        known = message.get("taskId") or self.by_message.get(message["messageId"])
        task_id = known or f"task-{len(self.tasks) + 1}"
        self.by_message[message["messageId"]] = task_id
        context = message.get("contextId") or "context"
        task = self.tasks.setdefault(task_id, {"id": task_id, "contextId": context})
        task["status"] = {"state": self.next_state}
        self.arrived.set()
        return task

    def finish(self, task_id: str = "task-1", text: str = "been there") -> None:
        self.tasks[task_id] |= {
            "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "a", "parts": [{"text": text}]}],
        }

    def say(self, state: str, text: str, task_id: str = "task-1") -> None:
        message = {"messageId": "r", "role": "ROLE_AGENT", "parts": [{"text": text}]}
        self.tasks[task_id]["status"] = {"state": state, "message": message}

    async def reached(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.arrived.wait()
        self.arrived.clear()


@asynccontextmanager
async def living(abroad: Abroad, port: int = 0) -> AsyncGenerator[None]:
    async with listen(abroad, host="127.0.0.1", port=port, frame_bytes_max=1_000_000) as url:
        abroad.url = url
        yield


@pytest.fixture
async def abroad() -> AsyncGenerator[Abroad]:
    agent = Abroad()
    async with living(agent):
        yield agent


async def add(office: Any, abroad: Abroad, **more: Any) -> Callable[..., Any]:
    """Let the relay deliver to `abroad`; return the person who did."""
    me = await office.member("me")
    await me("set_reach", name="traveller", **{"a2a": abroad.url, "private": True, **more})
    return me


async def ended(office: Any, task_id: str) -> Any:
    """Return a handoff once it has ended, while time passes."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            me = await office.member("me")
            view = (await me("get_handoff", task_id))["handoff"]
            if view["outcome"]:
                return view
            await office.pass_a_second()


async def test_a_handoff_is_sent_once_and_its_result_comes_back(
    office: Any, abroad: Abroad
) -> None:
    await add(office, abroad, token="s3cret")
    planner = await office.member("planner")
    terms = {"title": "Go", "payload": {"to": "Oslo"}, "traceparent": TRACEPARENT}
    handoff = (await planner("offer", to="traveller", **terms))["handoff"]
    await abroad.reached()
    (message,) = abroad.sent
    assert message["metadata"] == {
        "handoff_id": handoff["id"],
        "correlation_id": handoff["correlation_id"],
        "deadline": handoff["deadline"],
    }
    assert message["messageId"] == f"{handoff['id']}-1"
    assert message["contextId"] == handoff["correlation_id"]
    assert message["parts"][-1] == {"data": {"to": "Oslo"}}
    assert "Oslo" in message["parts"][0]["text"]
    assert abroad.tokens == {"Bearer s3cret"}
    assert abroad.traces == {handoff["traceparent"]}, "work on it is part of its trace"
    assert TRACEPARENT.split("-")[1] in handoff["traceparent"]
    for wait_ms in (500, 1_000, 2_000):  # gently
        await office.clock.somebody_sleeps(wait_ms)
        looks = abroad.calls.count("GetTask")
        office.clock.advance(wait_ms)
    await office.clock.somebody_sleeps(4_000)
    assert looks == 2
    abroad.say("TASK_STATE_WORKING", "on the way")
    office.clock.advance(4_000)
    updated = await office.until(handoff["id"], said="on the way")
    assert updated["state"] == "accepted"
    abroad.finish()
    done = await ended(office, handoff["id"])
    assert (done["state"], done["outcome"]["result"]) == ("completed", "been there")
    assert abroad.calls.count("SendMessage") == 1


async def test_its_skills_are_found_and_its_secret_is_not_shown(
    office: Any, abroad: Abroad
) -> None:
    me = await add(office, abroad, token="s3cret")
    planner = await office.member("planner")
    handoff = (await planner("offer", to="traveller", payload={}))["handoff"]
    await abroad.reached()
    (found,) = (await planner("agents", capability="travel"))["agents"]
    assert (found["agent_id"], found["manifest"]["description"]) == ("traveller", "Far away")
    reach = await me("get_reach", name="traveller")
    assert reach == {
        "agent": "traveller", "public": False, "a2a": abroad.url, "token": True, "private": True,
    }  # fmt: skip
    assert "s3cret" not in str(await me("log", limit=500))
    assert handoff["state"] == "offered"
    with pytest.raises(ForbiddenError):
        await planner("get_reach", name="traveller")


async def test_a_question_from_elsewhere_is_asked_here_and_the_answer_goes_back(
    office: Any, abroad: Abroad
) -> None:
    abroad.next_state = "TASK_STATE_INPUT_REQUIRED"
    await add(office, abroad)
    planner = await office.member("planner")
    handoff_id = (await planner("offer", to="traveller", payload={"text": "Go"}))["handoff"]["id"]
    await abroad.reached()
    blocked = await office.until(handoff_id, state="blocked")
    assert blocked["question"]["asked"] == "planner"
    abroad.next_state = "TASK_STATE_WORKING"
    await planner("answer", handoff_id, seq=blocked["question"]["seq"], answer="By train")
    await abroad.reached()
    assert abroad.sent[1]["taskId"] == "task-1"
    assert abroad.sent[1]["parts"] == [{"text": "By train"}]
    abroad.finish()
    done = await ended(office, handoff_id)
    assert (done["state"], len(abroad.tasks)) == ("completed", 1)


async def test_a_restart_of_the_relay_sends_nothing_twice(office: Any, abroad: Abroad) -> None:
    await add(office, abroad)
    planner = await office.member("planner")
    handoff_id = (await planner("offer", to="traveller", payload={}))["handoff"]["id"]
    await abroad.reached()
    await office.until(handoff_id, state="accepted")
    await office.restart(down_ms=60_000)
    abroad.finish()
    done = await ended(office, handoff_id)
    assert (done["state"], done["attempt"]) == ("completed", 1)
    assert abroad.calls.count("SendMessage") == 1


async def test_without_what_was_recorded_a_restart_would_send_twice(
    office: Any, abroad: Abroad, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(self: Errand, name: str, value: Any) -> None:
        del self, name, value

    monkeypatch.setattr(Errand, "_record", forget)
    await add(office, abroad)
    planner = await office.member("planner")
    await planner("offer", to="traveller", payload={})
    await abroad.reached()
    await office.restart()
    await abroad.reached()
    assert abroad.calls.count("SendMessage") == 2


async def test_a_message_whose_answer_got_lost_is_sent_again_under_the_same_id(
    office: Any, abroad: Abroad
) -> None:
    abroad.lose_answers = True
    await add(office, abroad)
    planner = await office.member("planner")
    handoff_id = (await planner("offer", to="traveller", payload={}))["handoff"]["id"]
    await abroad.reached()
    await office.until(handoff_id, state="offered", attempt=1)
    abroad.lose_answers = False
    abroad.next_state = "TASK_STATE_COMPLETED"
    done = await ended(office, handoff_id)
    assert (done["state"], done["tries"]) == ("completed", 0)
    assert {message["messageId"] for message in abroad.sent} == {f"{handoff_id}-1"}
    assert len(abroad.tasks) == 1


async def test_an_agent_that_forgot_the_task_is_asked_again_as_another_attempt(
    office: Any, abroad: Abroad
) -> None:
    await add(office, abroad)
    planner = await office.member("planner")
    handoff_id = (await planner("offer", to="traveller", payload={}))["handoff"]["id"]
    await abroad.reached()
    await office.until(handoff_id, state="accepted")
    abroad.tasks.clear()
    abroad.next_state = "TASK_STATE_COMPLETED"
    done = await ended(office, handoff_id)
    assert (done["state"], done["tries"]) == ("completed", 1)
    assert [m["messageId"] for m in abroad.sent] == [f"{handoff_id}-1", f"{handoff_id}-2"]


async def test_mail_for_an_agent_that_is_away_is_kept_until_it_is_there(office: Any) -> None:
    abroad = Abroad()
    async with living(abroad):
        port = int(abroad.url.rpartition(":")[2])
    await add(office, abroad)
    planner = await office.member("planner")
    handoff_id = (await planner("offer", to="traveller", payload={}))["handoff"]["id"]
    await office.clock.somebody_sleeps(1_000)
    office.clock.advance(1_000)
    await office.clock.somebody_sleeps(2_000)
    waiting = await office.until(handoff_id, state="offered")
    assert waiting["attempt"] == 0
    abroad.next_state = "TASK_STATE_COMPLETED"
    async with living(abroad, port):
        done = await ended(office, handoff_id)
    assert (done["state"], done["attempt"], done["tries"]) == ("completed", 1, 0)


@pytest.mark.parametrize(
    ("said", "state", "code"),
    [
        ("TASK_STATE_FAILED", "failed", "remote_failed"),
        ("TASK_STATE_CANCELED", "failed", "remote_cancelled"),
        ("TASK_STATE_REJECTED", "rejected", "rejected"),
    ],
)
async def test_how_it_ends_elsewhere_is_how_it_ends_here(
    office: Any, abroad: Abroad, said: str, state: str, code: str
) -> None:
    abroad.next_state = said
    await add(office, abroad)
    planner = await office.member("planner")
    handoff_id = (await planner("offer", to="traveller", payload={}))["handoff"]["id"]
    done = await ended(office, handoff_id)
    assert done["state"] == state
    assert done["outcome"].get("code") in {code, None}


async def test_a_result_that_comes_after_somebody_else_took_over_changes_nothing(
    office: Any, abroad: Abroad
) -> None:
    me = await add(office, abroad)
    planner, coder = await office.member("planner"), await office.member("coder")
    handoff_id = (await planner("offer", to="traveller", payload={}))["handoff"]["id"]
    await abroad.reached()
    await office.until(handoff_id, state="accepted")
    await me("reassign", handoff_id, to="coder")
    abroad.finish(text="too late")
    await coder("take")
    await coder("ack", handoff_id, attempt=2)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "CancelTask" not in abroad.calls:
            await office.pass_a_second()
    await coder("complete", handoff_id, attempt=2, result="in time")
    view = (await me("get_handoff", handoff_id))["handoff"]
    assert view["outcome"]["result"] == "in time"


async def test_an_address_that_no_operator_allowed_is_refused_and_never_called(
    office: Any, abroad: Abroad, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = type(office)(office.folder / "strict", allowed=())
    strict.folder.mkdir()
    await strict.open()
    try:
        me = await strict.member("me")
        before = await strict.entries()
        with pytest.raises(InvalidRequestError, match="not a public address") as told:
            await me("set_reach", name="traveller", a2a=abroad.url)
        assert "--private" in told.value.next_step
        assert await strict.entries() == before
        # A name that was a public one's when it was given leads here by now.
        port = abroad.url.rpartition(":")[2]
        found = itertools.chain([PUBLIC], itertools.repeat("127.0.0.1"))

        def resolve(_: str, port: int, *__: Any, **___: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(found), port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        await me("set_reach", name="traveller", a2a=f"http://rebound.example:{port}")
        await me("offer", to="traveller", payload={})
        await strict.clock.somebody_sleeps(1_000)
        strict.clock.advance(1_000)
        await strict.clock.somebody_sleeps(2_000)
        assert abroad.calls == []
        await me("set_reach", name="traveller", a2a=abroad.url, private=True)
        await abroad.reached()
    finally:
        await strict.close()


@pytest.mark.parametrize("declared", [(), ("travel",)])
async def test_an_agent_of_another_relay_is_one_like_any_other(
    office: Any, declared: tuple[str, ...]
) -> None:
    other = type(office)(office.folder / "other")
    other.folder.mkdir()
    await other.open()
    me, planner = await office.member("me"), await office.member("planner")
    try:
        coder = await other.member("coder")
        takes = {"input_schema": {"file": "string"}}
        capabilities = [{"name": name, **takes} for name in declared]
        manifest = {"agent_id": "coder", "capabilities": capabilities}
        await coder("register", name="coder", manifest=manifest)
        place = {"a2a": f"{other.url}/agents/coder", "token": await other.token("us")}
        await me("set_reach", name="traveller", private=True, **place)
        offer = {"title": "Go there", "priority": "high", "payload": {"file": "a.ts"}}
        offered = (await planner("offer", to="traveller", **offer))["handoff"]
        (delivery,) = (await coder("take", wait="20s"))["deliveries"]
        there = delivery["handoff"]
        assert there["payload"] == {"file": "a.ts"}
        assert there["from"] == "us"
        assert (there["title"], there["priority"]) == ("Go there", "high")
        assert there["deadline"] == offered["deadline"]
        assert there["capability"] == (declared[0] if declared else None)
        await coder("ack", there["id"], attempt=1)
        await coder("complete", there["id"], attempt=1, result={"fixed": True})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (view := (await me("get_handoff", offered["id"]))["handoff"])["outcome"]:
                await office.pass_a_second()
        assert view["outcome"]["result"] == {"fixed": True}
        assert view["to"] == "traveller"
    finally:
        await me("set_reach", name="traveller", a2a="")
        await other.close()


async def test_dropping_an_agent_elsewhere_ends_the_deliveries(office: Any, abroad: Abroad) -> None:
    me = await add(office, abroad)
    await me("offer", to="traveller", payload={})
    await abroad.reached()
    await me("set_reach", name="traveller", a2a="")
    planner = await office.member("planner")
    second = (await planner("offer", to="traveller", payload={}))["handoff"]
    assert second["state"] == "offered"
    assert len(abroad.sent) == 1

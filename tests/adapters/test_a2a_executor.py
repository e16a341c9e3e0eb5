"""An executor behind the A2A SDK's own server that hands on: called directly, and by a relay."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import CancelTaskRequest, Message, Part, Role, SendMessageRequest, Task, TaskState
from starlette.applications import Starlette

from nodrop import app
from nodrop.adapters import a2a
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.servers.listener.server import listen

PATIENCE_SECONDS = 30

Member = Callable[..., Any]


class Boss(AgentExecutor):
    """Has the planner do it."""

    def __init__(self, planner: a2a.HandOff) -> None:
        self._planner = planner

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        if context.current_task is None:
            assert context.message is not None, "it is what brings us here"
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        await a2a.tell(await self._planner(context), _update(context, event_queue))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await self._planner.cancel(context)
        await _update(context, event_queue).cancel()


def _update(context: RequestContext, event_queue: EventQueue) -> TaskUpdater:
    assert context.task_id is not None, "the server has given it one"
    assert context.context_id is not None, "the server has given it one"
    return TaskUpdater(event_queue, context.task_id, context.context_id)


class Place:
    """A relay, and the boss's server beside it."""

    def __init__(self, relay: Relay, boss: str) -> None:
        self._relay = relay
        self.boss = boss

    async def member(self, name: str) -> Member:
        secret = f"nd_{name}"
        role = "operator" if name == "me" else "agent"
        await self._relay.ensure_token("default", agent=name, role=role, secret=secret)
        transport = InProcessTransport(self._relay, await self._relay.authenticate(secret))

        async def call(
            operation: str, handoff: str | None = None, *, name: str | None = None, **fields: Any
        ) -> Any:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await transport.call(operation, fields, handoff=handoff, name=name)

        return call

    async def say(self, text: str, task: Task | None = None) -> Task:
        """Say something to the boss, and return what its task came to."""
        about: Any = {} if task is None else {"task_id": task.id, "context_id": task.context_id}
        said = Message(message_id="m1", role=Role.ROLE_USER, parts=[Part(text=text)], **about)
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as http:
            client = await create_client(a2a.endpoint(self.boss), ClientConfig(httpx_client=http))
            async for told in client.send_message(SendMessageRequest(message=said)):
                return told.task
        raise AssertionError("no answer")

    async def cancel(self, task: Task) -> Task:
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as http:
            client = await create_client(a2a.endpoint(self.boss), ClientConfig(httpx_client=http))
            return await client.cancel_task(CancelTaskRequest(id=task.id))


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Place]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NODROP_HOME", str(tmp_path))
    async with (
        app.open_relay(":memory:", home=tmp_path) as relay,
        app.listening(relay, a2a=app.A2A(home=tmp_path)) as url,
    ):
        planner = a2a.hand_off("planner", address=url, token="nd_boss")
        handler = DefaultRequestHandler(
            agent_executor=Boss(planner),
            task_store=InMemoryTaskStore(),
            agent_card=a2a.endpoint("http://boss/a2a"),
        )
        server = Starlette(routes=create_jsonrpc_routes(handler, "/a2a"))
        async with listen(server, host="127.0.0.1", port=0, frame_bytes_max=1_000_000) as boss:
            place = Place(relay, f"{boss}/a2a")
            await place.member("boss")
            yield place


async def asked(place: Place, planner: Member) -> tuple[dict[str, Any], Task]:
    """Have the boss asked something by the planner, and it whoever called it."""
    saying = asyncio.ensure_future(place.say("tides"))
    (delivery,) = (await planner("take", wait="20s"))["deliveries"]
    child = delivery["handoff"]
    await planner("ack", child["id"], attempt=1)
    await planner("block", child["id"], attempt=1, question="Which coast?")
    task = await saying
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert task.status.message.parts[0].text == "planner asks: Which coast?"
    return child, task


async def test_a_question_goes_up_to_the_caller_and_the_answer_down(place: Place) -> None:
    planner = await place.member("planner")
    child, task = await asked(place, planner)
    saying = asyncio.ensure_future(place.say("the west one", task))
    answered = await planner("get_handoff", child["id"], wait="20s", until="unblocked")
    assert answered["handoff"]["answers"] == {"Which coast?": "the west one"}
    await planner("complete", child["id"], attempt=1, result="at noon")
    done = await saying
    assert (done.id, done.status.state) == (task.id, TaskState.TASK_STATE_COMPLETED)
    assert done.artifacts[0].parts[0].text == "at noon"


async def test_cancelling_a_task_that_asks_reaches_whoever_asked(place: Place) -> None:
    planner = await place.member("planner")
    child, task = await asked(place, planner)
    assert (await place.cancel(task)).status.state == TaskState.TASK_STATE_CANCELED
    assert (await planner("get_handoff", child["id"]))["handoff"]["state"] == "cancelled"


async def test_what_a_relay_delivers_by_itself_is_what_the_next_handoff_is_below(
    place: Place,
) -> None:
    me, origin, planner = [await place.member(name) for name in ("me", "origin", "planner")]
    await me("set_reach", name="boss", a2a=place.boss, private=True)
    top = (await origin("offer", to="boss", payload={"text": "tides"}, deadline="1h"))["handoff"]
    (delivery,) = (await planner("take", wait="20s"))["deliveries"]
    child = delivery["handoff"]
    assert (child["parent_id"], child["from"]) == (top["id"], "boss")
    assert child["correlation_id"] == top["correlation_id"]
    assert child["deadline"] == top["deadline"]
    await planner("ack", child["id"], attempt=1)
    await planner("complete", child["id"], attempt=1, result="at noon")
    done = await origin("get_handoff", top["id"], wait="20s")
    assert done["handoff"]["outcome"]["result"] == "at noon"

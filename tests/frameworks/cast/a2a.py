"""A2A on stage: an agent behind the official SDK's server. All of ours in it is what hands on."""

import json
import os
import socket
import threading
from datetime import UTC, datetime
from typing import Any

import httpx
import uvicorn
from a2a.client import ClientConfig, create_client
from a2a.helpers import (
    get_stream_response_text,
    new_task_from_user_message,
    new_text_message,
    new_text_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, Role, SendMessageRequest
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette

from cast import brain
from nodrop import Agent
from nodrop.adapters import a2a
from nodrop.adapters.port.handing import parsed

SAID_SECONDS_MAX = 60.0


class Act(AgentExecutor):
    """Does what `brain` decides; knows only what came over the wire."""

    def __init__(self, hands: dict[str, a2a.HandOff]) -> None:
        self._hands = hands

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None, "it is what brings us here"
        task = context.current_task or new_task_from_user_message(context.message)
        if context.current_task is None:
            await event_queue.enqueue_event(task)
        update = TaskUpdater(event_queue, task.id, task.context_id)
        await update.start_work()
        said = context.get_user_input()
        first = task.history[0].parts[0].text if task.history else said
        heard: list[str] = []
        try:
            while True:
                match brain.decide(first, heard):
                    case brain.Say(text):
                        await update.add_artifact([new_text_part(text)])
                        await update.complete()
                        return
                    case brain.Ask() if context.current_task is not None:
                        heard.append(said)
                    case brain.Ask(question):
                        asking = update.new_agent_message([new_text_part(question)])
                        await update.requires_input(asking)
                        return
                    case brain.Call("report"):
                        heard.append(_report(context))
                    case brain.Call("hold"):
                        heard.append(await self._hold(context))
                    case brain.Call(name, arguments):
                        fields = parsed(arguments["context_json"])
                        answer = await self._hands[name](context, arguments["task"], fields)
                        if isinstance(answer, a2a.Question):
                            await a2a.tell(answer, update)
                            return
                        heard.append(answer.text)
        except brain.ModelDownError as error:
            await update.failed(update.new_agent_message([new_text_part(str(error))]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None, "there is something to cancel"
        assert context.context_id is not None, "it has a context"
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    async def _hold(self, context: RequestContext) -> str:
        handoff_id = _about(context)["handoff_id"]
        if (brain.FOLDER / f"held-{handoff_id}").exists():
            return _report(context)
        await brain.hang(handoff_id)
        return "held"


def _about(context: RequestContext) -> dict[str, Any]:
    return MessageToDict(context.message.metadata) if context.message else {}


def _report(context: RequestContext) -> str:
    about = _about(context)
    headers: dict[str, Any] = context.call_context.state["headers"] if context.call_context else {}
    return json.dumps(
        {
            "correlation_id": about["correlation_id"],
            "trace_id": headers.get("traceparent", "--").split("-")[1],
            "seconds_left": _seconds_until(about["deadline"]),
            "payload": None,
            "pid": os.getpid(),
        }
    )


def _seconds_until(moment: str) -> float:
    return (datetime.fromisoformat(moment) - datetime.now(UTC)).total_seconds()  # noqa: TID251  # an agent far away has a clock of its own


def started(executor: AgentExecutor) -> str:
    """Serve in a thread for as long as the process lives; return where."""
    door = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{door.getsockname()[1]}/a2a"
    way = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
    card = AgentCard(
        name="act",
        description="Acts.",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=True),
        supported_interfaces=[way],
    )
    handler = DefaultRequestHandler(
        agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card
    )
    routes = [*create_jsonrpc_routes(handler, "/a2a"), *create_agent_card_routes(card)]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning"))
    threading.Thread(target=server.run, args=([door],), daemon=True).start()
    return url


async def said_to(executor: AgentExecutor) -> str:
    """Return what an executor says that is served and told something."""
    message = new_text_message("Hello", role=Role.ROLE_USER)
    async with httpx.AsyncClient(timeout=SAID_SECONDS_MAX) as http:
        client = await create_client(
            a2a.endpoint(started(executor)), ClientConfig(httpx_client=http)
        )
        request = SendMessageRequest(message=message)
        said = [get_stream_response_text(told) async for told in client.send_message(request)]
    return said[-1]


def members(targets: list[str]) -> list[Agent]:
    ways = [a2a.hand_off(to, agent="a2a", attempts_max=2) for to in targets]
    hands = {f"hand_off_to_{to}": way for to, way in zip(targets, ways, strict=True)}
    target = a2a.endpoint(started(Act(hands)))
    return [a2a.as_agent(target, agent="a2a", **brain.terms())]

"""a2a-sdk: an agent behind the A2A protocol, its tasks in the SDK's own SQLite store."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.cycle import Ask, Cycle
from nodrop_proof.bench.processes import free_port, listening
from nodrop_proof.bench.system import About, Load, foreign

ABOUT: Final = About(
    title="a2a-sdk on SQLite",
    durability="SQLite WAL, synchronous=FULL (DatabaseTaskStore)",
    cycle=(
        "JSON-RPC message/send that blocks until the task ends: submitted, working, an artifact, "
        "completed, each stored. The agent runs inside of the server; no idempotency key"
    ),
    packages=("a2a-sdk", "sqlalchemy", "aiosqlite", "httpx", "uvicorn"),
)


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Serve the agent."""
    uvicorn: Any = foreign("uvicorn")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    config = uvicorn.Config(
        _application(address, folder / "tasks.db"), port=port, log_level="warning", access_log=False
    )
    serving = uvicorn.Server(config)
    task = asyncio.create_task(serving.serve())
    await listening(port)
    yield address
    serving.should_exit = True
    await task


def _application(address: str, path: Path) -> Any:
    alchemy: Any = foreign("sqlalchemy.ext.asyncio")
    engine = alchemy.create_async_engine(f"sqlite+aiosqlite:///{path}")

    @foreign("sqlalchemy").event.listens_for(engine.sync_engine, "connect")
    def durable(connection: Any, _: Any) -> None:
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=full")

    card = _card(address)
    handler = foreign("a2a.server.request_handlers").DefaultRequestHandler(
        agent_executor=_executor(),
        task_store=foreign("a2a.server.tasks").DatabaseTaskStore(engine),
        agent_card=card,
    )
    routes: Any = foreign("a2a.server.routes")
    return foreign("starlette.applications").Starlette(
        routes=[
            *routes.create_agent_card_routes(card),
            *routes.create_jsonrpc_routes(handler, rpc_url="/"),
        ]
    )


def _card(address: str) -> Any:
    types: Any = foreign("a2a.types")
    return types.AgentCard(
        name="worker",
        description="Answers",
        version="1",
        default_input_modes=["application/json"],
        default_output_modes=["application/json"],
        capabilities=types.AgentCapabilities(streaming=False),
        supported_interfaces=[
            types.AgentInterface(url=address, protocol_binding="JSONRPC", protocol_version="1.0")
        ],
    )


def _executor() -> Any:
    helpers: Any = foreign("a2a.helpers")
    tasks: Any = foreign("a2a.server.tasks")
    base: Any = foreign("a2a.server.agent_execution").AgentExecutor

    class Answering(base):
        async def execute(self, context: Any, event_queue: Any) -> None:
            task = helpers.new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
            updater = tasks.TaskUpdater(event_queue, task.id, task.context_id)
            await updater.start_work()
            asked = helpers.get_data_parts(context.message.parts)[0]
            await updater.add_artifact([helpers.new_data_part(cycles.result(asked))])
            await updater.complete()

        async def cancel(self, context: Any, event_queue: Any) -> None:
            raise NotImplementedError

    return Answering()


async def work(address: str) -> None:
    """Do nothing: the agent is in the server."""
    assert address, "a URL"
    await asyncio.Event().wait()


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Connect its client with as many connections as callers."""
    httpx: Any = foreign("httpx")
    clients: Any = foreign("a2a.client")
    helpers: Any = foreign("a2a.helpers")
    types: Any = foreign("a2a.types")
    limits = httpx.Limits(max_connections=load.callers)
    async with httpx.AsyncClient(limits=limits, timeout=60) as session:
        client = await clients.create_client(
            address, client_config=clients.ClientConfig(streaming=False, httpx_client=session)
        )

        async def cycle(_: str, asked: Ask) -> Any:
            message = helpers.new_data_message(asked, role=types.Role.ROLE_USER)
            request = types.SendMessageRequest(message=message)
            answers = [answer async for answer in client.send_message(request)]
            return helpers.get_data_parts(answers[-1].task.artifacts[0].parts)[0]

        yield cycle

"""A relay whose clock the test moves, agents of the team on it, and clients of the official SDK."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import grpc.aio
import httpx
import pytest
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.client.client import ClientCallContext
from a2a.types import (
    GetTaskRequest,
    Message,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
)
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

from nodrop import app
from nodrop.model.limits import DEFAULT
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

BINDINGS: Final = ("JSONRPC", "HTTP+JSON", "GRPC", "0.3")
PATIENCE_SECONDS: Final = 20
_TURNS: Final = 20
"""Of the event loop, from being woken to having asked."""
EXTENSION: Final = "urn:nodrop:a2a:handoff:v1"

_NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Nothing here is encrypted, and reading whom the system trusts takes a while."""

View = dict[str, Any]


class Peer:
    """Somebody who speaks A2A to one agent, and can listen too."""

    def __init__(self, client: Client, listening: Client) -> None:
        self.client = client
        self.listening = listening

    async def send(
        self,
        *parts: Part | str,
        wait: bool = False,
        terms: View | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Task | Message:
        """Send a message; return what it became."""
        request = asked(*parts, terms=terms, **fields)
        request.configuration.CopyFrom(SendMessageConfiguration(return_immediately=not wait))
        context = ClientCallContext(service_parameters=dict(headers or {}))
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for answer in self.client.send_message(request, context=context):
                return answer.task if answer.HasField("task") else answer.message
        raise AssertionError("no answer")

    async def task(self, *parts: Part | str, **fields: Any) -> Task:
        """Send a message; return the task that it became."""
        sent = await self.send(*parts, **fields)
        assert isinstance(sent, Task)
        return sent

    async def get(self, task: Task | str) -> Task:
        task_id = task if isinstance(task, str) else task.id
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.client.get_task(GetTaskRequest(id=task_id))

    async def refused(self, call: Any) -> A2AError:
        """Return the error that a call ends with."""
        with pytest.raises(A2AError) as refused:
            await call
        return refused.value


def asked(*parts: Part | str, terms: View | None = None, **fields: Any) -> SendMessageRequest:
    made = [Part(text=part) if isinstance(part, str) else part for part in parts]
    fields = {"message_id": "m1", "role": "ROLE_USER"} | fields
    message = Message(parts=made, **fields)
    if terms is not None:
        ours = Struct()
        ours.update({EXTENSION: terms})
        message.metadata.CopyFrom(ours)
    return SendMessageRequest(message=message)


def data(value: View) -> Part:
    part = Part()
    part.data.struct_value.update(value)
    return part


def state(found: Task) -> str:
    return MessageToDict(found.status)["state"].removeprefix("TASK_STATE_").lower()


def ours(found: Task) -> View:
    """What a task says under our URI."""
    return MessageToDict(found.metadata)[EXTENSION]


def kinds(events: list[StreamResponse]) -> list[str]:
    """What a stream told, in short: task:submitted, artifact, working and so on."""
    told: list[str] = []
    for event in events:
        if event.HasField("task"):
            told.append(f"task:{state(event.task)}")
        elif event.HasField("artifact_update"):
            told.append("artifact")
        else:
            shown = MessageToDict(event.status_update.status)["state"]
            told.append(shown.removeprefix("TASK_STATE_").lower())
    return told


class WatchedClock(FakeClock):
    """Also tells who sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._sleeps: asyncio.Queue[int] = asyncio.Queue()

    async def sleep_until(self, at: int) -> None:
        self._sleeps.put_nowait(at - self.now())
        await super().sleep_until(at)

    async def somebody_sleeps(self, ms: int) -> None:
        """Return once somebody has gone to sleep for so long."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._sleeps.get() != ms:
                pass


class Office:
    """A relay, its clock, and a way in for everybody."""

    # What tests read A2A with: they cannot import from here.
    state = staticmethod(state)
    ours = staticmethod(ours)
    kinds = staticmethod(kinds)
    data = staticmethod(data)
    asked = staticmethod(asked)

    def __init__(
        self,
        folder: Path,
        *,
        store: Path | str | None = None,
        allowed: tuple[str, ...] = ("127.0.0.1",),
    ) -> None:
        self.clock = WatchedClock()
        self.folder = folder
        self._store = folder / "team.db" if store is None else store
        self._allowed = allowed
        self.limits = DEFAULT
        """The bounds of the relay, from its next start on."""
        self._stack = AsyncExitStack()
        self._relay: Relay | None = None
        self.url = ""

    @property
    def relay(self) -> Relay:
        assert self._relay is not None, "the relay is down"
        return self._relay

    async def open(self, *, grpc_port: int | None = None) -> None:
        outside = app.A2A(home=self.folder, allowed=self._allowed, grpc_port=grpc_port)
        self._relay = await self._stack.enter_async_context(
            app.open_relay(self._store, home=self.folder, clock=self.clock, limits=self.limits)
        )
        self.url = await self._stack.enter_async_context(app.listening(self._relay, a2a=outside))

    async def close(self) -> None:
        self._relay = None
        await self._stack.aclose()

    async def restart(self, *, down_ms: int = 0, grpc_port: int | None = None) -> None:
        await self.close()
        self.clock.advance(down_ms)
        await self.open(grpc_port=grpc_port)

    async def pass_a_second(self) -> None:
        """Let time pass, no faster than the relay commits: else leases lapse that are kept."""
        self.clock.advance(1_000)
        for _ in range(_TURNS):  # whoever slept until now asks for what it wants
            await asyncio.sleep(0)
        # In line behind all that: once this is committed, so is every sign of life.
        await (await self.member("me"))("heartbeat", process="the test")

    async def token(self, name: str, *, team: str = "default") -> str:
        secret = f"nd_{team}_{name}"
        role = "operator" if name == "me" else "agent"
        await self.relay.ensure_team(team)
        await self.relay.ensure_token(team, agent=name, role=role, secret=secret)
        return secret

    async def member(self, name: str, *, team: str = "default") -> Callable[..., Any]:
        """Return `name` on the relay's own interface."""
        caller = await self.relay.authenticate(await self.token(name, team=team))
        transport = InProcessTransport(self.relay, caller)

        async def call(
            operation: str, handoff: str | None = None, *, name: str | None = None, **fields: Any
        ) -> View:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await transport.call(operation, fields, handoff=handoff, name=name)

        return call

    async def http(self, name: str | None, *, team: str = "default") -> httpx.AsyncClient:
        """Return plain HTTP, with the token of `name`."""
        token = None if name is None else await self.token(name, team=team)
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        plain = httpx.AsyncHTTPTransport(verify=_NO_TLS)
        client = httpx.AsyncClient(
            transport=plain, base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS
        )
        return await self._stack.enter_async_context(client)

    async def peer(self, name: str | None, agent: str, *, binding: str = "JSONRPC") -> Peer:
        """Return `name` as a client of the official SDK."""
        clients = [await self._client(name, agent, binding, streaming=s) for s in (False, True)]
        return Peer(*clients)

    async def _client(
        self, name: str | None, agent: str, binding: str, *, streaming: bool
    ) -> Client:
        http = await self.http(name)
        config = ClientConfig(
            streaming=streaming,
            httpx_client=http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=["JSONRPC" if binding == "0.3" else binding],
        )
        factory = ClientFactory(config)
        if binding == "0.3":
            card = (await http.get(f"/agents/{agent}/.well-known/agent-card.json")).json()
            shown = card["supportedInterfaces"]
            card["supportedInterfaces"] = [i for i in shown if i["protocolVersion"] == "0.3"]
            return factory.create(parse_agent_card(card))
        client = await factory.create_from_url(f"{self.url}/agents/{agent}")
        if binding == "GRPC":
            token = await self.token(name or "nobody")
            return _WithToken(client, token)  # pyright: ignore[reportReturnType]  # as far as tests use it
        return client

    async def entries(self) -> list[str]:
        """Return the types of everything in the log."""
        me = await self.member("me")
        return [entry["type"] for entry in (await me("log", limit=500))["entries"]]

    async def until(
        self,
        task_id: str,
        *,
        state: str | None = None,
        said: str | None = None,
        attempt: int | None = None,
        settled: bool = False,
    ) -> View:
        """Return a handoff once it is as expected. Follows the log: nothing is polled."""
        me = await self.member("me")
        after = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                view = (await me("get_handoff", task_id))["handoff"]
                if (
                    state in {None, view["state"]}
                    and attempt in {None, view["attempt"]}
                    and (said is None or (view["ack"] and view["ack"]["status"] == said))
                    and (view["settled_at"] is not None or not settled)
                ):
                    return view
                page = await me("log", after=after, wait="60s", handoff_id=task_id)
                after = page["after"]


class _WithToken:
    """A gRPC client whose calls carry a token."""

    def __init__(self, client: Client, token: str) -> None:
        self._client = client
        self._said = {"authorization": f"Bearer {token}"}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(request: Any, *, context: ClientCallContext | None = None) -> Any:
            context = context or ClientCallContext()
            parameters = {**(context.service_parameters or {}), **self._said}
            return method(request, context=ClientCallContext(service_parameters=parameters))

        return call


@pytest.fixture
async def office(tmp_path: Path) -> AsyncGenerator[Office]:
    office = Office(tmp_path)
    await office.open()
    await office.token("coder")
    yield office
    await office.close()


@pytest.fixture
async def offices(tmp_path: Path, database: str) -> AsyncGenerator[tuple[Office, Office]]:
    """Two relays on one PostgreSQL database; the first one was there first."""
    offices = Office(tmp_path, store=database), Office(tmp_path, store=database)
    for office in offices:
        await office.open()
    await offices[0].token("coder")
    yield offices
    for office in offices:
        await office.close()


@pytest.fixture(params=BINDINGS)
async def peer(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[tuple[Office, Peer]]:
    """The planner, at the coder's address, over every binding."""
    office = Office(tmp_path)
    await office.open(grpc_port=0 if request.param == "GRPC" else None)
    await office.token("coder")
    yield office, await office.peer("planner", "coder", binding=request.param)
    await office.close()

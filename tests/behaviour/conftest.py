"""Every story is told once and runs over every door, on a relay whose clock the story moves."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import pytest

from nodrop import app
from nodrop.client.auth.tokens import FixedToken
from nodrop.client.transports.http import HttpTransport
from nodrop.client.transports.transport import DeliveryStream, Transport
from nodrop.client.transports.websocket import WebSocketTransport
from nodrop.model.errors import BY_CODE, Problem
from nodrop.relay.relay import Relay
from nodrop.servers.a2a.extension import TERMS as OFFERED
from nodrop.servers.a2a.extension import URI
from nodrop.servers.inprocess import InProcessTransport
from nodrop.servers.mcp import toolset
from nodrop.servers.mcp.tools import HandOff
from nodrop.testing.clock import FakeClock

DOORS: Final = ("in-process", "http", "websocket")
A2A_STORIES: Final = frozenset(
    {
        *("test_receipts", "test_questions", "test_routing", "test_chains", "test_dead_letters"),
        "test_queued",
        "test_team_steps",
    }
)
"""What is told over A2A too: about handing off, answering and withdrawing, all that it can say."""
MCP_STORIES: Final = frozenset(
    f"test_{name}"
    for name in (
        "broken_chains", "chains", "dead_letters", "discovery", "erasing", "escalation", "leases",
        "log", "loops", "questions", "queued", "receipts", "refusals", "repeats", "roles", "routing",
        "team_steps",
    )
)  # fmt: skip
"""What is told with the tools of MCP too; in the others hardly anything can be said with them."""
NOT_OVER_MCP: Final = frozenset(
    {
        # A tool's arguments are held to its own list of priorities before the relay sees the rest.
        "test_everything_wrong_is_told_at_once",
        # A tool looks at a handoff before it cancels it: it is the look that is refused.
        "test_refusals_are_in_the_security_log_as_one_line_with_a_count",
    }
)
TERMS: Final = OFFERED | {"to", "payload"}
MCP_NAMES: Final = {"idempotency_key": "key", "parent_id": "parent"}
"""What a tool calls a field of an offer, where it calls it otherwise."""
MCP_TERMS: Final = frozenset(HandOff.__struct_fields__) - {*MCP_NAMES.values()} | {*MCP_NAMES}
PATIENCE_SECONDS: Final = 20
"""How long a story waits for what must happen; only a broken one ever waits that long."""

View = dict[str, Any]
Expected = Callable[[View], bool] | dict[str, Any]
"""What a story waits for; as fields, `...` is anything but nothing."""


class Member(Protocol):
    """An agent of the team, at its door."""

    name: str

    async def __call__(
        self,
        operation: str,
        handoff: str | None = None,
        /,
        *,
        named: str | None = None,
        **fields: Any,
    ) -> View:
        """Ask the relay for something."""
        ...


def _is(view: View, expected: Expected) -> bool:
    if callable(expected):
        return expected(view)
    return all(
        view[name] is not None if value is ... else view[name] == value
        for name, value in expected.items()
    )


class _Member:
    def __init__(self, name: str, transport: Transport) -> None:
        self.name = name
        self.transport = transport

    async def __call__(
        self,
        operation: str,
        handoff: str | None = None,
        /,
        *,
        named: str | None = None,
        **fields: Any,
    ) -> View:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.transport.call(operation, fields, handoff=handoff, name=named)


class A2ATransport:
    """A requester that speaks A2A wherever A2A can say it, and HTTP where it cannot.

    What it is answered is the handoff as HTTP shows it: the stories read more than a task tells.
    """

    def __init__(self, url: str, token: str) -> None:
        self._rest = HttpTransport(url + "/v1", FixedToken(token))
        headers = {"authorization": f"Bearer {token}", "a2a-version": "1.0"}
        self._session = aiohttp.ClientSession(url, headers=headers)

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> View:
        task_id = await self._said(operation, fields, handoff)
        if task_id is None:
            return await self._rest.call(operation, fields, handoff=handoff, name=name)
        return await self._rest.call("get_handoff", {}, handoff=task_id)

    async def _said(self, operation: str, fields: Mapping[str, Any], ref: str | None) -> str | None:
        """Say it in A2A; return the task it was about. None: A2A has no words for it."""
        match operation:
            case "offer" if isinstance(fields.get("payload"), dict) and fields.keys() <= TERMS:
                terms = {n: v for n, v in fields.items() if n not in {"to", "payload"}}
                message = {"parts": [{"data": fields["payload"]}], "metadata": {URI: terms}}
                # Whoever has not joined yet has no address; whoever is meant by what they can do
                # is asked for at the relay's own.
                to = fields.get("to")
                known = to is None or await self._has_joined(to)
                address = "/a2a/" if to is None else f"/agents/{to}/"
                return await self._send(address, message) if known else None
            case "answer" | "agree" | "decline" if fields.keys() <= {"seq", "answer"}:
                seen = (await self._rest.call("get_handoff", {}, handoff=ref))["handoff"]
                if not seen["question"] or seen["question"]["seq"] != fields["seq"]:
                    return None  # A2A answers what is asked now, whatever was asked before
                answer = fields.get("answer")
                said = operation != "answer"
                message = {
                    "parts": [
                        {"text": answer or "so"}
                        if said or isinstance(answer, str)
                        else {"data": answer}
                    ],
                    "metadata": {URI: {"decision": operation}} if said else {},
                    "taskId": seen["id"],
                }
                return await self._send(f"/agents/{seen['to']}/", message)
            case "cancel" if not fields:
                seen = (await self._rest.call("get_handoff", {}, handoff=ref))["handoff"]
                await self._rpc(f"/agents/{seen['to']}/", "CancelTask", {"id": seen["id"]})
                return seen["id"]
            case _:
                return None

    async def _has_joined(self, agent: str) -> bool:
        async with self._session.get(f"/agents/{agent}/.well-known/agent-card.json") as response:
            return response.status == HTTPStatus.OK

    async def _send(self, path: str, message: View) -> str:
        sent = {
            "message": {"messageId": "m", "role": "ROLE_USER", **message},
            "configuration": {"returnImmediately": True, "historyLength": 0},
        }
        return (await self._rpc(path, "SendMessage", sent))["task"]["id"]

    async def _rpc(self, path: str, method: str, params: View) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self._session.post(path, json=call) as response:
            answer = await response.json(content_type=None)
        if "error" not in answer:
            return answer["result"]
        info, *more = answer["error"]["data"]
        wrong = [found for detail in more for found in detail["fieldViolations"]]
        problems = tuple(Problem(path=w["field"], message=w["description"]) for w in wrong)
        raise BY_CODE[info["metadata"]["code"]](answer["error"]["message"], errors=problems)

    async def deliveries(self, **how: Any) -> DeliveryStream:
        return await self._rest.deliveries(**how)

    async def close(self) -> None:
        await self._session.close()
        await self._rest.close()


class McpTransport:
    """An agent that has the tools, and uses them for whatever they can say; HTTP for the rest.

    What it is answered is the handoff as HTTP shows it: the stories read more than a tool tells.
    """

    def __init__(self, url: str, token: str) -> None:
        self._rest = HttpTransport(url + "/v1", FixedToken(token))
        headers = {
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-06-18",
        }
        self._session = aiohttp.ClientSession(url, headers=headers)
        self._offers = 0
        self._taken: set[str] = set()
        """Handoffs that were taken with the tools, which remember the attempt."""

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> View:
        told = await self._said(operation, dict(fields), handoff)
        if told is None:
            return await self._rest.call(operation, fields, handoff=handoff, name=name)
        found = re.search(r"handoff ([0-9a-f-]{36})", told)
        assert found, told
        if operation == "ack" and not fields.get("queued"):
            self._taken.add(found[1])
        elif operation in {"release", "block"}:
            self._taken.discard(found[1])
        answer = await self._rest.call("get_handoff", {}, handoff=found[1])
        if operation == "offer":
            warned = re.findall(r"^warning (\w+): (.*)$", told, re.MULTILINE)
            answer["handoff"]["warnings"] = [{"code": c, "detail": d} for c, d in warned]
            answer |= {"replayed": True} if told.startswith("stored before") else {}
        return answer

    async def _said(self, operation: str, fields: View, ref: str | None) -> str | None:
        """Say it with a tool; return what that answered. None: no tool has words for it."""
        if operation == "offer":
            offer = self._offer(fields)
            return None if offer is None else await self._use("hand_off", offer)
        if ref is None:
            return None
        if operation in {"answer", "agree", "decline"}:
            seen = (await self._rest.call("get_handoff", {}, handoff=ref))["handoff"]
            asked = seen["question"]
            if not asked or asked["seq"] != fields.pop("seq", None):
                return None  # a tool answers what is asked now, whatever was asked before
            if operation != "answer":
                fields["agree"] = operation == "agree"
            known = fields.keys() <= {"answer", "agree", "reason"}
            return await self._use("answer", {"handoff": ref, **fields}) if known else None
        attempt = fields.pop("attempt", None)
        if attempt is not None:
            seen = (await self._rest.call("get_handoff", {}, handoff=ref))["handoff"]
            if seen["id"] not in self._taken or seen["attempt"] != attempt:
                return None  # no tool names an attempt: it is the one that it was given
        said = _said_of_work(operation, fields, held=attempt is not None)
        return None if said is None else await self._use(said[0], {"handoff": ref, **said[1]})

    def _offer(self, fields: View) -> View | None:
        legs, steps = fields.get("then", []), fields.get("escalation", [])
        speakable = (
            fields.keys() <= MCP_TERMS
            and isinstance(fields.get("payload", {}), dict)
            and all(leg.keys() <= {"to", "capability", "title"} for leg in legs)
            and all(step.keys() <= {"when", "after", "notify"} for step in steps)
        )
        if not speakable:
            return None
        self._offers += 1
        # The tool wants a title. Where a story says none, two offers are two all the same.
        said = {"title": f"Offer {self._offers}", **fields}
        return {MCP_NAMES.get(name, name): value for name, value in said.items()}

    async def _use(self, tool: str, arguments: View) -> str:
        call: View = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        call["params"] = {"name": tool, "arguments": arguments}
        async with self._session.post("/mcp", json=call) as response:
            result = (await response.json())["result"]
        text: str = result["content"][0]["text"]
        if not result["isError"]:
            return text
        ours = {argument: field for field, argument in MCP_NAMES.items()}
        quoted = [json.loads(line) for line in text.splitlines() if line[:1] in {'"', "{"}]
        found = [(str(q["path"]), str(q["message"])) for q in quoted if not isinstance(q, str)]
        wrong = [Problem(path=ours.get(path, path), message=why) for path, why in found]
        detail = next((q for q in quoted if isinstance(q, str)), text)
        raise BY_CODE[text.partition(":")[0]](detail, errors=tuple(wrong))

    async def deliveries(self, **how: Any) -> DeliveryStream:
        return await self._rest.deliveries(**how)

    async def close(self) -> None:
        await self._session.close()
        await self._rest.close()


def _said_of_work(operation: str, fields: View, *, held: bool) -> tuple[str, View] | None:
    """Return the tool that says a command about work, and its arguments; None: there is none."""
    told: View
    match operation:
        case "ack" if not held and fields.keys() <= {"status", "eta", "next_update"}:
            return "ack", fields
        case "ack" if not held and fields.keys() <= {"queued", "status", "eta", "next_update"}:
            del fields["queued"]
            return "ack", {"decision": "queue", **fields}
        case "reject" if not held and fields.keys() <= {"reason"}:
            return "ack", {"decision": "reject", **fields}
        case "counter" if not held and fields.keys() <= {"deadline", "reason"}:
            return "ack", {"decision": "counter", **fields}
        case "cancel" if fields.keys() <= {"reason"}:
            told = {"status": "cancelled", "text": fields.get("reason")}
        case "update" if held and fields.keys() <= {"status", "eta", "next_update"}:
            told = {**fields, "status": "working", "text": fields.get("status")}
        case "complete" if held and fields.keys() == {"result"} and fields["result"] is not None:
            told = {"status": "done", **fields}
        case "fail" if held and fields.keys() <= {"reason", "retryable"}:
            told = {"status": "failed", "text": fields.pop("reason", None), **fields}
        case "release" if held and fields.keys() <= {"reason", "checkpoint"}:
            told = {"text": fields.get("reason"), "result": fields.get("checkpoint")}
            told |= {"status": "released"}
        case "block" if held and (fields.pop("park", False) or "checkpoint" in fields):
            told = {"result": fields.pop("checkpoint", None), "ask": fields.pop("to", None)}
            told |= {"status": "need_help", **fields}
        case _:
            return None
    return "update", {name: value for name, value in told.items() if value is not None}


class Office:
    """A relay, its clock, and a way in for every agent."""

    def __init__(self, door: str, folder: Path) -> None:
        self.clock = FakeClock()
        self.door = door
        self._folder = folder
        self._stack = AsyncExitStack()
        self._relay: Relay | None = None
        self._url = ""
        self._members: dict[tuple[str, str], _Member] = {}

    @property
    def relay(self) -> Relay:
        assert self._relay is not None, "the relay is down"
        return self._relay

    async def open(self) -> None:
        """Bring the relay up, on the database as it was left."""
        self._relay = await self._stack.enter_async_context(
            app.open_relay(self._folder / "team.db", home=self._folder, clock=self.clock)
        )
        if self.door != "in-process":
            self._url = await self._stack.enter_async_context(app.listening(self._relay))
        await self.person()

    async def close(self) -> None:
        """Take the relay down."""
        for member in self._members.values():
            await member.transport.close()
        self._members.clear()
        self._relay = None
        await self._stack.aclose()

    async def restart(self, *, down_ms: int = 0) -> None:
        """Take the relay down, let time pass, bring it up again."""
        await self.close()
        self.clock.advance(down_ms)
        await self.open()

    async def keep_copy(self) -> None:
        """Keep a copy of the database as it is now; the relay is down meanwhile."""
        await self.close()
        shutil.copy(self._folder / "team.db", self._folder / "older.db")
        await self.open()

    async def put_back(self) -> None:
        """Put the copy in the place of the database, as a person does with `cp`."""
        await self.close()
        for suffix in ("-wal", "-shm"):
            (self._folder / f"team.db{suffix}").unlink(missing_ok=True)
        shutil.copy(self._folder / "older.db", self._folder / "team.db")
        await self.open()

    async def join(self, name: str, *, role: str = "agent", team: str = "default") -> Member:
        """Return `name` at this story's door."""
        key = (team, name)
        if key not in self._members:
            if team != "default":
                await self.relay.ensure_team(team)
            token = f"nd_{team}_{name}_{role}_secret"
            await self.relay.ensure_token(team, agent=name, role=role, secret=token)
            self._members[key] = _Member(name, await self._transport(token))
        return self._members[key]

    async def enter(self, secret: str) -> Member:
        """Return whoever `secret` lets in, at this story's door."""
        member = _Member(secret[:8], await self._transport(secret))
        self._members["entered", str(len(self._members))] = member
        return member

    async def _transport(self, token: str) -> Transport:
        if self.door == "in-process":
            return InProcessTransport(self.relay, await self.relay.authenticate(token))
        if self.door == "http":
            return HttpTransport(self._url + "/v1", FixedToken(token))
        if self.door == "a2a":
            return A2ATransport(self._url, token)
        if self.door == "mcp":
            return McpTransport(self._url, token)
        channel = self._url.replace("http", "ws", 1) + "/v1/channel"
        # A relay that is there is waited for, however long this process is kept from running.
        return WebSocketTransport(channel, FixedToken(token), first_seconds_max=PATIENCE_SECONDS)

    async def person(self) -> Member:
        """Return the person `me`, who may do what an operator may."""
        return await self.join("me", role="operator")

    async def pass_time(self, ms: int, *, then: Expected, of: View | str) -> View:
        """Move the clock and return the handoff once the relay has done what `then` expects."""
        self.clock.advance(ms)
        return await self.see(of, then)

    def start(self, work: Awaitable[View]) -> asyncio.Future[View]:
        """Begin something that waits, while the story goes on."""
        return asyncio.ensure_future(work)

    async def after(self, ms: int, waiting: Awaitable[View]) -> View:
        """Return what `waiting` answers once the clock has been moved past its patience."""
        task = self.start(waiting)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not task.done():
                await self.settled()
                self.clock.advance(ms)
            return await task

    async def settled(self) -> None:
        """Let whatever is under way come to rest, by asking the relay something behind it."""
        me = await self.person()
        for _ in range(3):
            await me("heartbeat")

    async def see(self, of: View | str, expected: Expected) -> View:
        """Return a handoff once it is as expected. Follows the log: nothing is polled."""
        me = await self.person()
        handoff_id = of if isinstance(of, str) else of["id"]
        after = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                view = (await me("get_handoff", handoff_id))["handoff"]
                if _is(view, expected):
                    return view
                page = await me("log", after=after, wait="60s", handoff_id=handoff_id)
                after = page["after"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tell a story over every door it applies to."""
    if "office" in metafunc.fixturenames:
        module, story = metafunc.definition.path.stem, metafunc.definition.name
        doors = [
            *DOORS,
            *(["a2a"] if module in A2A_STORIES else []),
            *(["mcp"] if module in MCP_STORIES and story not in NOT_OVER_MCP else []),
        ]
        metafunc.parametrize("office", doors, indirect=True)


@pytest.fixture
async def office(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Office]:
    monkeypatch.setattr(toolset, "HAND_OFF_SECONDS_MAX", PATIENCE_SECONDS)  # as with clients
    office = Office(request.param, tmp_path)
    await office.open()
    yield office
    await office.close()


@pytest.fixture
async def inbox_monitor(office: Office) -> Member:
    return await office.join("inbox_monitor")


@pytest.fixture
async def code_agent(office: Office) -> Member:
    return await office.join("code_agent")

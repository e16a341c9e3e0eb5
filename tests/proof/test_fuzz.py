"""Bad input in bulk, in small: the commands that do it, and what they must find out."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nodrop import app
from nodrop.app import SystemIds
from nodrop.model.errors import InvalidRequestError
from nodrop.relay.relay import Relay
from nodrop.servers.gate import Gate
from nodrop.servers.http.door import HTTPDoor
from nodrop.servers.listener.server import listen
from nodrop.servers.websocket.door import WebSocketDoor
from nodrop_proof.fuzz import decoders, guided, mutated
from nodrop_proof.fuzz.findings import Findings

pytestmark = pytest.mark.timeout(240)  # real processes, on a machine that does other things too

TOKEN = "nd_fuzzer"


# --- the decoders --------------------------------------------------------------------------------


def fed(targets: dict[str, decoders.Target] = decoders.TARGETS, *, runs: int = 8_000) -> Findings:
    return mutated.run(runs=runs, seed=7, progress=lambda _done, _of: None, targets=targets)


def test_decoders_read_or_refuse_whatever_they_are_given() -> None:
    findings = fed()
    assert findings.told == {}
    assert findings.targets == dict.fromkeys(decoders.TARGETS, 1_000)


@pytest.mark.parametrize("name", decoders.TARGETS)
def test_what_a_target_begins_with_is_taken_well(name: str) -> None:
    assert decoders.SEEDS[name]
    for data in decoders.SEEDS[name]:
        decoders.TARGETS[name](data)


def test_changes_reach_what_is_read_as_well_as_what_is_refused() -> None:
    outcomes = {name: set[str]() for name in decoders.TARGETS}

    def watched(name: str) -> decoders.Target:
        def target(data: bytes) -> None:
            try:
                decoders.TARGETS[name](data)
            except decoders.REFUSALS:
                outcomes[name].add("refused")
            else:
                outcomes[name].add("read")

        return target

    fed({name: watched(name) for name in decoders.TARGETS}, runs=2_000)
    never_refused = {"times"}  # which asks three readers, and is content with what they say
    assert {name for name, seen in outcomes.items() if len(seen) < 2} <= never_refused


@pytest.mark.parametrize("error", [KeyError, RecursionError, ValueError, AssertionError])
def test_a_decoder_that_raises_something_else_is_found_out(error: type[Exception]) -> None:
    def broken(data: bytes) -> None:
        decoders.offer(data)
        if b"null" in data:
            raise error

    findings = fed({"offer": broken}, runs=500)
    assert not findings.ok
    assert error.__name__ in findings.told["offer"]


def test_a_decoder_that_refuses_is_not() -> None:
    def strict(_data: bytes) -> None:
        raise InvalidRequestError("no")

    assert fed({"offer": strict}, runs=500).ok


if sys.platform == "linux" and sys.version_info < (3, 14):  # where there is an atheris to install

    def test_decoders_stand_what_a_fuzzer_finds_its_way_to() -> None:
        findings = guided.run(
            runs=2_000, seed=7, progress=lambda _done, _of: None, targets=("message", "times")
        )
        assert findings.told == {}
        assert findings.targets == {"message": 1_000, "times": 1_000}

    def test_what_a_fuzzer_finds_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "broken_child.py").write_text(BROKEN_CHILD, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        findings = guided.run(
            runs=2_000,
            seed=7,
            progress=lambda _done, _of: None,
            targets=("times",),
            child="broken_child",
        )
        assert not findings.ok
        assert "a defect" in findings.told["times"]


BROKEN_CHILD = """
import sys
import atheris

def broken(data):
    if b"h" in data:
        raise KeyError("a defect")

sys.argv.pop(1)
atheris.Setup(sys.argv, broken)
atheris.Fuzz()
"""


# --- HTTP ----------------------------------------------------------------------------------------


async def fuzz(folder: Path, *arguments: str) -> tuple[int, Any]:
    """Run the command; return its exit code and what it printed."""
    return await asyncio.to_thread(_fuzz, folder, *arguments)


def _fuzz(folder: Path, *arguments: str) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "nodrop.cli", "prove", "fuzz", "http", "--json", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        check=False,
    )
    assert list(folder.iterdir()) == [], "it leaves nothing behind"
    return done.returncode, json.loads(done.stdout)


async def test_requests_made_from_the_document_are_answered_as_it_says(tmp_path: Path) -> None:
    code, told = await fuzz(tmp_path, "--requests", "200", "--seed", "7")
    assert told["told"] == []
    assert (code, told["failures"], told["server_errors"], told["unanswered"]) == (0, 0, 0, 0)
    assert told["requests"] >= 200
    assert told["operations"] == 74
    assert told["answers"]["2xx"] > 20
    assert told["answers"]["4xx"] > 20


class Tampering:
    """CONTROL: a door whose answers to `offer` are changed on their way."""

    def __init__(self, door: ASGIApp, *, status: int | None, body: bytes | None) -> None:
        self._door = door
        self._status = status
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def tamper(message: Message) -> None:
            if message["type"] == "http.response.start":
                changed = {"headers": [(b"content-type", b"application/json")]}
                message = {**message, "status": self._status or message["status"], **changed}
            elif self._body is not None:
                message = {**message, "body": self._body}
            await send(message)

        tampered = scope["path"] == "/v1/handoffs" and scope["method"] == "POST"
        await self._door(scope, receive, tamper if tampered else send)


@asynccontextmanager
async def served(relay: Relay, http: ASGIApp) -> AsyncGenerator[str]:
    gate = Gate(http=http, websocket=WebSocketDoor(relay, new_id=SystemIds().new))
    async with listen(gate, host="127.0.0.1", port=0, frame_bytes_max=1_000_000) as url:
        yield url


CONTROLS: dict[str, tuple[int | None, bytes | None, str]] = {
    "answers 500": (500, None, "not_a_server_error"),
    "lies about its answers": (None, msgspec.json.encode({"handoff": 5}), "response_schema"),
}


@pytest.mark.parametrize(("status", "body", "check"), CONTROLS.values(), ids=CONTROLS)
async def test_a_relay_that_does_otherwise_is_found_out(
    tmp_path: Path, status: int | None, body: bytes | None, check: str
) -> None:
    home, empty = tmp_path / "home", tmp_path / "empty"
    empty.mkdir()
    async with app.open_relay(":memory:", home=home) as relay:
        await relay.ensure_token("default", agent="fuzzer", role="operator", secret=TOKEN)
        door = Tampering(HTTPDoor(relay), status=status, body=body)
        async with served(relay, door) as url:
            asked = ("--url", url, "--token", TOKEN, "--agent", "fuzzer", "--only", "offer")
            code, told = await fuzz(empty, *asked, "--requests", "40", "--seed", "7")
    assert code == 1
    assert any(check in what for what in told["told"])
    assert (told["server_errors"] > 0) == (status == 500)

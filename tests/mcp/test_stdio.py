"""`nodrop mcp` as a coding agent starts it: a process of its own, on its own standard streams."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

END_SECONDS_MAX = 20
NODROP = [sys.executable, "-m", "nodrop.cli"]
AGAIN = "with exactly the same arguments"
TASK = {"to": "coder", "title": "Fix the login button", "payload": {"file": "login.ts"}}


def environment(home: Path) -> dict[str, str]:
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    return inherited | {"NODROP_HOME": str(home)}


@contextmanager
def relay_up(home: Path, port: int = 0) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """A relay as a user starts it; its process, and its port."""
    command = [*NODROP, "up", "--port", str(port), "--json"]
    with subprocess.Popen(
        command, env=environment(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as relay:
        try:
            assert relay.stdout is not None
            url = json.loads(relay.stdout.readline())["url"]
            yield relay, int(url.rpartition(":")[2])
        finally:
            relay.send_signal(signal.SIGKILL)
            relay.wait(END_SECONDS_MAX)


def served(home: Path, agent: str) -> Client:
    arguments = [*NODROP[1:], "mcp", "--agent", agent]
    parameters = StdioServerParameters(
        command=NODROP[0], args=arguments, env=environment(home), cwd=home
    )
    return Client(stdio_client(parameters))


async def use(client: Client, tool: str, /, **arguments: Any) -> str:
    """Return what a tool says; one that had no answer in time is used again, as it says itself."""
    text, is_refused = await tried(client, tool, arguments)
    while is_refused and AGAIN in text:
        text, is_refused = await tried(client, tool, arguments)
    assert not is_refused, text
    return text


async def refused(client: Client, tool: str, /, **arguments: Any) -> str:
    text, is_refused = await tried(client, tool, arguments)
    assert is_refused, text
    return text


async def tried(client: Client, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert content.type == "text"
    return content.text, result.is_error


@pytest.mark.timeout(180)
async def test_two_agents_hand_work_to_each_other_while_the_relay_is_killed(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        first = stack.enter_context(relay_up(tmp_path))
        planner = await stack.enter_async_context(served(tmp_path, "planner"))
        coder = await stack.enter_async_context(served(tmp_path, "coder"))
        stored = await use(planner, "hand_off", **TASK)
        handoff = stored.split("handoff ")[1][:36]
        assert handoff in await use(coder, "inbox")
        await use(coder, "ack", handoff=handoff)

        process, port = first
        process.kill()
        process.wait(END_SECONDS_MAX)
        down = await refused(planner, "hand_off", **{**TASK, "title": "While it is down"})
        assert "Whether it was stored is not known" in down
        stack.enter_context(relay_up(tmp_path, port))

        again = await use(planner, "hand_off", **TASK)
        assert again.startswith("stored before, and not again (replayed)")
        await use(coder, "update", handoff=handoff, status="done", result={"commit": "abc"})
        assert '{"result": {"commit": "abc"}}' in await use(planner, "wait", handoff=handoff)

        back = (await use(coder, "hand_off", to="planner", title="Review")).split("handoff ")[1][
            :36
        ]
        await use(planner, "ack", handoff=back)
        await use(planner, "update", handoff=back, status="done", result="approved")
        assert '{"result": "approved"}' in await use(coder, "wait", handoff=back)

        log = await use(planner, "read_log", limit=50)
        assert log.count("handoff.completed.v1") == 2
        assert log.count("handoff.offered.v1") == 2


async def test_a_database_of_ones_own_needs_no_relay(tmp_path: Path) -> None:
    arguments = [*NODROP[1:], "mcp", "--agent", "planner", "--url", str(tmp_path / "team.db")]
    parameters = StdioServerParameters(
        command=NODROP[0], args=arguments, env=environment(tmp_path), cwd=tmp_path
    )
    async with Client(stdio_client(parameters)) as planner:
        stored = await use(planner, "hand_off", **TASK)
        assert stored.startswith(("stored: handoff ", "stored before"))


def spoken(home: Path, lines: list[str], answers: int) -> list[dict[str, Any]]:
    """Return what `nodrop mcp` answers to lines on its standard input."""
    with subprocess.Popen(
        [*NODROP, "mcp"],
        cwd=home, env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as agent:  # fmt: skip
        assert agent.stdin is not None
        assert agent.stdout is not None
        try:
            agent.stdin.write("".join(f"{line}\n" for line in lines))
            agent.stdin.flush()
            return [json.loads(agent.stdout.readline()) for _ in range(answers)]
        finally:
            agent.kill()


HANDSHAKE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "old", "version": "1"},
        },
    }
)


def test_bad_lines_are_answered_with_the_protocols_errors_and_end_nothing(tmp_path: Path) -> None:
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "eat"}}
    unknown = {"jsonrpc": "2.0", "id": 4, "method": "tools/eat"}
    lines = [HANDSHAKE, "{", "[1]", '{"id": 2}', json.dumps(call), json.dumps(unknown)]
    answers = spoken(tmp_path, lines, 6)
    by_id = {answer["id"]: answer for answer in answers if answer.get("id")}
    assert by_id[1]["result"]["protocolVersion"] == "2024-11-05"
    assert by_id[3]["error"]["code"] == -32602
    assert by_id[3]["error"]["data"]["code"] == "not_found"
    assert by_id[4]["error"]["code"] == -32601
    lost = [answer["error"]["code"] for answer in answers if not answer.get("id")]
    assert sorted(lost) == [-32700, -32600, -32600]


def test_a_name_that_no_relay_takes_ends_it_before_it_serves(tmp_path: Path) -> None:
    done = subprocess.run(
        [*NODROP, "mcp", "--agent", "a b"],
        env=environment(tmp_path), cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "letters, digits, _ . - (at most 64)" in done.stderr
    assert "--agent NAME" in done.stderr


def test_without_the_extra_the_command_says_which_to_install(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError('no module named mcp')\n")
    done = subprocess.run(
        [*NODROP, "mcp"],
        env=environment(tmp_path) | {"PYTHONPATH": str(tmp_path)}, cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'nodrop[relay]'" in done.stderr

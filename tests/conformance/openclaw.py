"""OpenClaw for real: relay → OpenClaw over A2A → relay over MCP, with a scripted model.

Installs OpenClaw and the node it needs beside, unless a folder has them already (--folder); writes
down what was said with --record. What it says is replayed by `tests/a2a/test_openclaw.py`.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from front import Front, write

import nodrop
from nodrop import app
from nodrop.relay.relay import operator_of
from nodrop.servers.inprocess import InProcessTransport
from nodrop.servers.listener.server import listen

NODE, OPENCLAW = "node@24", "openclaw@2026.9.6"
INSTALL_SECONDS_MAX = 1_200
START_SECONDS_MAX = 180
ROUND_TRIP_SECONDS_MAX = 240
WARM_UP_SECONDS = 20
PEER_TOKEN, GATEWAY_TOKEN = "peer-secret-of-the-relay", "gateway-secret"

lawyer = nodrop.Agent("lawyer", description="Reads contracts")


@lawyer.handler
async def read(task: nodrop.Task) -> str:
    """Read a contract."""
    return f"read: {task.payload['text']}"


class Model:
    """A model that hands off, waits, and repeats what came of it."""

    def decide(self, body: Any) -> dict[str, Any]:
        """Return what it says next."""
        results = [m for m in body["messages"] if m["role"] == "tool"]
        tools = [t["function"]["name"] for t in body.get("tools", [])]
        named = {name.rpartition("__")[2]: name for name in tools}
        if not results and "hand_off" in named:
            asked = {"to": "lawyer", "title": "Read the NDA", "payload": {"text": "the NDA"}}
            return {"tool": named["hand_off"], "arguments": asked}
        found = re.search(r"handoff ([0-9a-f-]{36})", json.dumps(results))
        if len(results) == 1 and found and "wait" in named:
            return {"tool": named["wait"], "arguments": {"handoff": found[1], "seconds": 20}}
        last = json.dumps(results[-1]["content"]) if results else "no tools here"
        return {"content": f"OpenClaw was told: {last}"}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer as an OpenAI-compatible server does."""
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        kind = b"application/json" if scope["method"] == "GET" else b"text/event-stream"
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]}
        await send(start)
        if scope["method"] == "GET":
            await send({"type": "http.response.body", "body": b'{"data": [{"id": "scripted"}]}'})
            return
        said = self.decide(json.loads(body))
        delta: dict[str, Any] = {"role": "assistant"}
        if "content" in said:
            delta["content"] = said["content"]
        else:
            function = {"name": said["tool"], "arguments": json.dumps(said["arguments"])}
            call = {"index": 0, "id": f"c{len(body)}", "type": "function", "function": function}
            delta["tool_calls"] = [call]
        ended = "stop" if "content" in said else "tool_calls"
        for said_now, reason in ((delta, None), ({}, ended)):
            choice: dict[str, Any] = {"index": 0, "delta": said_now, "finish_reason": reason}
            chunk: dict[str, Any] = {
                "id": "x",
                "object": "chat.completion.chunk",
                "created": 0,
                "model": "scripted",
                "choices": [choice],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
            data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def configuration(*, port: int, model: str, mcp: str, token: str) -> dict[str, Any]:
    """Return what OpenClaw is to know."""
    scripted = {
        "id": "scripted",
        "name": "Scripted",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 200_000,
        "maxTokens": 4_096,
    }
    provider = {
        "baseUrl": f"{model}/v1",
        "apiKey": "none",
        "api": "openai-completions",
        "models": [scripted],
    }
    return {
        "gateway": {
            "mode": "local",
            "port": port,
            "bind": "loopback",
            "auth": {"mode": "token", "token": GATEWAY_TOKEN},
        },
        "agents": {"defaults": {"model": {"primary": "scripted/scripted"}}},
        "models": {"mode": "merge", "providers": {"scripted": provider}},
        "channels": {
            "a2a": {
                "enabled": True,
                "rateLimitPerMinute": 120,
                "peers": {"relay": {"token": PEER_TOKEN}},
            }
        },
        "mcp": {
            "servers": {
                "nodrop": {
                    "url": f"{mcp}/mcp",
                    "transport": "streamable-http",
                    "headers": {"Authorization": f"Bearer {token}"},
                    "requestTimeoutMs": 60_000,
                }
            }
        },
        "tools": {"toolSearch": False},
    }


def made_in(home: Path) -> str:
    """Return a folder for what is temporary."""
    folder = home / "temporary"
    folder.mkdir()
    return str(folder)


@asynccontextmanager
async def gateway(folder: Path, home: Path, settings: dict[str, Any]) -> AsyncGenerator[str]:
    """Run OpenClaw's gateway; yields its address once its card can be read."""
    state = home / "openclaw"
    state.mkdir()
    (state / "openclaw.json").write_text(json.dumps(settings), encoding="utf-8")
    port = settings["gateway"]["port"]
    node = next((folder / "node_modules").glob("node/bin/node*"))
    entry = folder / "node_modules" / "openclaw" / "openclaw.mjs"
    environment = {
        "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(state),
        "OPENCLAW_STATE_DIR": str(state),
        "OPENCLAW_CONFIG_PATH": str(state / "openclaw.json"),
        "OPENCLAW_NO_RESPAWN": "1",
        "TMPDIR": made_in(home),  # it keeps locks there, for all who share it
    }
    with (home / "gateway.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(str(node), str(entry), "gateway", "run", "--port", str(port)),
            env=environment,
            cwd=state,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(START_SECONDS_MAX), httpx.AsyncClient() as http:
            while process.returncode is None:
                with suppress(httpx.HTTPError):
                    if (await http.get(f"{url}/.well-known/agent-card.json")).status_code == 200:
                        break
                await asyncio.sleep(0.5)
        yield url
    except BaseException:
        sys.stderr.write((home / "gateway.log").read_text(errors="replace")[-4_000:])
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)


async def round_trip(folder: Path, record: Path | None) -> str:
    """Hand something to OpenClaw; return what came back."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        async with (
            app.open_relay(home / "team.db", home=home) as relay,
            app.listening(relay, a2a=app.A2A(home=home)) as url,
            listen(Model(), host=app.HOST, port=0, frame_bytes_max=10_000_000) as model,
        ):
            for name in ("lawyer", "planner", "openclaw"):
                await relay.ensure_token("default", agent=name, role="agent", secret=f"nd_{name}")
            to_relay = Front(url)
            async with listen(to_relay, host=app.HOST, port=0, frame_bytes_max=10_000_000) as mcp:
                settings = configuration(port=_free(), model=model, mcp=mcp, token="nd_openclaw")
                working = asyncio.create_task(lawyer.serve(url, token="nd_lawyer", grace=0))
                async with gateway(folder, home, settings) as claw:
                    to_claw = Front(claw)
                    between = listen(to_claw, host=app.HOST, port=0, frame_bytes_max=10_000_000)
                    async with between as place:
                        answer = await _handed_off(relay, place)
                lawyer.stop()
                await working
                if record is not None:
                    write(record, to_relay=to_relay.said, to_openclaw=to_claw.said)
                return answer


async def _handed_off(relay: Any, place: str) -> str:
    operator = InProcessTransport(relay, operator_of("default"))
    reach = {"a2a": place, "token": PEER_TOKEN, "private": True}
    await operator.call("set_reach", reach, name="openclaw")
    planner = InProcessTransport(relay, await relay.authenticate("nd_planner"))
    offer = {"to": "openclaw", "payload": {"text": "Please have the NDA read."}}
    outcome: dict[str, Any] = {}
    async with asyncio.timeout(ROUND_TRIP_SECONDS_MAX):
        while outcome.get("state") != "completed":
            # It shows its card before it can work, and then fails what it is asked.
            await asyncio.sleep(WARM_UP_SECONDS)
            handoff = (await planner.call("offer", offer))["handoff"]["id"]
            waited = await planner.call("get_handoff", {"wait": 100}, handoff=handoff)
            outcome = waited["handoff"]["outcome"] or {}
            sys.stdout.write(json.dumps(outcome, indent=1, ensure_ascii=False) + "\n")
    return str(outcome.get("result"))


def _free() -> int:
    import socket  # noqa: PLC0415  # for this alone

    with socket.socket() as found:
        found.bind((app.HOST, 0))
        return found.getsockname()[1]


def _install(folder: Path) -> None:
    """Install OpenClaw, with the node that it insists on."""
    path = f"{folder / 'node_modules' / 'node' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for package in (NODE, OPENCLAW):
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--silent", package],
            cwd=folder,
            env={**os.environ, "PATH": path},
            check=True,
            timeout=INSTALL_SECONDS_MAX,
        )


def main() -> int:
    """Return 0 if the lawyer's words came back through OpenClaw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where OpenClaw and node are installed")
    parser.add_argument("--record", type=Path, help="where to write down what was said")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = asked.folder or Path(made)
        if not (folder / "node_modules" / "openclaw").is_dir():
            if shutil.which("npm") is None:
                sys.stderr.write("npm is needed, and not found\n")
                return 2
            _install(folder)
        told = asyncio.run(round_trip(folder.resolve(), asked.record))
    return 0 if "read: the NDA" in told else 1


if __name__ == "__main__":
    sys.exit(main())

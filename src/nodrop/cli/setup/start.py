"""One start of the MCP server that was configured: whether it answers, and why not."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

SECONDS_MAX: Final = 30.0
"""As long as coding agents wait for a server to start."""
_LAST_LINES: Final = 3
_INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "nodrop-setup", "version": "1"},
    },
}


async def why_not(command: Sequence[str], *, seconds_max: float = SECONDS_MAX) -> str | None:
    """Start `command`, say hello to it and end it; return why it is no MCP server, or None."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror or error}"
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "it is a pipe"
    assert process.stderr is not None, "it is a pipe"
    try:
        async with asyncio.timeout(seconds_max):
            with suppress(ConnectionError):  # it has ended already, and said why
                process.stdin.write(json.dumps(_INITIALIZE).encode() + b"\n")
                await process.stdin.drain()
            answer = await process.stdout.readline()
            if answer:
                return None if _is_greeting(answer) else f"it answered {answer.decode()[:200]!r}"
            said = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
            return " ".join(line.strip() for line in said[-_LAST_LINES:]) or "it ended in silence"
    except TimeoutError:
        return f"it did not answer within {seconds_max:g} s"
    finally:
        process.stdin.close()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _is_greeting(line: bytes) -> bool:
    try:
        return "serverInfo" in json.loads(line)["result"]
    except (ValueError, KeyError, TypeError):
        return False

"""The agent of `agent.py` as a process of its own, for as long as somebody tests it."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
END_SECONDS_MAX = 20


@contextmanager
def standing(*arguments: str) -> Generator[str]:
    """Start the agent and the relay before it; yields the agent's address."""
    command = [sys.executable, str(HERE / "agent.py"), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None, "a pipe"
        assert process.stdout is not None, "a pipe"
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise SystemExit("the agent did not start")
            yield address
        finally:
            process.stdin.close()
            try:
                process.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()

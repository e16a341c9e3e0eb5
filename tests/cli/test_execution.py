import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli.handoffs.execution import GIVEN, Execution
from nodrop.client.endings import Fail
from nodrop.model.errors import StaleAttemptError, UnavailableError

pytestmark = pytest.mark.anyio

SECONDS_MAX = 20.0


class Task:
    """What a run sees of a delivery; `told` is what it said back."""

    def __init__(self, update_every: str = "30m") -> None:
        self.view: dict[str, Any] = {
            "id": "h1",
            "ref": "a/k",
            "correlation_id": "c1",
            "traceparent": f"00-{'1' * 32}-{'2' * 16}-01",
            "update_every": update_every,
            "payload": {"n": 1},
        }
        self.attempt = 2
        self.last_checkpoint: Any = {"seen": 3}
        self.steps: dict[str, Any] = {"open-ticket": "T-1"}
        self.answers: dict[str, Any] = {}
        self.told: list[str | None] = []
        self.refusals: list[Exception] = []
        self._told_more = asyncio.Condition()

    async def update(self, status: str | None = None) -> None:
        async with self._told_more:
            self.told.append(status)
            self._told_more.notify_all()
        if self.refusals:
            raise self.refusals.pop(0)

    async def until_told(self, last: str = "", *, times: int = 1) -> None:
        """Return once it was told so many times, the last time with these last words."""
        async with asyncio.timeout(SECONDS_MAX), self._told_more:
            await self._told_more.wait_for(
                lambda: len(self.told) >= times and str(self.told[-1]).endswith(last)
            )


def execution(command: str, **changes: Any) -> Execution:
    settings: dict[str, Any] = {
        "command": command,
        "agent": "b",
        "url": "http://relay",
        "home": "/nowhere",
        "environment": dict(os.environ),
        "grace_seconds": 0.2,
    }
    return Execution(**(settings | changes))


async def run(command: str, task: Task | None = None, **changes: Any) -> Any:
    async with asyncio.timeout(SECONDS_MAX):
        return await execution(command, **changes).run(task or Task())


def python(code: str) -> str:
    return f'{sys.executable} -c "{code}"'


def runs(pid: int) -> bool:
    """Whether a process is there; one that its parent has yet to bury does not count."""
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


async def gone(pid: int) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while runs(pid):  # noqa: ASYNC110  # the end of a stranger is no event
            await asyncio.sleep(0.01)


async def test_the_command_gets_the_delivery_and_its_ids() -> None:
    got = await run(
        python(
            "import json, os, sys;"
            "ids = {k: v for k, v in os.environ.items() if k.startswith(('NODROP_', 'TRACE'))};"
            "print(json.dumps({'stdin': json.load(sys.stdin), 'ids': ids}))"
        )
    )
    assert got["stdin"] == {
        "handoff": Task().view,
        "attempt": 2,
        "checkpoint": {"seen": 3},
        "steps": {"open-ticket": "T-1"},
        "answers": {},
    }
    expected = {
        "NODROP_HANDOFF_ID": "h1",
        "NODROP_ATTEMPT": "2",
        "NODROP_REF": "a/k",
        "NODROP_CORRELATION_ID": "c1",
        "NODROP_AGENT": "b",
        "NODROP_URL": "http://relay",
        "NODROP_HOME": "/nowhere",
        "TRACEPARENT": Task().view["traceparent"],
    }
    assert {name: got["ids"].get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("""echo '{"a": [1]}'""", {"a": [1]}),
        ("echo plain text", "plain text"),
        ("true", None),
        ("echo 123456789012345678901234567890", "123456789012345678901234567890"),
        ("echo 1e999", "1e999"),
        ("exec 0<&-; echo did not read", "did not read"),
    ],
)
async def test_stdout_is_the_result(command: str, result: Any) -> None:
    assert await run(command) == result


@pytest.mark.parametrize(
    ("command", "reason", "retryable"),
    [
        ("echo first >&2; echo no such branch >&2; exit 3", "first\nno such branch", False),
        ("exit 4", "exit 4", False),
        ("echo later >&2; exit 75", "later", True),
        ("kill -9 $$", "SIGKILL", False),
        ("kill -35 $$", "signal 35", False),
    ],
)
async def test_another_exit_is_a_failure(command: str, reason: str, *, retryable: bool) -> None:
    with pytest.raises(Fail) as failed:
        await run(command)
    assert (failed.value.reason, failed.value.retryable) == (reason, retryable)
    assert failed.value.code == "command_failed"


async def test_only_the_end_of_the_complaints_is_the_reason() -> None:
    with pytest.raises(Fail) as failed:
        await run(python("import sys; sys.exit('x' * 100_000 + 'the end')"))
    assert failed.value.reason.endswith("the end")
    assert len(failed.value.reason) <= 2_000


async def test_a_flood_of_output_ends_the_command() -> None:
    with pytest.raises(Fail) as failed:
        await run("yes")
    assert failed.value.code == "too_large"


async def test_a_command_that_runs_too_long_is_ended_and_may_be_tried_again() -> None:
    with pytest.raises(Fail) as failed:
        await run("sleep 60", timeout_seconds=0.1)
    assert (failed.value.code, failed.value.retryable) == ("timed_out", True)
    assert failed.value.reason == "the command ran longer than 100 ms"


async def test_what_a_command_leaves_running_is_ended(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    assert await run(f"sleep 60 & echo $! > {left}; echo done") == "done"
    await gone(int(left.read_text()))


async def test_a_cancelled_run_leaves_no_process_even_if_it_ignores_the_request(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    task = Task(update_every="100ms")
    # The shell and its child both ignore SIGTERM.
    command = f"trap '' TERM; sleep 60 & echo $$ $! > {pids}; echo deaf >&2; wait; sleep 60"
    running = asyncio.ensure_future(run(command, task))
    await task.until_told("deaf")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for pid in pids.read_text().split():
        await gone(int(pid))


async def test_a_cancelled_run_may_clean_up(tmp_path: Path) -> None:
    mark = tmp_path / "cleaned"
    task = Task(update_every="100ms")
    command = f"trap 'touch {mark}; exit 0' TERM; echo ready >&2; while :; do sleep 0.05; done"
    running = asyncio.ensure_future(run(command, task, grace_seconds=SECONDS_MAX))
    await task.until_told("ready")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert mark.exists()


async def test_the_promise_is_kept_with_the_commands_last_words(tmp_path: Path) -> None:
    task = Task(update_every="600ms")
    go = tmp_path / "go"
    os.mkfifo(go)
    running = asyncio.ensure_future(run(f"echo reproducing >&2; cat {go} > /dev/null", task))
    await task.until_told(": reproducing", times=2)
    await asyncio.to_thread(go.write_text, "go")
    await running
    assert str(task.told[-1]).startswith("running for ")


async def test_a_relay_that_is_away_does_not_end_the_work(tmp_path: Path) -> None:
    task = Task(update_every="100ms")
    task.refusals = [UnavailableError()]
    go = tmp_path / "go"
    os.mkfifo(go)
    running = asyncio.ensure_future(run(f"cat {go}", task))
    await task.until_told(times=2)
    await asyncio.to_thread(go.write_text, "result")
    assert await running == "result"


async def test_losing_the_delivery_ends_the_command() -> None:
    task = Task(update_every="100ms")
    task.refusals = [StaleAttemptError()]
    with pytest.raises(StaleAttemptError):
        await run("sleep 60", task)


async def test_a_command_is_given_every_variable_that_is_documented() -> None:
    shown = await run("env", environment={"PATH": os.environ["PATH"]})
    given = {line.partition("=")[0] for line in shown.splitlines()}
    assert {name for name in given if name.startswith(("NODROP_", "TRACE"))} == set(GIVEN)

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too

SECONDS_MAX = 60
WAIT = "40s"


class Worker:
    """`nodrop work`, and what it prints, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        self.lines = iter(process.stderr.readline, "")

    def until(self, words: str) -> str:
        seen: list[str] = []
        for line in self.lines:
            seen.append(line)
            if words in line:
                return line
        raise AssertionError(f"{words!r} is not in {''.join(seen)}")


@contextmanager
def working(
    home: Path, name: str, command: str, *options: str, heartbeat: float = 3.0
) -> Generator[Worker]:
    """Have `nodrop work` run; it is taken for dead when it was silent for three heartbeats."""
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "nodrop.cli",
            "work",
            name,
            "--exec",
            command,
            "--heartbeat",
            str(heartbeat),
            *options,
        ],
        env=inherited | {"NODROP_HOME": str(home), "NO_COLOR": "1", "PATH": path},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


def test_any_command_is_an_agent(nodrop: Run, home: Path) -> None:
    command = (
        'python3 -c \'import json,sys; print(json.load(sys.stdin)["handoff"]["payload"]["n"] + 1)\''
    )
    with working(home, "adder", command) as worker:
        worker.until("adder works for")
        sent = nodrop("send", "--to", "adder", "--payload", '{"n": 41}', "--wait", WAIT)
        assert (sent.code, sent.out) == (0, "42\n")
        assert "attempt 1" in worker.until(" started: ")
        worker.until(" completed in ")


def test_a_failing_command_fails_the_handoff_with_its_last_words(nodrop: Run, home: Path) -> None:
    with working(home, "breaker", "echo no such branch >&2; exit 3") as worker:
        sent = nodrop("send", "--to", "breaker", "--wait", WAIT)
        assert (sent.code, sent.out) == (1, "")
        assert "failed by breaker (command_failed: no such branch)" in sent.err
        assert "no such branch" in worker.until(" failed in ")


def test_exit_75_is_tried_again(nodrop: Run, home: Path, tmp_path: Path) -> None:
    offer = tmp_path / "offer.json"
    offer.write_text('{"to": "again", "backoff": {"first": "1ms"}}')
    mark = tmp_path / "mark"
    command = f"test -e {mark} && echo $NODROP_ATTEMPT || {{ touch {mark}; exit 75; }}"
    with working(home, "again", command) as worker:
        sent = nodrop("send", offer, "--wait", WAIT)
        assert (sent.code, sent.out) == (0, "2\n")
        worker.until("the relay may try it again")
        worker.until(" completed in ")


def test_a_command_can_report_its_own_progress(nodrop: Run, home: Path) -> None:
    command = 'nodrop update "$NODROP_REF" "half way" && echo done'
    with working(home, "reporter", command):
        sent = nodrop("send", "--to", "reporter", "--key", "progress", "--wait", WAIT)
        assert (sent.code, sent.out) == (0, "done\n")
    entries = nodrop("log", "--handoff", "me/progress", "--json").out.splitlines()
    updates = [e for e in map(json.loads, entries) if e["type"] == "handoff.updated.v1"]
    assert [entry["body"]["status"] for entry in updates] == ["half way"]


def test_a_cancelled_handoff_ends_its_command(nodrop: Run, home: Path, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    os.mkfifo(told)
    with working(home, "sleeper", f"echo $$ > {told}; sleep 60") as worker:
        nodrop("send", "--to", "sleeper", "--key", "endless")
        worker.until(" started: ")
        pid = int(told.read_text())
        nodrop("wait", "me/endless", "--until", "acknowledged", "--for", WAIT)
        meddled = nodrop("done", "me/endless", "--agent", "sleeper")
        assert meddled.code == 2
        assert "a process of sleeper is connected and may hold attempt 1" in meddled.err
        nodrop("cancel", "me/endless")
        # Told by the next heartbeat at the latest.
        worker.until(" stopped: ")
        assert not runs(pid)


def test_a_killed_worker_loses_nothing(nodrop: Run, home: Path) -> None:
    with working(home, "mortal", "sleep 60", heartbeat=1.0) as worker:
        nodrop("send", "--to", "mortal", "--key", "survivor", "--title", "T")
        worker.until(" started: ")
        worker.process.kill()
    with working(home, "mortal", "echo attempt $NODROP_ATTEMPT"):
        ended = nodrop("wait", "me/survivor", "--for", WAIT)
        assert (ended.code, ended.out) == (0, "attempt 2\n")


def test_a_worker_that_is_asked_to_stop_finishes_what_runs(
    nodrop: Run, home: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    with working(home, "polite", f"cat {go}") as worker:
        nodrop("send", "--to", "polite", "--key", "last")
        worker.until(" started: ")
        worker.process.send_signal(signal.SIGTERM)
        go.write_text("finished")
        worker.until(" completed in ")
        assert worker.process.wait(SECONDS_MAX) == 0
    assert nodrop("wait", "me/last").out == "finished\n"


def test_a_capability_is_published(nodrop: Run, home: Path) -> None:
    options = ("--capability", "shout", "--timeout", "90s", "--concurrency", "2")
    with working(home, "shouter", "echo HEY", *options) as worker:
        worker.until("works for")
        sent = nodrop("send", "--to", "shouter", "--capability", "shout", "--wait", WAIT)
        assert sent.out == "HEY\n"
        [agent] = nodrop("agents", "--capability", "shout", "--json").json["agents"]
    [capability] = agent["manifest"]["capabilities"]
    assert (capability["name"], capability["timeout_seconds"]) == ("shout", 90)


def test_a_timeout_that_is_no_duration_is_refused(nodrop: Run) -> None:
    refused = nodrop("work", "x", "--exec", "true", "--timeout", "soon", "--json")
    assert refused.code == 2
    assert [problem["path"] for problem in refused.json["errors"]] == ["--timeout"]


def runs(pid: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False

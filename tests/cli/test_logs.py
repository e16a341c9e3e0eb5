"""The log of `nodrop up` and `nodrop work`: level, form, place, and what never gets into it."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp.test_utils import unused_port

from nodrop.cli import logs
from nodrop.cli.logs import LogFormat, LogLevel, Logs
from nodrop.client.auth.credentials import CredentialsFile
from nodrop.model.errors import InvalidRequestError

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too

SECONDS_MAX = 60
SECRET = "hunter2-of-the-payload"


def environment(home: Path) -> dict[str, str]:
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    return inherited | {"NODROP_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "160"}


@contextmanager
def running(home: Path, *arguments: str) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "nodrop.cli", *arguments],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def stopped(process: subprocess.Popen[str]) -> str:
    """Ask a program to end; return the rest of its log."""
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0
    return log


def until(process: subprocess.Popen[str], words: str) -> Sequence[str]:
    """Read the log until a line has these words; return the lines so far."""
    assert process.stderr is not None
    seen: list[str] = []
    for line in iter(process.stderr.readline, ""):
        seen.append(line)
        if words in line:
            return seen
    raise AssertionError(f"{words!r} is not in {''.join(seen)}")


def test_a_worker_whose_relay_is_not_there_says_so_and_does_not_claim_to_work(
    tmp_path: Path,
) -> None:
    address = f"http://127.0.0.1:{unused_port()}"
    with running(tmp_path, "work", "x", "--exec", "true", "--url", address) as worker:
        told = until(worker, "trying again in")
        told = [*told, stopped(worker)]
    assert f"WARNING nodrop.client: cannot connect to {address}: Connection refused" in told[-2]
    assert "works for" not in "".join(told)


def test_lines_are_json_where_that_is_wanted_and_those_below_the_level_are_not_there(
    tmp_path: Path,
) -> None:
    with running(tmp_path, "up", "--port", "0", "--log-format", "json") as relay:
        until(relay, "serving")
        told = stopped(relay)
    [last] = [json.loads(line) for line in told.splitlines()]
    assert last.keys() == {"time", "level", "logger", "message"}
    assert (last["level"], last["logger"]) == ("info", "nodrop.relay")
    assert last["message"] == "stopping: a signal asked for it"
    with running(tmp_path, "up", "--port", "0", "--log-level", "warning") as relay:
        assert relay.stdout is not None
        assert "is up at" in relay.stdout.readline()
        assert stopped(relay) == ""


def test_a_file_takes_the_log_in_the_place_of_stderr(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "relay.log"
    with running(tmp_path, "up", "--port", "0", "--log-file", str(file)) as relay:
        assert relay.stdout is not None
        assert "is up at" in relay.stdout.readline()
        assert stopped(relay) == ""
    assert "INFO nodrop.relay: serving" in file.read_text(encoding="utf-8")
    assert file.stat().st_mode & 0o777 == 0o600


def test_no_secret_and_no_payload_is_in_any_line_at_debug(tmp_path: Path) -> None:
    debug = ("--log-level", "debug")
    with running(tmp_path, "up", "--port", "0", "--access-log", *debug) as relay:
        told = list(until(relay, "serving"))
        command = "cat >/dev/null; echo hunter2-of-the-result"
        with running(tmp_path, "work", "coder", "--exec", command, *debug) as worker:
            said = list(until(worker, "works for"))
            sent = subprocess.run(
                [
                    *(sys.executable, "-m", "nodrop.cli", "send", "--to", "coder"),
                    *("--title", "hunter2-of-the-title", "--payload", json.dumps({"x": SECRET})),
                    *("--wait", "40s"),
                ],
                env=environment(tmp_path),
                capture_output=True,
                text=True,
                check=True,
                timeout=SECONDS_MAX,
            )
            said += [*until(worker, "completed in"), stopped(worker)]
        told.append(stopped(relay))
    assert sent.stdout == "hunter2-of-the-result\n"
    everything = "".join(said + told)
    assert " DEBUG nodrop.relay: " in everything
    assert "nodrop.access: 127.0.0.1 " in everything
    assert "hunter2" not in everything
    credentials = CredentialsFile(tmp_path).read()
    tokens = [credentials.operator, *credentials.agents.values()]
    assert len(tokens) >= 2
    # A part of one is bad enough: some libraries log frames, and shorten them.
    assert [token for token in tokens if token is None or token[:10] in everything] == []


def test_a_log_file_rotates_and_a_line_cannot_forge_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES_MAX", 2_000)
    file = tmp_path / "x.log"
    Logs(level=LogLevel.INFO, form=LogFormat.TEXT, file=file).begin()
    for _ in range(200):
        logging.getLogger("nodrop.worker").info("%s", "a\n2026 CRITICAL nodrop: forged\x1b[2J")
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == ["x.log", *(f"x.log.{n}" for n in range(1, 6))]
    assert all(f.stat().st_size <= 2_000 for f in files)
    for line in file.read_text(encoding="utf-8").splitlines():
        assert " INFO nodrop.worker: a\\n2026 CRITICAL" in line
        assert "\x1b" not in line


def test_other_libraries_stay_quiet_at_debug(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    Logs(level=LogLevel.DEBUG, form=LogFormat.JSON, file=file).begin()
    logging.getLogger("uvicorn.error").debug("a frame with a token")
    logging.getLogger("nodrop.relay").debug("ours")
    [line] = file.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["message"] == "ours"


def test_a_log_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        Logs(level=LogLevel.INFO, form=LogFormat.TEXT, file=tmp_path).begin()
    assert [problem.path for problem in refused.value.errors] == ["--log-file"]

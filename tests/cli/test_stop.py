"""`nodrop stop` ends the relay of its home and nothing else."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop.app.process import registered

Run = Callable[..., Any]

pytestmark = pytest.mark.timeout(120)  # real processes, on a machine that does other things too

SECONDS_MAX = 60
SLEEPER = "import signal; signal.pause()"


@contextmanager
def up(home: Path) -> Generator[tuple[subprocess.Popen[str], str]]:
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    with subprocess.Popen(
        [sys.executable, "-m", "nodrop.cli", "up", "--port", "0", "--json"],
        env=inherited | {"NODROP_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


@contextmanager
def other_program() -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", SLEEPER]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_it_waits_until_the_relay_has_ended_and_says_so(nodrop: Run, tmp_path: Path) -> None:
    home = tmp_path / "served"
    with up(home) as (process, url):
        stopped = nodrop("stop", "--home", home)
        assert process.poll() == 0  # of its own accord, and before the command returned
    assert stopped.code == 0, stopped.err
    assert f"stopped the relay at {url} (process {process.pid})" in stopped.err
    # What it stored is closed: it can be opened at once, and nothing is left to recover.
    assert not (home / "nodrop.db-wal").exists()
    assert list((home / "running").iterdir()) == []


def test_nothing_to_stop_is_said_plainly_and_is_no_failure(nodrop: Run, tmp_path: Path) -> None:
    nothing = nodrop("stop", "--home", tmp_path / "empty")
    assert (nothing.code, nothing.err) == (0, "")
    assert nothing.out == f"No relay runs on {tmp_path / 'empty'}: there is nothing to stop.\n"
    assert not (tmp_path / "empty").exists()
    assert nodrop("stop", "--home", tmp_path / "empty", "--json").json == {"stopped": []}


def test_the_relay_of_another_home_is_left_alone(nodrop: Run, tmp_path: Path) -> None:
    with up(tmp_path / "served") as (process, _):
        assert nodrop("stop", "--home", tmp_path / "other", "--json").json == {"stopped": []}
        assert process.poll() is None


def test_a_program_that_has_the_number_of_a_killed_relay_is_left_alone(
    nodrop: Run, tmp_path: Path
) -> None:
    home = tmp_path / "served"
    with up(home) as (process, _):
        [record] = (home / "running").iterdir()
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS_MAX)
    with other_program() as program:
        told = record.read_text().replace(str(process.pid), str(program.pid))
        record.write_text(told)
        assert nodrop("stop", "--home", home, "--json").json == {"stopped": []}
        assert program.poll() is None
        # The control: what keeps it safe is the lock. With it, the same file is obeyed.
        with record.open() as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            ended = nodrop("stop", "--home", home, "--timeout", "100ms", "--json")
        assert program.wait(SECONDS_MAX) == -signal.SIGTERM
        assert (ended.code, ended.json["code"]) == (75, "unavailable")


def test_a_relay_in_another_container_is_not_confused_with_a_process_here(
    nodrop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "served"
    with monkeypatch.context() as there:
        there.setattr("nodrop.app.process._machine", lambda: "another container")
        served = registered(home, "node")
        served.__enter__()
    refused = nodrop("stop", "--home", home, "--json")
    served.__exit__(None, None, None)
    assert (refused.code, refused.json["code"]) == (1, "forbidden")
    assert refused.json["next"] == "Stop it there."


def test_a_relay_that_is_stopping_gets_no_second_signal(nodrop: Run, tmp_path: Path) -> None:
    home = tmp_path / "served"
    # A second SIGTERM would end this very process.
    with registered(home, "node") as process:
        process.listens("http://127.0.0.1:1")
        process.stops()
        waited = nodrop("stop", "--home", home, "--timeout", "100ms", "--json")
    assert (waited.code, waited.json["code"]) == (75, "unavailable")
    assert "still runs" in waited.json["detail"]


def test_the_files_of_killed_relays_are_removed_by_the_next_one(tmp_path: Path) -> None:
    home = tmp_path / "served"
    with up(home) as (process, _):
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS_MAX)
    assert len(list((home / "running").iterdir())) == 1
    with registered(home, "node"):
        assert [path.name for path in (home / "running").iterdir()] == ["node.json"]


def test_a_home_that_cannot_record_the_process_is_served_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "running").write_text("in the way")
    with registered(tmp_path, "node") as process:
        process.listens("http://127.0.0.1:1")

import errno
import json
import os
import plistlib
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli.service import Manager, service

Run = Callable[..., Any]

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too

SECONDS_MAX = 60


def environment(home: Path) -> dict[str, str]:
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    return inherited | {"HOME": str(home), "NO_COLOR": "1", "COLUMNS": "160"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "nodrop.cli", *arguments]


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


@contextmanager
def relay(
    home: Path, options: Sequence[str] = (), **variables: str
) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command("up", "--port", "0", *options),
        env=environment(home) | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("found", [False, True])
def test_where_nodrop_is_not_found_the_first_screen_says_how_to_activate_it(
    tmp_path: Path, *, found: bool
) -> None:
    programs = Path(sys.prefix, "bin")
    others = [p for p in os.environ["PATH"].split(os.pathsep) if Path(p) != programs]
    path = os.pathsep.join([str(programs), *others] if found else others)
    with subprocess.Popen(
        command("up", "--port", "0"),
        env=environment(tmp_path) | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert "is up at" in first
    assert (f"source {programs / 'activate'}" not in rest) == found


def test_the_first_screen_says_what_to_do_next(tmp_path: Path) -> None:
    with relay(tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, complaints = process.stdout.read(), process.stderr.read()
        process.wait(SECONDS_MAX)
    assert first.startswith("nodrop ")
    assert "is up at http://127.0.0.1:" in first
    for words in (
        "~/.local/share/nodrop/nodrop.db",
        "~/.local/share/nodrop/credentials",
        "are me; what is escalated to you: nodrop inbox",
        "nodrop send --to code_agent",
        "nodrop work code_agent --exec",
        'agent = nodrop.Agent("code_agent")',
        "nodrop top",
        "nodrop log --follow",
        "what is settled is kept for 90 days",
        "(one time, 15 min)",
        "Stopped.",
    ):
        assert words in rest
    assert "NODROP_HOME" not in rest
    assert process.returncode == 0
    assert all(" INFO nodrop." in line for line in complaints.splitlines()), complaints


def test_a_narrow_terminal_gets_addresses_and_paths_whole(tmp_path: Path) -> None:
    home = tmp_path / ("a-long-name-" * 10)
    with relay(tmp_path, ["--home", str(home)], COLUMNS="40") as process:
        assert process.stdout is not None
        told = "".join(iter(process.stdout.readline, "    nodrop log --follow\n"))
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    facts = {
        name: fact for name, _, fact in (line.strip().partition(" ") for line in told.splitlines())
    }
    link = facts["open"].split()[0]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#signin=[\w-]{43}", link)
    assert facts["database"].strip() == f"~/{home.name}/nodrop.db"
    assert f"    export NODROP_HOME={home}\n" in told


def test_another_home_is_told_to_whoever_connects(tmp_path: Path) -> None:
    home = tmp_path / "elsewhere"
    with relay(tmp_path, ["--home", str(home)]) as process:
        assert process.stdout is not None
        told = "".join(iter(process.stdout.readline, "    nodrop log --follow\n"))
    assert f"export NODROP_HOME={home}" in told
    assert stat.S_IMODE((home / "credentials").stat().st_mode) == 0o600


def test_a_database_that_is_served_is_not_served_twice(tmp_path: Path) -> None:
    with relay(tmp_path, ["--json"]) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        second = run(tmp_path, "up", "--port", "0")
        assert (second.returncode, second.stdout) == (75, "")
        assert "store_in_use" in second.stderr
        assert f"it is served at {url}" in second.stderr
        # Without being told where, a client of the same user finds the relay and may ask it.
        assert run(tmp_path, "inbox").returncode == 0


def test_a_port_that_is_taken_is_exit_75(tmp_path: Path) -> None:
    with relay(tmp_path, ["--json"]) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["url"].rpartition(":")[2]
        second = run(tmp_path, "up", "--port", port, "--home", str(tmp_path / "other"))
    assert (second.returncode, second.stdout) == (75, "")
    assert "choose another port: --port 0 takes any free one" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    "option",
    [
        "--store",
        "--host",
        "--hostname",
        "--tls-cert",
        "--tls-key",
        "--retention",
        "--limit",
        "--allow-address",
        "--checkpoints",
        "--checkpoints-every",
        "--home",
    ],
)
def test_an_option_that_says_nothing_is_refused(nodrop: Run, tmp_path: Path, option: str) -> None:
    # As from a script whose variable is not set: it meant another store than the default one.
    for empty in ("", " "):
        refused = nodrop("up", "--home", tmp_path / "new", "--port", "0", option, empty)
        assert (refused.code, refused.out) == (2, "")
        assert option in refused.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("option", ["--url", "--token", "--agent", "--team", "--home"])
def test_who_asks_whom_is_not_left_empty(nodrop: Run, option: str) -> None:
    refused = nodrop("inbox", option, "")
    assert (refused.code, refused.out) == (2, "")
    assert f"Invalid value for '{option}': it is empty" in refused.err


def test_a_full_disk_is_exit_75_and_says_what_to_do(
    nodrop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.mkstemp", no_room)
    refused = nodrop("up", "--port", "0", "--home", tmp_path / "full")
    assert (refused.code, refused.out) == (75, "")
    assert "store_full" in refused.err
    assert "Make room on the relay's disk" in refused.err
    assert "Traceback" not in refused.err


def test_what_was_stored_survives_kill_9(tmp_path: Path) -> None:
    with relay(tmp_path, ["--json"]) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert run(tmp_path, "send", "--to", "b", "--key", "kept").returncode == 0
        process.kill()
    with relay(tmp_path, ["--json"]) as process:
        assert process.stdout is not None
        process.stdout.readline()
        shown = run(tmp_path, "track", "me/kept", "--json")
    assert json.loads(shown.stdout)["handoff"]["state"] == "offered"


def test_a_service_has_every_option_that_was_given(tmp_path: Path) -> None:
    names = ("--hostname", "a.example", "--hostname", "b.example")
    made = run(tmp_path, "up", "--service", "--dry-run", "--grpc", "0", *names)
    assert " --grpc 0 --hostname a.example --hostname b.example\n" in made.stdout


def test_a_service_is_written_with_how_to_start_it(tmp_path: Path) -> None:
    made = run(tmp_path, "up", "--service", "--port", "7000")
    unit = tmp_path / ".config/systemd/user/nodrop.service"
    assert made.returncode == 0
    assert made.stdout == unit.read_text()
    home = tmp_path / ".local/share/nodrop"
    assert f"ExecStart={sys.executable} -m nodrop.cli up --home {home} --port 7000\n" in made.stdout
    assert "systemctl --user enable --now nodrop" in made.stderr


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    made = run(tmp_path, "up", "--service", "--dry-run", "--json")
    assert json.loads(made.stdout)["written"] is False
    assert list(tmp_path.iterdir()) == []


def test_a_unit_quotes_what_systemd_would_read_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/my python")
    options = ["--home", '/tmp/50% of $HOME "x"']  # noqa: S108  # only words here
    unit = service(Manager.SYSTEMD, options, user_home=tmp_path).content
    start = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    assert start == (
        'ExecStart="/opt/my python" -m nodrop.cli up --home "/tmp/50%% of $$HOME \\"x\\""'
    )


def test_launchd_gets_a_property_list(tmp_path: Path) -> None:
    options = ("--manager", "launchd", "--hostname", "a & <b>")
    made = run(tmp_path, "up", "--service", *options)
    plist = tmp_path / "Library/LaunchAgents/dev.nodrop.relay.plist"
    assert (made.returncode, made.stdout) == (0, plist.read_text())
    job = plistlib.loads(plist.read_bytes())
    home = str(tmp_path / ".local/share/nodrop")
    command = [sys.executable, "-m", "nodrop.cli", "up", "--home", home, "--hostname", "a & <b>"]
    assert job["ProgramArguments"] == command
    assert job["Label"] == plist.stem
    # Started again after a crash, and not after `nodrop stop`.
    assert (job["RunAtLoad"], job["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert job["Umask"] == 0o077, "what it logs is for its owner"
    assert job["StandardErrorPath"] == str(tmp_path / "Library/Logs/nodrop.log")
    assert f'launchctl bootstrap gui/$(id -u) "{plist}"' in made.stderr


def test_a_dry_run_for_launchd_writes_nothing(tmp_path: Path) -> None:
    made = run(tmp_path, "up", "--service", "--manager", "launchd", "--dry-run")
    assert plistlib.loads(made.stdout.encode())["Label"] == "dev.nodrop.relay"
    assert "~/Library/LaunchAgents/dev.nodrop.relay.plist" in made.stderr
    assert list(tmp_path.iterdir()) == []

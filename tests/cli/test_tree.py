import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from nodrop.cli.session import Session
from nodrop.cli.tree import app
from nodrop.cli.verb import verb
from nodrop.model import errors
from nodrop.model.errors import NodropError

VERBS = [command.name or "" for command in app.registered_commands]
ALONE = [["demo"]]
DLQ = ["list", "show", "redrive", "discard", "accept"]
CODES = {
    "invalid_request": 2,
    "too_large": 2,
    "unauthenticated": 1,
    "forbidden": 1,
    "not_found": 3,
    "no_match": 3,
    "conflict": 4,
    "stale_attempt": 4,
    "already_finished": 4,
    "unavailable": 75,
    "unreachable": 75,
    "store_in_use": 75,
}


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100"}, prog_name="nodrop")


def test_every_verb_of_the_interface_is_there() -> None:
    start = [
        "up",
        "stop",
        "migrate",
        "backup",
        "restore",
        "demo",
        "work",
        "setup",
        "mcp",
        "open",
        "token",
        "invite",
        "join",
        "policy",
        "doctor",
    ]
    requester = ["send", "wait", "answer", "agree", "decline", "cancel", "reassign", "settle"]
    requester += ["erase"]
    recipient = ["inbox", "dismiss", "take", "ack", "update", "ask", "counter", "done"]
    recipient += ["fail", "reject", "release"]
    talk = ["say", "status", "messages", "subscribe", "emit"]
    see = ["top", "track", "trace", "log", "note", "find", "debrief", "export", "analyze"]
    assert sorted(VERBS) == sorted([*start, *requester, *recipient, *talk, *see, "verify"])


def test_nodrop_alone_shows_the_verbs_by_purpose() -> None:
    shown = invoke()
    assert shown.exit_code == 0
    panels = re.findall(r"╭─ (.+?) ─", shown.stdout)
    work = ("Start here", "Hand work off", "Do the work", "Talk")
    assert panels == ["Options", *work, "See what happens", "See it hold"]
    assert shown.stdout == invoke("--help").stdout


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"nodrop \d+\.\d+\.\d+\S*\n", invoke("--version").stdout)


@pytest.mark.parametrize("name", [[name] for name in VERBS] + [["dlq", name] for name in DLQ])
def test_every_verb_explains_itself_and_speaks_json(name: list[str]) -> None:
    shown = invoke(*name, "--help")
    assert shown.exit_code == 0
    assert "--json" in shown.stdout
    assert ("--home" in shown.stdout) == (name not in ALONE)
    assert ("--url" in shown.stdout) == (
        name not in [*ALONE, ["up"], ["stop"], ["migrate"], ["restore"]]
    )


@pytest.mark.parametrize(
    "arguments", [["track"], ["nothing"], ["ack", "x", "--position", "0"], ["inbox", "--colour"]]
)
def test_wrong_usage_is_exit_2(arguments: list[str]) -> None:
    assert invoke(*arguments).exit_code == 2


def run_verb(function: Callable[..., Any], *arguments: str) -> Any:
    one = typer.Typer()
    one.command()(verb(function))
    return CliRunner().invoke(one, list(arguments))


@pytest.mark.parametrize(("code", "exit_code"), CODES.items())
def test_each_error_has_its_exit_code(code: str, exit_code: int) -> None:
    async def refused(_: Session) -> None:
        raise errors.BY_CODE[code]("in detail")

    ran = run_verb(refused)
    assert ran.exit_code == exit_code
    assert ran.stdout == ""
    assert code in ran.stderr


def test_an_interrupted_verb_is_exit_130() -> None:
    async def interrupted(_: Session) -> None:
        raise KeyboardInterrupt

    assert run_verb(interrupted).exit_code == 130


def test_a_verb_without_arguments_has_the_options_of_a_connection() -> None:
    async def idle(session: Session) -> None:
        """Do nothing."""

    assert list(inspect.signature(verb(idle)).parameters) == [
        "as_json",
        "agent",
        "url",
        "team",
        "token",
        "home",
        "ca",
    ]


def test_a_settings_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodrop.toml").write_text("url = ")
    refused = invoke("inbox")
    assert refused.exit_code == 2
    assert "nodrop.toml" in refused.stderr


def test_a_relay_that_is_not_there_is_exit_75(tmp_path: Path) -> None:
    # Port 9 (discard) on loopback: nobody listens there.
    refused = invoke("inbox", "--home", str(tmp_path), "--url", "http://127.0.0.1:9")
    assert refused.exit_code == 75
    assert "→ Start one with `nodrop up`, or set NODROP_URL." in refused.stderr


def test_help_loads_neither_relay_nor_network_library() -> None:
    code = (
        "import sys; from nodrop.cli import tree;"
        "print([m for m in ('aiohttp', 'apsw', 'uvicorn', 'starlette') if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert ran.stdout == "[]\n"


def test_the_table_of_exit_codes_knows_every_error() -> None:
    assert all(issubclass(errors.BY_CODE[code], NodropError) for code in CODES)


@pytest.mark.parametrize("error", errors.ALL)
def test_every_command_that_an_error_advises_is_there(error: type[NodropError]) -> None:
    for words in re.findall(r"`nodrop ([a-z ]+)", error.next):
        helped = invoke(*words.split(), "--help")
        assert helped.exit_code == 0, f"{error.code} advises `nodrop {words}`"

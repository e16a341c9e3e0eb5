"""A relay as a user starts it, and commands as a user types them."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nodrop.cli.tree import app

END_SECONDS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document that was printed."""
        assert self.out, f"exit {self.code}, nothing but: {self.err}"
        return json.loads(self.out)

    @property
    def handoff(self) -> dict[str, Any]:
        return self.json["handoff"]


Run = Callable[..., Ran]


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a user whose home is empty and whose terminal is wide."""
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    return inherited | {"NODROP_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "160"} | more


@pytest.fixture(autouse=True)
def loggers() -> Generator[None]:
    """Loggers as they were, at the end: `nodrop up` and `nodrop work` set those of their process."""
    root, ours = logging.getLogger(), logging.getLogger("nodrop")
    handlers, level, own = root.handlers[:], root.level, ours.level
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(own)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """The home directory of a relay that runs while this module's tests do."""
    directory = tmp_path_factory.mktemp("home")
    with subprocess.Popen(
        [sys.executable, "-m", "nodrop.cli", "up", "--port", "0", "--json"],
        env=environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as relay:
        try:
            assert relay.stdout is not None
            assert json.loads(relay.stdout.readline())["database"] == str(directory / "nodrop.db")
            yield directory
        finally:
            relay.terminate()
            try:
                relay.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                relay.kill()


@pytest.fixture
def nodrop(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in this process, as `me` unless it says otherwise."""
    for name in [name for name in os.environ if name.startswith("NODROP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path, stdin: str | None = None, **variables: str) -> Ran:
        env = {"NODROP_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "160", **variables}
        result = CliRunner().invoke(
            app, [str(argument) for argument in arguments], input=stdin, env=env, prog_name="nodrop"
        )
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(code=result.exit_code, out=result.stdout, err=result.stderr)

    return run


@pytest.fixture
def send(nodrop: Run, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Hand something to `b` as `a`; returns its reference. Keys are the test's own."""
    count = iter(range(1_000))

    def sent(*arguments: str, to: str = "b", agent: str = "a") -> str:
        key = f"{request.node.name}-{next(count)}"[-200:]
        done = nodrop("send", "--to", to, "--key", key, "--agent", agent, "--json", *arguments)
        assert done.code == 0, done.err
        return done.handoff["ref"]

    return sent

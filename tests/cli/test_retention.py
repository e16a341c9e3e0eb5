"""A served relay prunes what was settled long ago, unless told to keep everything."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop import app
from nodrop.relay.relay import Caller
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

Run = Callable[..., Any]

pytestmark = pytest.mark.timeout(120)  # real processes, on a machine that does other things too

DAY = 86_400_000


@contextmanager
def up(home: Path, *options: str, folder: Path, **variables: str) -> Generator[dict[str, Any]]:
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    with subprocess.Popen(
        [sys.executable, "-m", "nodrop.cli", "up", "--port", "0", "--json", *options],
        env=inherited | {"NODROP_HOME": str(home)} | variables,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a handoff that was settled 100 days ago, and one that is open since then."""
    home = tmp_path / "served"
    asyncio.run(work_of_100_days_ago(home))
    return home


async def work_of_100_days_ago(home: Path) -> None:
    clock = FakeClock(app.SystemClock().now() - 100 * DAY)
    async with app.open_relay(home / app.DATABASE, home=home, clock=clock) as relay:
        asker, worker = (
            InProcessTransport(relay, Caller(team="default", agent=name))
            for name in ("asker", "worker")
        )
        terms = {"to": "worker", "deadline": "300d"}
        done = (await asker.call("offer", terms | {"title": "done"}))["handoff"]["id"]
        await asker.call("offer", terms | {"title": "open", "idempotency_key": "open"})
        await worker.call("ack", {}, handoff=done)
        await worker.call("complete", {"attempt": 1, "result": 1}, handoff=done)
        await asker.call("settle", {}, handoff=done)
        clock.advance(99 * DAY)
        await asker.call("note_team", {"text": "yesterday"})


def first_entry(nodrop: Run) -> int:
    return nodrop("log", "--limit", "1", "--json").json["seq"]


def test_by_default_what_was_settled_90_days_ago_goes_and_the_rest_verifies(
    nodrop: Run, home: Path, tmp_path: Path
) -> None:
    with up(home, folder=tmp_path) as told:
        assert told["retention"] == "90 days"
        while first_entry(nodrop) == 1:
            pass  # each look is a command of its own; the test's timeout bounds them
        verified = nodrop("verify", "--json")
        still_open = nodrop("track", "asker/open", "--json")
    assert (verified.code, verified.json["holds"]) == (0, True)
    assert still_open.handoff["title"] == "open"


@pytest.mark.parametrize("said", ["flag", "file", "variable"])
def test_never_keeps_everything(nodrop: Run, home: Path, tmp_path: Path, said: str) -> None:
    options = ["--retention", "never"] if said == "flag" else []
    if said == "file":
        (tmp_path / "nodrop.toml").write_text('retention = "never"\n')
    variables = {"NODROP_RETENTION": "never"} if said == "variable" else {}
    with up(home, *options, folder=tmp_path, **variables) as told:
        assert told["retention"] == "never"
        assert nodrop("verify").code == 0
        assert first_entry(nodrop) == 1


def test_the_flag_goes_before_the_file(home: Path, tmp_path: Path) -> None:
    (tmp_path / "nodrop.toml").write_text('retention = "never"\n')
    with up(home, "--retention", "30d", folder=tmp_path) as told:
        assert told["retention"] == "30 days"


def test_what_is_no_duration_is_refused(nodrop: Run, tmp_path: Path) -> None:
    refused = nodrop("up", "--home", tmp_path / "new", "--port", "0", "--retention", "long")
    assert refused.code == 2
    assert "--retention" in refused.err
    assert not (tmp_path / "new").exists()

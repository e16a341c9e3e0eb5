"""A relay compares its log with its own checkpoints before it serves."""

import asyncio
import json
import logging
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nodrop import app
from nodrop.app import restoring, serving
from nodrop.app.serving import Served
from nodrop.cli import doctor
from nodrop.client.transports.connecting import connect, open_client
from nodrop.model.errors import CheckpointMismatchError
from nodrop.outbound.outlets.checkpoints import Checkpoints, Keeper
from nodrop.protocol.entries import Head
from nodrop.protocol.views import CheckpointAnswer
from nodrop.relay.relay import Relay
from nodrop.testing.clock import FakeClock

PATIENCE_SECONDS = 30
LATER = "2100-01-01T00:00:00.000Z"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "outside" / "checkpoints.jsonl"


@asynccontextmanager
async def served(home: Path, file: Path) -> AsyncGenerator[Served]:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    at = Checkpoints(to=str(file))
    serve = asyncio.create_task(
        app.serve(home, port=0, checkpoints=at, stop=stop, ready=ready.set_result)
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.wait({serve, ready}, return_when=asyncio.FIRST_COMPLETED)
        if serve.done():
            await serve
        try:
            yield await ready
        finally:
            stop.set()
            await serve


async def notes(home: Path, file: Path, count: int) -> Served:
    """Run a relay for so many notes; a checkpoint is made when it ends."""
    async with served(home, file) as told, connect(told.url, agent="me", home=home) as me:
        for n in range(count):
            await me.note(f"note {n}")
    return told


def read(file: Path) -> bytes:
    return file.read_bytes()


def sizes(file: Path) -> list[int]:
    return [json.loads(line)["size"] for line in file.read_text(encoding="utf-8").splitlines()]


async def rolled_back(home: Path, file: Path, more: int = 5) -> None:
    """Keep a copy, go on, and put the copy back as a person does with `cp`."""
    await notes(home, file, 2)
    shutil.copy(home / "nodrop.db", home / "older.db")
    await notes(home, file, more)
    shutil.copy(home / "older.db", home / "nodrop.db")


async def test_a_log_that_goes_on_from_them_is_served(home: Path, file: Path) -> None:
    await notes(home, file, 2)
    told = await notes(home, file, 2)
    assert told.warnings == ()
    assert sizes(file) == sorted(sizes(file))


async def test_a_shorter_log_is_not_served_and_nothing_is_written(
    home: Path, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await rolled_back(home, file)
    before = read(file)
    with pytest.raises(CheckpointMismatchError) as refused:
        await notes(home, file, 1)
    assert str(file) in refused.value.detail
    assert "nodrop restore" in refused.value.next_step
    assert read(file) == before
    assert [r.name for r in caplog.records if r.levelno == logging.CRITICAL] == [
        "nodrop.checkpoints"
    ]


async def test_a_log_that_grew_longer_again_but_is_another_is_not_served(
    home: Path, file: Path, tmp_path: Path
) -> None:
    await rolled_back(home, file)
    await notes(home, tmp_path / "not these", 20)
    with pytest.raises(CheckpointMismatchError, match="another one"):
        await notes(home, file, 1)


async def test_a_database_that_is_gone_is_not_begun_anew(home: Path, file: Path) -> None:
    await notes(home, file, 5)
    shutil.move(home / "nodrop.db", home / "lost.db")
    with pytest.raises(CheckpointMismatchError):
        await notes(home, file, 1)


async def test_without_the_comparison_a_smaller_size_is_written_behind(
    home: Path, file: Path
) -> None:
    await rolled_back(home, file)
    with mock.patch.object(serving, "hold_to", return_value=None):
        await notes(home, file, 0)
    assert sizes(file) != sorted(sizes(file))


async def test_one_that_was_restored_on_purpose_begins_a_new_file(home: Path, file: Path) -> None:
    await rolled_back(home, file)
    shutil.copy(home / "older.db", home / "backup.db")
    before = read(file)
    restoring.restore(home, home / "backup.db", checkpoints=(), aside="replaced-x", at=LATER)
    told = await notes(home, file, 1)
    [warning] = told.warnings
    assert warning.startswith("Restored on purpose: the log ends at entry")
    assert read(file.with_name(f"{file.name}.replaced-x")) == before
    assert sizes(file) == sorted(sizes(file))
    assert (await notes(home, file, 1)).warnings == (), "said once"


async def test_a_mark_of_another_log_or_an_earlier_time_is_no_excuse(
    home: Path, file: Path
) -> None:
    await rolled_back(home, file)
    size, head = 2, "0" * 64
    for at, ends in ((LATER, {"default": Head(seq=size, hash=head)}), (LATER, {})):
        app_mark(home, at, ends)
        with pytest.raises(CheckpointMismatchError):
            await notes(home, file, 1)
    shutil.copy(home / "older.db", home / "backup.db")
    early = "2020-01-01T00:00:00.000Z"
    restoring.restore(home, home / "backup.db", checkpoints=(), aside="replaced-x", at=early)
    with pytest.raises(CheckpointMismatchError):
        await notes(home, file, 1)


def app_mark(home: Path, at: str, ends: dict[str, Head]) -> None:
    restoring.mark(home, restoring.Restored(at=at, aside="replaced-x", logs=ends))


def add_forged(file: Path) -> None:
    last = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
    forged = json.dumps(last | {"size": 1_000_000})
    with file.open("a", encoding="utf-8") as written:
        written.write(f"{forged}\nnonsense\n{forged[:40]}")


async def test_a_line_that_was_cut_off_or_is_not_genuine_is_passed_over(
    home: Path, file: Path
) -> None:
    await notes(home, file, 1)
    add_forged(file)
    assert (await notes(home, file, 1)).warnings == ()


async def test_a_doctor_says_so_with_a_relay_and_without(home: Path, file: Path) -> None:
    await rolled_back(home, file)
    client = await open_client(str(home / "nodrop.db"), agent="me", home=home)
    try:
        check = await doctor._own_checkpoints(file, client.call)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the part that compares
    finally:
        await client.close()
    assert (check.name, check.status) == ("checkpoints", "fail")
    assert "the log ends at entry" in check.detail


async def test_a_log_that_shrinks_under_a_running_relay_gets_no_checkpoint(
    relay: Relay, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[CheckpointAnswer] = []

    class Shelf:
        async def keep(self, checkpoint: CheckpointAnswer) -> None:
            kept.append(checkpoint)

    keeper: Any = Keeper(relay, "default", Shelf(), clock=clock)
    await keeper._send()  # noqa: SLF001  # as the hour does
    keeper._size = 1_000_000  # noqa: SLF001  # of the log before
    await keeper._send()  # noqa: SLF001  # the same
    assert len(kept) == 1
    assert "no checkpoint of it is kept" in caplog.text

"""A damaged file is refused at the start where it is found then, and once it is met otherwise."""

import logging
from pathlib import Path
from typing import cast

import apsw
import pytest

from nodrop.app import open_relay
from nodrop.log.port import LogPage
from nodrop.log.sqlite import SQLiteStore, store
from nodrop.log.sqlite.driver import Connection
from nodrop.model.errors import StoreCorruptError
from nodrop.protocol import requests
from nodrop.relay.relay import Caller

ME = Caller(team="default", agent="me", operator=True)
OFFER = requests.Offer(to="worker", payload={"filler": "x" * 1_000})


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    """A file whose log cannot be read but for its end, where the pages are that a start reads."""
    path = tmp_path / "nodrop.db"
    async with open_relay(path, home=tmp_path) as relay:
        for _ in range(60):
            await relay.call(ME, "offer", OFFER)
    connection = cast("Connection", apsw.Connection(str(path)))
    rows = connection.execute(
        "select pageno from dbstat where name = 'journal' and pagetype = 'leaf' order by path"
    )
    leaves = [number for (number,) in rows]
    connection.close()
    assert len(leaves) > 5
    with path.open("r+b") as file:
        for number in leaves[:-1]:
            file.seek((number - 1) * 4_096)
            page = file.read(4_096)
            file.seek((number - 1) * 4_096)
            file.write(bytes(byte ^ 0xFF for byte in page))
    return path


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is too large for the look at the start to get to the damage."""
    monkeypatch.setattr(store, "CHECK_SECONDS_MAX", -1)
    monkeypatch.setattr("nodrop.log.sqlite.database._CHECK_STEPS", 1)


async def test_a_start_finds_the_damage(database: Path) -> None:
    with pytest.raises(StoreCorruptError) as refused:
        await SQLiteStore.open(database)
    assert not refused.value.retryable
    assert "nodrop restore FILE" in refused.value.next_step


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nodrop.db"
    path.write_bytes(b"no database at all" * 1_000)
    with pytest.raises(StoreCorruptError):
        await SQLiteStore.open(path)


@pytest.mark.usefixtures("unchecked")
async def test_a_relay_that_meets_damage_refuses_commands_and_is_not_ready(
    database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_relay(database, home=tmp_path) as relay:
        await relay.require_store()
        await relay.call(ME, "offer", OFFER)  # nobody has met it yet
        for _ in range(2):
            with pytest.raises(StoreCorruptError):
                await relay.call(ME, "log", requests.GetLog())
        with pytest.raises(StoreCorruptError):
            await relay.require_store()
        with pytest.raises(StoreCorruptError):
            await relay.call(ME, "offer", OFFER)
    told = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(told) == 1
    assert str(database) in told[0].getMessage()
    assert "nodrop restore FILE" in told[0].getMessage()


@pytest.mark.usefixtures("unchecked")
async def test_nothing_more_is_written_to_a_damaged_file(database: Path, tmp_path: Path) -> None:
    async with await SQLiteStore.open(database) as opened:
        page = LogPage(team="default", after=0, limit=10)
        with pytest.raises(StoreCorruptError):
            await opened.log(page)
        with pytest.raises(StoreCorruptError):
            async with opened.transaction():
                pass
        with pytest.raises(StoreCorruptError):
            await opened.erase("default", "any")
        with pytest.raises(StoreCorruptError):
            await opened.backup("made.db")
    assert not (tmp_path / "backups" / "made.db").exists()

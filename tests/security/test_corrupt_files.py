"""A damaged database is not served; without the look at the start, work is stored in it."""

from pathlib import Path
from typing import cast
from unittest import mock

import apsw
import pytest

from nodrop.app import open_relay
from nodrop.log.sqlite.database import Database
from nodrop.log.sqlite.driver import Connection
from nodrop.model.errors import StoreCorruptError
from nodrop.protocol import requests
from nodrop.protocol.views import HandoffAnswer
from nodrop.relay.relay import Caller

ME = Caller(team="default", agent="me", operator=True)
OFFER = requests.Offer(to="worker", payload={"filler": "x" * 1_000})
PAGE_BYTES = 4_096


@pytest.fixture
async def damaged(tmp_path: Path) -> Path:
    """A home whose log cannot be read but for its end, where the pages are that a start reads."""
    async with open_relay(tmp_path / "nodrop.db", home=tmp_path) as relay:
        for _ in range(60):
            await relay.call(ME, "offer", OFFER)
    _damage(tmp_path / "nodrop.db")
    return tmp_path


def _damage(path: Path) -> None:
    connection = cast("Connection", apsw.Connection(str(path)))
    rows = connection.execute(
        "select pageno from dbstat where name = 'journal' and pagetype = 'leaf' order by path"
    )
    leaves = [number for (number,) in rows]
    connection.close()
    with path.open("r+b") as file:
        for number in leaves[:-1]:
            file.seek((number - 1) * PAGE_BYTES)
            file.write(b"\xff" * PAGE_BYTES)


async def _offer(home: Path) -> object:
    async with open_relay(home / "nodrop.db", home=home) as relay:
        return (await relay.call(ME, "offer", OFFER)).answer


async def test_it_is_refused_before_anything_is_stored(damaged: Path) -> None:
    with pytest.raises(StoreCorruptError):
        await _offer(damaged)


async def test_without_the_look_at_the_start_work_is_stored_in_it(damaged: Path) -> None:
    with mock.patch.object(Database, "quick_check"):
        assert isinstance(await _offer(damaged), HandoffAnswer)

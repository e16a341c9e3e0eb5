"""Relays as processes: none is left behind, however its start ends."""

import asyncio
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from nodrop.model.errors import UnavailableError
from nodrop_proof.chaos.relay_process import RelayProcess

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too

SECONDS_MAX = 60.0


class Watched(RelayProcess):
    """Tells what it started."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.started: asyncio.Future[Process] = asyncio.get_running_loop().create_future()

    async def spawn(self) -> Process:
        process = await super().spawn()
        self.started.set_result(process)
        return process


async def test_a_relay_that_serves_nobody_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: RelayProcess) -> None:
        raise TimeoutError

    monkeypatch.setattr(RelayProcess, "_carry_out_something", never)
    relay = Watched(tmp_path / "relay")
    with pytest.raises(UnavailableError, match="did not start"):
        async with asyncio.timeout(SECONDS_MAX), relay:
            pass
    assert (await relay.started).returncode is not None


async def test_a_relay_that_nobody_waits_for_any_more_is_not_left_behind(tmp_path: Path) -> None:
    relay = Watched(tmp_path / "relay")
    entering = asyncio.create_task(relay.__aenter__())
    async with asyncio.timeout(SECONDS_MAX):
        await asyncio.shield(relay.started)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
    assert (await relay.started).returncode is not None


async def test_a_relay_that_does_not_come_up_says_why_where_it_was_told_to(tmp_path: Path) -> None:
    home, log = tmp_path / "relay", tmp_path / "relay.log"
    home.mkdir()
    (home / "nodrop.db").mkdir()  # no file, so no database
    with pytest.raises(UnavailableError, match="cannot be opened"):
        async with asyncio.timeout(SECONDS_MAX), RelayProcess(home, log=log):
            pass
    assert log.exists()
    assert not (home / "relay.log").exists()

"""Checkpoints leave the store: at an interval, into a file or to a service, and hold a log to it."""

import asyncio
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import aiohttp.web
import pytest

from kit import tampered
from nodrop.audit.verify.chain import Checkpoint
from nodrop.outbound.outlets.checkpoints import AtAddress, InFile, Keeper, place_of
from nodrop.outbound.outlets.ways import UnsentError
from nodrop.protocol.views import CheckpointAnswer
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock
from nodrop_proof.chaos.relay_process import RelayProcess, environment

HOUR = 3_600_000
PATIENCE_SECONDS = 20


class Shelf:
    """A place for checkpoints that fails as often as it is told to."""

    def __init__(self) -> None:
        self.kept: list[CheckpointAnswer] = []
        self.fails = 0
        self.tried = 0

    async def keep(self, checkpoint: CheckpointAnswer) -> None:
        self.tried += 1
        if self.fails:
            self.fails -= 1
            raise UnsentError("nobody is in")
        self.kept.append(checkpoint)


class Office:
    """A relay on a clock of the test's."""

    def __init__(self, relay: Relay, clock: FakeClock) -> None:
        self.relay = relay
        self.clock = clock
        self.shelf = Shelf()

    def keeper(self) -> Keeper:
        return Keeper(self.relay, "default", self.shelf, clock=self.clock, every_ms=HOUR)

    async def note(self, text: str) -> None:
        me = InProcessTransport(self.relay, await self.relay.authenticate("token-me"))
        await me.call("note_team", {"text": text})

    async def until_tried(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.shelf.tried < times:  # noqa: ASYNC110  # each turn brings it on
                await asyncio.sleep(0)

    async def turns(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.fixture
def office(relay: Relay, clock: FakeClock) -> Office:
    return Office(relay, clock)


async def test_one_is_sent_at_once_one_every_hour_and_one_at_the_end(office: Office) -> None:
    async with office.keeper().running():
        await office.until_tried(1)
        await office.note("first")
        office.clock.advance(HOUR - 1)
        await office.turns()
        assert len(office.shelf.kept) == 1, "not before the hour is over"
        office.clock.advance(1)
        await office.until_tried(2)
        await office.note("second")
    sizes = [checkpoint.size for checkpoint in office.shelf.kept]
    assert len(sizes) == 3
    assert sizes == sorted(set(sizes)), "each says more than the last"


async def test_one_that_says_nothing_more_is_not_sent(office: Office) -> None:
    async with office.keeper().running():
        await office.until_tried(1)
        for _ in range(3):
            office.clock.advance(HOUR)
            await office.turns()
    assert office.shelf.tried == 1


async def test_one_that_was_not_taken_is_sent_again_before_the_next_is_due(office: Office) -> None:
    office.shelf.fails = 2
    async with office.keeper().running():
        await office.until_tried(1)
        office.clock.advance(5_000)
        await office.until_tried(2)
        office.clock.advance(10_000)
        await office.until_tried(3)
        assert len(office.shelf.kept) == 1


async def test_lines_are_added_to_a_file_and_a_torn_one_is_taken_out(
    office: Office, tmp_path: Path
) -> None:
    path = tmp_path / "elsewhere" / "checkpoints.jsonl"
    place = place_of(str(path))
    assert isinstance(place, InFile)
    office.shelf.keep = place.keep
    async with office.keeper().running():
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not path.exists() or not path.read_bytes().endswith(b"\n"):  # noqa: ASYNC110  # the disk's turn
                await asyncio.sleep(0.01)
        with path.open("ab") as file:
            file.write(b'{"team": "default", "si')  # the machine lost power here
        await office.note("something")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["size"] for line in lines] == sorted({line["size"] for line in lines})
    assert len(lines) == 2
    assert all(Checkpoint(**line).genuine() for line in lines)


async def test_a_service_is_posted_each_with_an_id_that_stays_the_same(office: Office) -> None:
    posted: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
    statuses = [503, 200]

    async def take(request: aiohttp.web.Request) -> aiohttp.web.Response:
        posted.put_nowait((request.headers["webhook-id"], await request.json()))
        return aiohttp.web.Response(status=statuses.pop(0))

    web = aiohttp.web.Application()
    web.router.add_post("/", take)
    runner = aiohttp.web.AppRunner(web)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    place = place_of(f"http://{host}:{port}/")
    assert isinstance(place, AtAddress)
    office.shelf.keep = place.keep
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), office.keeper().running():
            first = await posted.get()
            while posted.empty():
                office.clock.advance(5_000)
                await asyncio.sleep(0.01)
            again = await posted.get()
    finally:
        await runner.cleanup()
    point = first[1]
    assert first[0] == again[0] == f"default.checkpoint.{point['size']}.{point['head'][:16]}"
    assert Checkpoint(**again[1]).genuine()


# --- a log that was rewritten and hashed anew ---------------------------------------------------


async def verify(home: Path, *options: str) -> tuple[int | None, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nodrop.cli", "verify", "--json", *options),
        stdout=asyncio.subprocess.PIPE,
        env=environment(home),
        cwd=home,
    )
    async with asyncio.timeout(PATIENCE_SECONDS * 3):
        said, _ = await process.communicate()
    return process.returncode, json.loads(said)


def rewrite(database: Path, seq: int) -> None:
    """Have somebody else say entry `seq`, and hash everything behind it anew."""
    with sqlite3.connect(database) as db:
        tampered.entries(db, lambda e: {**e, "actor": "nobody"} if e["seq"] == seq else e)
        tampered.rehashed(db)
    db.close()


@pytest.mark.timeout(180)  # real processes, on a machine that does other things too
async def test_only_what_was_kept_outside_finds_a_log_that_was_rewritten(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside.jsonl"
    home.mkdir()
    settings = f'[checkpoints]\nto = "{outside}"\nevery = "1s"\n'
    (home / "nodrop.toml").write_text(settings, encoding="utf-8")
    async with RelayProcess(home) as relay:
        async with relay.operator() as me:
            seq = await me.note("the vault was open")
            assert seq is not None
        assert (await verify(home, "--checkpoint", str(outside)))[0] == 0
    kept = outside.read_text(encoding="utf-8").splitlines()
    assert len(kept) >= 2, "one at the start, one at the end"
    rewrite(home / "nodrop.db", seq)
    (home / "nodrop.toml").unlink()  # with its own checkpoints it would not serve this log
    async with RelayProcess(home):
        status, alone = await verify(home)
        assert (status, alone["holds"]) == (0, True), "the control: by itself it holds"
        status, held = await verify(home, "--checkpoint", str(outside))
    assert (status, held["holds"]) == (1, False)
    assert "checkpoint" in held["finding"]["why"]
    assert held["finding"]["seq"] >= seq


async def test_a_file_that_holds_something_else_is_refused_with_its_line(tmp_path: Path) -> None:
    async with RelayProcess(tmp_path / "home") as relay, relay.operator() as me:
        good = json.dumps(await me.call("checkpoints"))
        outside = tmp_path / "outside.jsonl"
        outside.write_text(f'{good}\n{{"size": 3}}\n', encoding="utf-8")
        status, said = await verify(relay.home, "--checkpoint", str(outside))
    assert status == 2
    assert "line 2" in json.dumps(said)

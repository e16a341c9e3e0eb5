"""Backup and restore, with the commands of docs/postgres.md: what was signed is there, or missed."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop_proof.chaos.relay_process import RelayProcess, environment
from nodrop_proof.kit.postgres_server import PostgresServer, programs

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def elsewhere() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def run(*command: str | Path, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(home) if home else None,
    )


def verified(home: Path, option: str, checkpoint: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "nodrop.cli", "verify", option, checkpoint, home=home)


async def hand_off(node: RelayProcess, count: int) -> None:
    async with node.operator() as me:
        for number in range(count):
            await me.transport.call("offer", {"to": "code_agent", "payload": {"n": number}})


def moved(home: Path, to: Path) -> Path:
    """Take along what a backup of a relay's home has."""
    (to / "keys").mkdir(parents=True, mode=0o700)
    shutil.copy(home / "keys" / "relay.pem", to / "keys")
    shutil.copy(home / "credentials", to)
    return to


async def test_a_dump_holds_what_was_signed_and_one_that_is_too_old_is_found_out(
    tmp_path: Path, server: PostgresServer, elsewhere: PostgresServer
) -> None:
    home, checkpoint = tmp_path / "home", tmp_path / "checkpoint.json"
    early, late = tmp_path / "early.dump", tmp_path / "late.dump"
    async with RelayProcess(home, store=server.address()) as node:
        await hand_off(node, 5)
        assert run(programs() / "pg_dump", "-Fc", "-f", early, server.address()).returncode == 0
        await hand_off(node, 5)
        assert verified(home, "--save-checkpoint", checkpoint).returncode == 0
        assert run(programs() / "pg_dump", "-Fc", "-f", late, server.address()).returncode == 0

    for name, dump in (("late", late), ("early", early)):
        elsewhere.run(f"create database {name}")
        restore = (programs() / "pg_restore", "--exit-on-error", "-d", elsewhere.address(name))
        assert run(*restore, dump).returncode == 0
        again = moved(home, tmp_path / name)
        async with RelayProcess(again, store=elsewhere.address(name)) as node:
            await hand_off(node, 1)  # it serves
            found = verified(again, "--checkpoint", checkpoint)
        assert found.returncode == (0 if dump is late else 1), found.stdout + found.stderr
        assert ("the end is missing" in found.stdout + found.stderr) == (dump is early)


async def test_a_copy_of_the_running_server_holds_what_was_signed(
    tmp_path: Path, server: PostgresServer
) -> None:
    home, checkpoint = tmp_path / "home", tmp_path / "checkpoint.json"
    async with RelayProcess(home, store=server.address()) as node:
        await hand_off(node, 5)
        assert verified(home, "--save-checkpoint", checkpoint).returncode == 0
        copy = server.standby()  # pg_basebackup, with the write-ahead log of the meantime
    server.stop()
    again = moved(home, tmp_path / "again")
    with copy:
        copy.promote()
        async with RelayProcess(again, store=copy.address()):
            assert verified(again, "--checkpoint", checkpoint).returncode == 0

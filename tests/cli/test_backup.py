"""`nodrop backup` beside a relay that serves and without one; `nodrop restore`, and what it refuses."""

import json
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def elsewhere(nodrop: Run, tmp_path: Path) -> Run:
    """Commands of a home where no relay runs."""

    def run(*arguments: str) -> Any:
        return nodrop(*arguments, "--home", str(tmp_path / "elsewhere"))

    return run


def test_a_backup_is_private_verified_and_has_its_checkpoint_beside_it(
    nodrop: Run, home: Path, tmp_path: Path
) -> None:
    nodrop("send", "--to", "b", "--key", "before")
    size = nodrop("verify", "--json").json["checked"]["entries"]
    file = tmp_path / "kept.db"
    ran = nodrop("backup", str(file), "--json")
    assert ran.code == 0, ran.err
    assert ran.json["path"] == str(file)
    assert ran.json["size_bytes"] == file.stat().st_size
    assert ran.json["checkpoint"]["size"] >= size
    assert json.loads((tmp_path / "kept.db.checkpoint").read_text()) == ran.json["checkpoint"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list((home / "backups").iterdir()) == []


def test_without_a_name_it_stays_with_the_relay(nodrop: Run, home: Path) -> None:
    ran = nodrop("backup")
    assert ran.code == 0, ran.err
    files = sorted(path.suffix for path in (home / "backups").iterdir())
    assert files == [".checkpoint", ".db"]
    for path in (home / "backups").iterdir():
        path.unlink()


def test_a_file_that_exists_is_not_overwritten(nodrop: Run, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("mine")
    ran = nodrop("backup", str(file), "--json")
    assert (ran.code, ran.json["code"]) == (2, "invalid_request")
    assert file.read_text() == "mine"
    ran = nodrop("backup", str(tmp_path / "nowhere" / "kept.db"), "--json")
    assert (ran.code, ran.json["code"]) == (2, "invalid_request")
    assert list((home / "backups").glob("*")) == []


def test_agents_may_not_make_backups(nodrop: Run) -> None:
    ran = nodrop("backup", "--agent", "b", "--json")
    assert (ran.code, ran.json["code"]) == (1, "forbidden")


def test_a_home_is_not_restored_while_a_relay_serves_it(
    nodrop: Run, home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "kept.db"
    nodrop("backup", str(file))
    ran = nodrop("restore", str(file), "--json")
    assert (ran.code, ran.json["code"]) == (75, "store_in_use")
    assert nodrop("doctor").code == 0
    assert not list(home.glob("nodrop.db.*ing"))


def test_a_backup_is_restored_and_the_old_database_kept_aside(
    nodrop: Run, elsewhere: Run, tmp_path: Path
) -> None:
    nodrop("send", "--to", "b", "--key", "restored")
    file = tmp_path / "kept.db"
    kept = nodrop("backup", str(file), "--json").json
    first = elsewhere("restore", str(file), "--json")
    assert first.code == 0, first.err
    assert (first.json["replaced"], first.json["checkpoints"]) == (None, 1)
    assert first.json["logs"]["default"]["head"] == kept["checkpoint"]["head"]
    second = elsewhere("restore", str(file), "--json")
    assert Path(second.json["replaced"]).is_file()
    # Nobody serves that home: the command opens its database itself.
    again = elsewhere("backup", str(tmp_path / "again.db"), "--json")
    assert again.code == 0, again.err
    assert again.json["checkpoint"]["size"] >= kept["checkpoint"]["size"]


def test_a_backup_that_is_not_what_its_checkpoint_says_is_refused(
    nodrop: Run, elsewhere: Run, tmp_path: Path
) -> None:
    older, newer = tmp_path / "older.db", tmp_path / "newer.db"
    nodrop("backup", str(older))
    nodrop("send", "--to", "b")
    nodrop("backup", str(newer))
    (tmp_path / "newer.db.checkpoint").replace(tmp_path / "older.db.checkpoint")
    ran = elsewhere("restore", str(older), "--json")
    assert (ran.code, ran.json["code"]) == (1, "store_corrupt")
    assert "the end is missing" in ran.json["detail"]
    assert not (tmp_path / "elsewhere" / "nodrop.db").exists()


def test_a_backup_whose_log_was_changed_is_refused(
    nodrop: Run, elsewhere: Run, tmp_path: Path
) -> None:
    file = tmp_path / "kept.db"
    nodrop("send", "--to", "b", "--title", "as it was")
    nodrop("backup", str(file))
    (tmp_path / "kept.db.checkpoint").unlink()
    connection = sqlite3.connect(file)
    with connection:
        connection.execute(
            "update journal set entries = cast(replace(entries, 'offered', 'offerex') as blob)"
        )
    connection.close()
    ran = elsewhere("restore", str(file), "--json")
    assert (ran.code, ran.json["code"]) == (1, "store_corrupt")


@pytest.mark.parametrize("written", [b"", b"no database at all" * 1_000])
def test_what_is_no_backup_is_refused(elsewhere: Run, tmp_path: Path, written: bytes) -> None:
    file = tmp_path / "kept.db"
    file.write_bytes(written)
    ran = elsewhere("restore", str(file), "--json")
    assert ran.code != 0
    assert ran.json["code"] in {"store_corrupt", "store_unavailable", "invalid_request"}
    assert ran.json["next"]
    assert not (tmp_path / "elsewhere" / "nodrop.db").exists()
    assert elsewhere("restore", str(tmp_path / "none"), "--json").json["code"] == "not_found"


def test_a_relay_serves_what_was_restored(nodrop: Run, tmp_path: Path) -> None:
    nodrop("send", "--to", "b", "--key", "served-again")
    file, other = tmp_path / "kept.db", tmp_path / "other"
    nodrop("backup", str(file))
    nodrop("restore", str(file), "--home", str(other))
    code = (
        "import asyncio, sys, nodrop\n"
        "async def main():\n"
        "    async with nodrop.connect(sys.argv[1], agent='me') as me:\n"
        "        answer = await me.call('get_handoff', {}, handoff='me/served-again')\n"
        "        print(answer['handoff']['state'])\n"
        "asyncio.run(main())\n"
    )
    ran = subprocess.run(  # our own interpreter
        [sys.executable, "-c", code, str(other / "nodrop.db")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "offered"

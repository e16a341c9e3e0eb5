"""Small files of this user: whole or not at all, also when the disk is full or the power goes."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nodrop.client.auth import private_file
from nodrop.model.errors import StoreFullError


def fails_with(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_for_its_owner_alone_and_replaced_in_one_move(tmp_path: Path) -> None:
    path = tmp_path / "home" / "file"
    private_file.write(path, b"one")
    before = path.stat().st_ino
    private_file.write(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_ino != before
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert [file.name for file in path.parent.iterdir()] == ["file"]


def test_where_the_first_wins_the_second_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    private_file.write(path, b"first", replace=False)
    private_file.write(path, b"second", replace=False)
    assert path.read_bytes() == b"first"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_what_is_there_already_takes_no_room_and_is_made_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"same")
    path.chmod(0o644)
    monkeypatch.setattr("tempfile.mkstemp", fails_with(errno.ENOSPC))
    private_file.write(path, b"same")
    assert (path.read_bytes(), mode(path)) == (b"same", 0o600)
    with pytest.raises(StoreFullError):  # the control: what is not the same does take some
        private_file.write(path, b"other")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["tempfile.mkstemp", "os.fsync"])
def test_no_room_is_said_plainly_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = tmp_path / "file"
    private_file.write(path, b"before")
    monkeypatch.setattr(call, fails_with(number))
    with pytest.raises(StoreFullError, match="no room") as refused:
        private_file.write(path, b"after")
    assert "Make room" in refused.value.next_step
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_any_other_trouble_of_the_disk_is_not_taken_for_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", fails_with(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        private_file.write(tmp_path / "file", b"data")


@pytest.mark.parametrize("replace", [True, False])
def test_the_name_is_synced_after_the_content_and_after_the_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replace: bool
) -> None:
    path = tmp_path / "file"
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "content"
        synced.append((kind, path.exists()))
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", watched)
    private_file.write(path, b"data", replace=replace)
    assert synced == [("content", False), ("directory", True)]

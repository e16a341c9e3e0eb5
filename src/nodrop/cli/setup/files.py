"""Edits on disk: all or none, and taken back exactly.

What a file held before is kept in `NODROP_HOME/setup`, for its owner alone. A file that nobody has
touched since gets that back byte for byte; from one that the user went on editing only our part is
taken out.
"""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from nodrop.cli.setup.edits import Edit

Did = Literal["written", "unchanged", "removed", "restored", "kept"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one file."""

    path: Path
    before: str | None
    """What the file holds now; None: there is none."""
    after: str | None
    """What it will hold; None: there will be none."""
    did: Did
    original: str | None
    """What it held without us."""


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    original: str | None
    written_sha256: str
    made: tuple[str, ...] = ()
    """Directories that were not there, innermost first."""


class Files:
    """The files of a coding agent that we have a part in."""

    def __init__(self, home: Path) -> None:
        self._records = home / "setup"

    def adding(self, edits: Sequence[Edit]) -> list[Change]:
        """Return what it takes to have our part in every file. Nothing is written yet."""
        return [self._add(edit) for edit in edits]

    def removing(self, edits: Sequence[Edit]) -> list[Change]:
        """Return what it takes to have our part in none of them."""
        return [self._remove(edit) for edit in edits]

    def apply(self, changes: Sequence[Change]) -> None:
        """Write what was decided."""
        for change in _ordered(changes):
            record, known = self._record(change.path), self._kept(change.path)
            if change.did in {"removed", "restored"}:
                _put(change.path, change.after)
                _tidy(known.made if known else ())
                record.unlink(missing_ok=True)
            elif change.did == "written" and change.after is not None:
                kept = _Kept(
                    path=str(change.path),
                    original=change.original,
                    written_sha256=_sha256(change.after),
                    made=known.made if known else _missing(change.path.parent),
                )
                _put(record, msgspec.json.encode(kept).decode(), mode=0o600)
                _put(change.path, change.after)

    def paths(self) -> list[Path]:
        """Return the files that we have a part in."""
        records = map(_kept_in, sorted(self._records.glob("*.json")))
        return sorted(Path(kept.path) for kept in records if kept is not None)

    def _add(self, edit: Edit) -> Change:
        now = _read(edit.path)
        kept = self._kept(edit.path)
        if kept is not None and now is not None and _sha256(now) == kept.written_sha256:
            original = kept.original
        else:
            original = None if now is None else edit.removed(now)
        after = edit.added(original)
        did: Did = "unchanged" if after == now else "written"
        return Change(path=edit.path, before=now, after=after, did=did, original=original)

    def _remove(self, edit: Edit) -> Change:
        now = _read(edit.path)
        kept = self._kept(edit.path)
        did: Did
        if now is None:
            after, did = None, "unchanged"
        elif kept is not None and _sha256(now) == kept.written_sha256:
            after, did = kept.original, "restored"
        else:
            after = edit.removed(now)
            did = "kept" if after == now else "removed"
        return Change(path=edit.path, before=now, after=after, did=did, original=after)

    def _kept(self, path: Path) -> _Kept | None:
        return _kept_in(self._record(path))

    def _record(self, path: Path) -> Path:
        return self._records / f"{_sha256(str(path))[:32]}.json"


def _kept_in(record: Path) -> _Kept | None:
    try:
        return msgspec.json.decode(record.read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError):
        return None


def _ordered(changes: Sequence[Change]) -> Sequence[Change]:
    """Return changes in their order; removals the other way round, so that folders get empty."""
    going = any(change.did in {"removed", "restored"} for change in changes)
    return changes[::-1] if going else changes


def _missing(folder: Path) -> tuple[str, ...]:
    return tuple(str(place) for place in (folder, *folder.parents) if not place.exists())


def _tidy(folders: Sequence[str]) -> None:
    for folder in folders:
        with suppress(OSError):  # somebody else keeps something in it
            Path(folder).rmdir()


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None


def _put(path: Path, text: str | None, *, mode: int | None = None) -> None:
    """Replace a file in one move, with the permissions it had; None removes it."""
    target = path.resolve()  # a link stays one
    if text is None:
        target.unlink(missing_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if mode is None:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

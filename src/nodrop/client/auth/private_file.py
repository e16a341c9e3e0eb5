"""A small file that only its owner can read, and that is there whole or not at all."""

import errno
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from nodrop.model.errors import StoreFullError

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def write(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Put `data` at `path` in one move that survives a power cut. Without `replace`, the first wins.

    What is there already is not written again: that takes no room.

    Raises:
        StoreFullError: there is no room for it; what was there still is.
    """
    try:
        if not _is_there(path, data):
            _put(path, data, replace=replace)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StoreFullError(f"there is no room for {path}") from error
        raise


@contextmanager
def alone(directory: Path) -> Generator[None]:
    """Keep other processes from changing what is in `directory` by way of this for a moment."""
    if sys.platform == "win32":
        yield
        return
    import fcntl  # noqa: PLC0415  # there is none on Windows

    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_there(path: Path, data: bytes) -> bool:
    if not path.is_file() or path.read_bytes() != data:
        return False
    path.chmod(FILE_MODE)
    return True


def _put(path: Path, data: bytes, *, replace: bool) -> None:
    path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    # Made readable by its owner alone before anything is in it.
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    temporary = Path(made)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
        else:
            with suppress(FileExistsError):
                path.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Have the name on disk too, where a directory can be synced."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

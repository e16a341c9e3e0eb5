"""The process of a served relay: the file that it locks while it runs, and how `nodrop stop` ends it.

Every `nodrop up` locks a file of its own in `running/` of its home. The system releases the lock when
the process ends, however it ends: a file that is not locked is a leftover, and the process number in it
may be another program's by now. Only a process whose file is locked is ever sent a signal.
"""

import logging
import os
import select
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from nodrop.client.auth.private_file import DIRECTORY_MODE, FILE_MODE

log = logging.getLogger(__name__)

FOLDER: Final = "running"
_RECORD_BYTES: Final = 1_024
"""Every record is padded to this, so that it is replaced in one write."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    machine: str
    url: str | None = None
    stopping: bool = False


class Registered:
    """The record of this process, in a file that it keeps locked."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._record = _Record(pid=os.getpid(), machine=_machine())
        self._write()

    def listens(self, url: str) -> None:
        """Record the address of the relay."""
        self._record = msgspec.structs.replace(self._record, url=url)
        self._write()

    def stops(self) -> None:
        """Record that the relay has been told to stop: a second signal would end it at once."""
        self._record = msgspec.structs.replace(self._record, stopping=True)
        self._write()

    def _write(self) -> None:
        if self._descriptor is None:
            return
        try:
            os.pwrite(self._descriptor, msgspec.json.encode(self._record).ljust(_RECORD_BYTES), 0)
        except OSError as error:
            log.warning("could not record this process, so `nodrop stop` may miss it: %s", error)


@contextmanager
def registered(home: Path, name: str) -> Generator[Registered]:
    """Let `nodrop stop` find this process while the block runs. `name` is unique in `home`."""
    if sys.platform == "win32":
        yield Registered(None)
        return
    folder = home / FOLDER
    hidden, path = folder / f".{name}", folder / f"{name}.json"
    descriptor: int | None = None
    try:
        folder.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        _remove_leftovers(folder)
        descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
        _lock(descriptor)
    except OSError as error:  # such as a full disk: what is stored can be served all the same
        log.warning("could not record this process, so `nodrop stop` will miss it: %s", error)
    try:
        record = Registered(descriptor)
        if descriptor is not None:
            with suppress(OSError):  # the same
                hidden.rename(path)  # locked and complete before anyone can find it
        yield record
    finally:
        if descriptor is not None:
            hidden.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            os.close(descriptor)


class RelayProcess:
    """A relay that runs on this machine, found by the file that it locks."""

    def __init__(self, path: Path, record: _Record) -> None:
        self._path = path
        self._record = record
        self._handle: int | None = None

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._record.pid

    @property
    def url(self) -> str | None:
        """Where it listens; None: it is still starting."""
        return self._record.url

    @property
    def elsewhere(self) -> bool:
        """Whether it runs on another machine, or in another container, that shares the home."""
        return self._record.machine != _machine()

    def terminate(self) -> None:
        """Ask it to stop, unless it was asked before.

        Raises:
            PermissionError: it belongs to another user.
        """
        if self._record.stopping:
            return
        with suppress(ProcessLookupError):
            if sys.platform != "linux":
                os.kill(self.pid, signal.SIGTERM)
                return
            self._handle = os.pidfd_open(self.pid)
            if _read(self._path) is not None:  # locked still: the handle is of the same process
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)

    def ended(self) -> bool:
        """Whether it is gone."""
        if _read(self._path) is not None:
            return False
        return self._handle is None or bool(select.select([self._handle], [], [], 0)[0])


def found(home: Path) -> list[RelayProcess]:
    """Return the relays that serve `home` now.

    Several may: nodes on one PostgreSQL database.
    """
    records = ((path, _read(path)) for path in sorted((home / FOLDER).glob("*.json")))
    return [RelayProcess(path, record) for path, record in records if record is not None]


def _read(path: Path) -> _Record | None:
    """Return what the process says that locks `path`; None: no process does."""
    if sys.platform == "win32":
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        _lock(descriptor)
    except BlockingIOError:
        return msgspec.json.decode(os.pread(descriptor, _RECORD_BYTES, 0), type=_Record)
    else:
        return None
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock a file for as long as it is open; `BlockingIOError`: another process has."""
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415  # there is none on Windows

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_leftovers(folder: Path) -> None:
    """Remove the files of processes that were killed."""
    for path in folder.glob("*.json"):
        if _read(path) is None:
            path.unlink(missing_ok=True)


def _machine() -> str:
    """Return what process numbers are counted in: a container counts its own."""
    if sys.platform == "linux":
        with suppress(OSError):
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115  # not a path: pid:[1]
    return os.uname().nodename if sys.platform != "win32" else ""

"""A disk in memory whose power can be cut, and which can run out of room: a VFS for SQLite.

While the power is on, reads see every write, as a page cache shows it. What was not synced is at
risk: at a cut, each sector of each pending write survives or not, pending writes to one place end
up in any order, what a file grew by and was not written may hold anything, and a name that was
made or removed since the last sync of the directory may be back or gone. Which of it happens is
drawn from the random source that is handed in.

A sync can also be made to fail. What it was to make durable may then be gone for good, although it
can still be read and no later sync complains, as it is with Linux.

What the disk promises is what the operating system's own VFS promises SQLite, and no more: a
sync makes what was written to the file so far durable, the first sync of a new journal or
write-ahead log that of the directory too, and a write does not damage bytes beside it. There is no
shared memory: a database on it is opened in exclusive locking mode.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from random import Random
from typing import Any, Final

import apsw
import msgspec

SECTOR_BYTES: Final = 512
"""What is written whole or not at all. Disks have larger ones; smaller is harsher."""
_SECTOR_BYTES_TOLD: Final = 4_096
"""What the operating system's VFS says of every disk."""
_SURVIVAL: Final = (0.0, 0.05, 0.5, 0.95, 1.0)
"""How much of what is pending survives a cut: one of these, drawn anew for each."""

_CREATE: Final = apsw.SQLITE_OPEN_CREATE
_DELETE_ON_CLOSE: Final = apsw.SQLITE_OPEN_DELETEONCLOSE
_JOURNALS: Final = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL


class Doing(Enum):
    """What can be done to a disk that changes it."""

    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    DELETE = "delete"


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """When the power goes: at the `number`-th operation from now on, counted from 1."""

    number: int
    syncs: bool = False
    """Count syncs only."""
    done: bool = False
    """The operation itself is done; otherwise the power goes before it is."""


Watcher = Callable[[Doing, str, bytes], None]
"""Hears what was done, to which file, and what was written to it."""


class PowerCutDisk(apsw.VFS):
    """A disk that SQLite finds under `name` until `unregister` is called."""

    def __init__(self, name: str, random: Random) -> None:
        super().__init__(name, "")
        self.name = name
        self.off = False
        self.life = 0
        """How often the power was cut; what was opened in an earlier life is dead."""
        self.room_bytes: int | None = None
        """What all files may hold together; None is as much as they like."""
        self.writes_refused = 0
        """How often there was no room for a write."""
        self.syncs_fail = 0.0
        """How many of all syncs fail, of one."""
        self.syncs_failed = 0
        self.watcher: Watcher | None = None
        self.on_cut: Callable[[], None] = lambda: None
        """Called when the power goes, on whatever thread that happens."""
        self._random = random
        self._cut: Cut | None = None
        self._passed = 0
        self._names: dict[str, _File] = {}
        self._names_synced: dict[str, _File] = {}

    # --- for tests ---

    @property
    def used_bytes(self) -> int:
        """What all files hold together."""
        return sum(len(file.data) for file in self._names.values())

    def cut_at(self, cut: Cut) -> None:
        """Plan when the power goes."""
        self._cut, self._passed = cut, 0

    def cut(self) -> None:
        """Cut the power now. What is open stays open and is of no use any more."""
        self.off = True
        self.life += 1
        self._cut = None
        share = self._random.choice(_SURVIVAL)
        survivors: dict[_File, _File] = {}
        names: dict[str, _File] = {}
        for name in sorted({*self._names, *self._names_synced}):
            now, synced = self._names.get(name), self._names_synced.get(name)
            file = now if self._random.random() < share else synced
            if file is not None:
                if file not in survivors:
                    survivors[file] = file.after_cut(self._random, share)
                names[name] = survivors[file]
        self._names, self._names_synced = names, dict(names)
        self.on_cut()

    def power_on(self) -> None:
        """Let the disk be used again: it holds what survived."""
        self.off = False

    # --- what files tell the disk ---

    def doing(
        self, what: Doing, name: str, act: Callable[[], object], data: bytes = b"", *, life: int
    ) -> None:
        """Do `act`, unless the power is off, or goes now.

        Raises:
            IOError: of apsw; there is no power.
        """
        self.require_power(life)
        cut = self._cut
        if cut is not None and (what is Doing.SYNC or not cut.syncs):
            self._passed += 1
            if self._passed >= cut.number:
                if cut.done:
                    act()
                self.cut()
                raise apsw.IOError("the power is off")
        act()
        if self.watcher is not None:
            self.watcher(what, name, data)

    def require_power(self, life: int) -> None:
        """Refuse everything while the power is off, and what was opened before it was.

        Raises:
            IOError: of apsw; there is no power.
        """
        if self.off or life != self.life:
            raise apsw.IOError("the power is off")

    def room_for(self, more_bytes: int) -> int:
        """Return how many of `more_bytes` there is room for."""
        if self.room_bytes is None:
            return more_bytes
        return max(min(more_bytes, self.room_bytes - self.used_bytes), 0)

    def fail_sync(self, file: "_File") -> bool:
        """Fail a sync of `file`, if it is one that is to fail; return whether it was."""
        failed = self.syncs_fail > 0 and self._random.random() < self.syncs_fail
        if failed:
            self.syncs_failed += 1
            file.sync_some(self._random, self._random.choice(_SURVIVAL))
        return failed

    def sync_names(self) -> None:
        """Make every name durable as it is now."""
        self._names_synced = dict(self._names)

    # --- what SQLite asks ---

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802  # SQLite's name
        """Open a file, made if missing and wanted."""
        self.require_power(self.life)
        asked = flags[0]
        path = _path(name)
        temporary = name is None or bool(asked & _DELETE_ON_CLOSE)
        file = None if temporary else self._names.get(path)
        if file is None:
            if not asked & _CREATE and not temporary:
                raise apsw.CantOpenError
            made = file = _File()
            if not temporary:
                create = partial(self._names.__setitem__, path, made)
                self.doing(Doing.CREATE, path, create, life=self.life)
        flags[1] = asked
        return _Handle(self, file, path, syncs_names=bool(asked & _JOURNALS))

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802  # SQLite's
        """Remove a name; the file lives on for who has it open."""
        self.require_power(self.life)
        if filename not in self._names:
            raise apsw.IOError("no such file")

        def delete() -> None:
            del self._names[filename]
            if syncdir:
                self.sync_names()

        self.doing(Doing.DELETE, filename, delete, life=self.life)

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: ARG002, N802  # SQLite's
        """Whether there is a file of that name."""
        self.require_power(self.life)
        return pathname in self._names

    def excepthook(self, etype: Any, evalue: Any, etraceback: Any) -> bool:
        """SQLite has the error; there is no need to print it as well."""
        del etype, evalue, etraceback
        return True


def _path(name: Any) -> str:
    if isinstance(name, apsw.URIFilename):
        return name.filename()
    return name or "(temporary)"


class _File:
    """The bytes of a file: as they are, as they were synced, and what is pending in between."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self._synced = bytearray(data)
        self._pending: list[tuple[int, bytes | None]] = []
        """(offset, bytes), or (size, None) for a file that was cut to that size."""

    def write(self, offset: int, data: bytes) -> None:
        self._carry_out(self.data, offset, data)
        self._pending.append((offset, data))

    def truncate(self, size: int) -> None:
        self._carry_out(self.data, size, None)
        self._pending.append((size, None))

    def sync(self) -> None:
        for offset, data in self._pending:
            self._carry_out(self._synced, offset, data)
        self._pending.clear()

    def sync_some(self, random: Random, share: float) -> None:
        """Have a share of what is pending synced, and the rest never."""
        for offset, data in self._pending:
            if random.random() < share:
                self._carry_out(self._synced, offset, data)
        self._pending.clear()

    @staticmethod
    def _carry_out(content: bytearray, offset: int, data: bytes | None) -> None:
        if data is None:
            del content[offset:]
            return
        content.extend(bytes(max(offset - len(content), 0)))
        content[offset : offset + len(data)] = data

    def after_cut(self, random: Random, share: float) -> "_File":
        """Return what is left of the file when the power is back."""
        survived = bytearray(self._synced)
        pending = list(self._pending)
        random.shuffle(pending)
        for offset, data in pending:
            if data is not None:
                _write_torn(survived, offset, data, random, share)
            elif random.random() < share:
                del survived[offset:]
        return _File(bytes(survived))


def _write_torn(
    survived: bytearray, offset: int, data: bytes, random: Random, share: float
) -> None:
    """Write those sectors of `data` that reached the disk."""
    end = offset + len(data)
    begin = offset
    while begin < end:
        until = min(begin - begin % SECTOR_BYTES + SECTOR_BYTES, end)
        if random.random() < share:
            if begin > len(survived):
                # The file grew before this sector was written: nobody says what is in between.
                gap = begin - len(survived)
                survived.extend(random.randbytes(gap) if random.random() < share else bytes(gap))
            survived[begin:until] = data[begin - offset : until - offset]
        begin = until


class _Handle:
    """An open file. Locks keep out other processes, and here there are none."""

    def __init__(self, disk: PowerCutDisk, file: _File, path: str, *, syncs_names: bool) -> None:
        self._disk = disk
        self._file = file
        self._path = path
        self._syncs_names = syncs_names
        self._life = disk.life

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802  # SQLite's name
        self._disk.require_power(self._life)
        return bytes(self._file.data[offset : offset + amount])

    def xFileSize(self) -> int:  # noqa: N802  # SQLite's name
        self._disk.require_power(self._life)
        return len(self._file.data)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802  # SQLite's name
        """Write `data`, or as much of it as there is room for."""
        written = bytes(data)
        grows = max(offset + len(written) - len(self._file.data), 0)
        lacking = grows - self._disk.room_for(grows)
        fits = written[: max(len(written) - lacking, 0)]
        self._do(Doing.WRITE, lambda: self._file.write(offset, fits), fits)
        if lacking:
            self._disk.writes_refused += 1
            raise apsw.FullError("no room on the disk")

    def xTruncate(self, size: int) -> None:  # noqa: N802  # SQLite's name
        self._do(Doing.TRUNCATE, lambda: self._file.truncate(size))

    def xSync(self, flags: int) -> None:  # noqa: ARG002, N802  # SQLite's signature
        def sync() -> None:
            if self._disk.fail_sync(self._file):
                raise apsw.IOError("the sync failed")
            self._file.sync()
            if self._syncs_names:
                self._syncs_names = False
                self._disk.sync_names()

        self._do(Doing.SYNC, sync)

    def xClose(self) -> None:  # noqa: N802  # SQLite's name
        """Let go. Closing syncs nothing."""

    def xLock(self, level: int) -> None:  # noqa: N802  # SQLite's name
        del level

    def xUnlock(self, level: int) -> None:  # noqa: N802  # SQLite's name
        del level

    def xCheckReservedLock(self) -> bool:  # noqa: N802  # SQLite's name
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802  # SQLite's name
        del op, pointer
        return False

    def xSectorSize(self) -> int:  # noqa: N802  # SQLite's name
        return _SECTOR_BYTES_TOLD

    def xDeviceCharacteristics(self) -> int:  # noqa: N802  # SQLite's name
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE

    def excepthook(self, etype: Any, evalue: Any, etraceback: Any) -> bool:
        """SQLite has the error; there is no need to print it as well."""
        del etype, evalue, etraceback
        return True

    def _do(self, what: Doing, act: Callable[[], object], data: bytes = b"") -> None:
        self._disk.doing(what, self._path, act, data, life=self._life)

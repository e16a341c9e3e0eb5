"""The machine a relay runs on: its time, its randomness, its open files, the file with its key."""

import asyncio
import ctypes
import functools
import gc
import logging
import mmap
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import uuid_utils
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nodrop.client.auth import key_files
from nodrop.model.errors import NodropError
from nodrop.model.limits import SECOND
from nodrop.protocol.identity import keys

log = logging.getLogger("nodrop.relay")

_SLEEP_SECONDS_MAX: Final = 30.0
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 131_072
_ARENAS_MAX: Final = 2
_GIVE_BACK_SECONDS: Final = 5.0
_GROWN: Final = 1.05
"""It is looked for free memory where more is in use than this part of what was found last."""
_LOOKS_MAX: Final = 6
"""And every so many times in any case: what is freed inside the process does not show from outside."""
_COLLECTING_MAX: Final = 1_000
"""The collector runs for at most one part in so many of the time."""
_COLLECT_SECONDS_MAX: Final = 0.05
"""A collection that would take longer is put off: it takes as long as there is much in use."""
_PUT_OFF_SECONDS_MAX: Final = 3_600.0
AMPLE_PAGES: Final = 224 * 1024 * 1024 // mmap.PAGESIZE
"""With more than this in use, caches are dropped: a busy relay needs less."""
_SHED_SECONDS: Final = 30.0
"""Caches are dropped no more often than this."""
_OPEN_FILES_WANTED: Final = (65_536, 10_240)
"""Tried in turn: macOS has no hard limit, and refuses more than the second."""

_SALT_BYTES: Final = 16
_SALTS: Final = 64


if sys.platform == "linux":
    _passing_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
else:
    _passing_ns = time.monotonic_ns


class SystemClock:
    """Milliseconds since the epoch: the wall clock at the start, and what has passed since.

    Setting the wall clock while the relay runs moves no deadline; time asleep counts where the
    system says how long it was.
    """

    def __init__(
        self,
        *,
        wall_ns: Callable[[], int] | None = None,
        passing_ns: Callable[[], int] | None = None,
    ) -> None:
        """Take the time of day from `wall_ns`, once, and how much of it passes from `passing_ns`."""
        self._passing_ns = passing_ns or _passing_ns
        self._ahead_ns = (wall_ns or time.time_ns)() - self._passing_ns()
        """Of what passes."""

    def now(self) -> int:
        """Return the current time."""
        return (self._passing_ns() + self._ahead_ns) // 1_000_000

    async def sleep_until(self, at: int) -> None:
        """Return when `now()` has reached `at`, not before."""
        while (left_ms := at - self.now()) > 0:  # noqa: ASYNC110  # what is waited for is time
            # In pieces: the event loop's own time stands still while the machine is asleep.
            await asyncio.sleep(min(left_ms / SECOND, _SLEEP_SECONDS_MAX))

    processor_seconds = staticmethod(time.thread_time)


class SteeredClock(SystemClock):
    """A clock that several machines keep to one time, a little at a time. Never runs backwards."""

    _latest = 0

    def now(self) -> int:
        """Return the current time."""
        self._latest = max(self._latest, super().now())
        return self._latest

    def steer(self, by_ms: int) -> None:
        """Go on so much later, or earlier: then the time stands still for as long."""
        self._ahead_ns += by_ms * 1_000_000


class SystemIds:
    """Ids that sort by time, and secrets."""

    def __init__(self) -> None:
        self.salt: Callable[[], bytes] = _salts().__next__
        """Returns 128 random bits."""

    def new(self) -> str:
        """Return a fresh UUIDv7."""
        return str(uuid_utils.uuid7())

    def secret(self) -> str:
        """Return 256 random bits."""
        return secrets.token_urlsafe(32)


def _salts() -> Iterator[bytes]:
    """Yield 128 random bits at a time. They are drawn by the page: one system call for many."""
    while True:
        page = secrets.token_bytes(_SALTS * _SALT_BYTES)
        for at in range(0, len(page), _SALT_BYTES):
            yield page[at : at + _SALT_BYTES]


class KeyFile:
    """The relay's own Ed25519 key, in a file that only its owner can read. Made on first use."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def public_key(self) -> str:
        """The public key, base64url."""
        return keys.encode(self.key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> str:
        """Return the signature of `message`, base64url."""
        return keys.encode(self.key.sign(message))

    def make(self) -> None:
        """Have the file, before there is anything to sign."""
        _ = self.key

    @functools.cached_property
    def key(self) -> Ed25519PrivateKey:
        """The private key."""
        return key_files.ed25519(self._path)


class Memory:
    """The process's memory: what is no longer in use goes back to the system.

    Left alone, glibc keeps what a wave of large requests took, and Python's collector hardly ever looks
    at what is old (`running` sets it so): a connection that waited long and ended in a cycle would stay.
    """

    def __init__(self, shed: Callable[[], Awaitable[None]] | None = None) -> None:
        """Look after this process; `shed` drops its caches, and is called while much is in use."""
        self._shed = shed
        self._shed_at = 0.0
        self._collect_at = 0.0
        self._seconds_per_block = 0.0
        """How long the last collection took, for each block of memory that was in use."""
        self._libc: Any = None
        if sys.platform == "linux":
            with suppress(OSError, AttributeError):
                libc = ctypes.CDLL("libc.so.6")
                libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)  # these go back as they are freed
                libc.mallopt(_M_ARENA_MAX, _ARENAS_MAX)
                self._libc = libc

    async def give_back(self) -> None:
        """Give back now and then what is free, until cancelled."""
        kept = looks = 0
        while True:
            await asyncio.sleep(_GIVE_BACK_SECONDS)
            looks += 1
            if (used := _resident_pages()) > kept * _GROWN or looks >= _LOOKS_MAX:
                await self._shed_caches(used)
                self._collect()
                if self._libc is not None:
                    await asyncio.to_thread(self._libc.malloc_trim, 0)
                kept, looks = min(used, _resident_pages()), 0

    async def _shed_caches(self, used: int) -> None:
        """Drop caches where more is in use than a busy relay needs, now and then.

        They are bounded; but what is small and was kept during a wave of requests holds on to the memory
        around it, of which nothing else is left.
        """
        now = asyncio.get_running_loop().time()
        if self._shed is None or used < AMPLE_PAGES or now < self._shed_at:
            return
        self._shed_at = now + _SHED_SECONDS
        try:
            await self._shed()
        except NodropError as error:
            log.warning("could not drop caches, trying again later: %s", error)

    def _collect(self) -> None:
        """Free what only holds itself. On the loop's thread, where connections must be freed.

        There is hardly any: what is made for a client is freed without this. So it waits for a time when
        less is in use, and others are not kept waiting.
        """
        now = asyncio.get_running_loop().time()
        if now < self._collect_at:
            return
        expected = self._seconds_per_block * sys.getallocatedblocks()
        if expected > _COLLECT_SECONDS_MAX and now < self._collect_at + _PUT_OFF_SECONDS_MAX:
            return
        began = time.thread_time()
        gc.collect()
        took = time.thread_time() - began
        self._seconds_per_block = took / sys.getallocatedblocks()
        self._collect_at = now + took * _COLLECTING_MAX


def _resident_pages() -> int:
    """Return how much memory is in use; 0: that is not known."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])


def allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: every connection is an open file."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in _OPEN_FILES_WANTED:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or soft >= most:
            return
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return


def open_files_max() -> int | None:
    """Return how many files this process may have open; None: that is not known."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415  # not on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft

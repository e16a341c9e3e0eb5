"""Checkpoints that leave the store: at an interval, into a file or to an address outside of it.

Whoever rewrites the store cannot rewrite these: `nodrop verify --checkpoint` holds the log to every
one of them. One that says nothing more than the last is not sent; one that cannot be sent is tried
again until the next is due.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from nodrop.model.errors import NodropError
from nodrop.model.limits import HOUR, SECOND
from nodrop.outbound.outlets import ways
from nodrop.outbound.outlets.ways import UnsentError
from nodrop.protocol import requests
from nodrop.protocol.views import CheckpointAnswer, View
from nodrop.relay.ports import Clock
from nodrop.relay.relay import Relay, operator_of

log = logging.getLogger("nodrop.checkpoints")

EVERY_MS: Final = HOUR
_FIRST_MS: Final = 5 * SECOND
_LAST_SECONDS_MAX: Final = 5.0
_ADDRESS: Final = ("http://", "https://")


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Where checkpoints are sent, and how often."""

    to: str
    """A file, or an address."""
    every_ms: int = EVERY_MS


@asynccontextmanager
async def leaving(
    relay: Relay, team: str, checkpoints: Checkpoints | None, *, clock: Clock
) -> AsyncGenerator[None]:
    """Send them while the block runs, where that is wanted."""
    if checkpoints is None:
        yield
        return
    place, every_ms = place_of(checkpoints.to), checkpoints.every_ms
    async with Keeper(relay, team, place, clock=clock, every_ms=every_ms).running():
        yield


class Place(Protocol):
    """Where checkpoints are kept."""

    async def keep(self, checkpoint: CheckpointAnswer) -> None:
        """Keep one; raises `OSError` or `UnsentError`."""
        ...


def place_of(to: str) -> Place:
    """Return the place that a setting means: an address, or a file."""
    return AtAddress(to) if to.startswith(_ADDRESS) else InFile(Path(to).expanduser())


class InFile:
    """A file with a line for each, on the disk before the next."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def keep(self, checkpoint: CheckpointAnswer) -> None:
        """Append one."""
        await asyncio.to_thread(self._append, msgspec.json.encode(checkpoint) + b"\n")

    def _append(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        before = self.path.read_bytes() if self.path.exists() else None
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if before is not None and not before.endswith(b"\n"):
                os.ftruncate(descriptor, before.rfind(b"\n") + 1)  # a crash cut it off
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if before is None:
            _sync_folder(self.path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class AtAddress:
    """A service that is posted each. The signature that counts is the one in it."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def keep(self, checkpoint: CheckpointAnswer) -> None:
        """Post one; the same one has the same id."""
        headers = {
            "content-type": "application/json",
            "webhook-id": f"{checkpoint.team}.checkpoint.{checkpoint.size}.{checkpoint.head[:16]}",
        }
        # Whoever runs the relay wrote the address down: it need not be a public one.
        await ways.post(
            self._url, msgspec.json.encode(checkpoint), headers=headers, allow_private=True
        )


class Keeper:
    """Sends a team's checkpoints away."""

    def __init__(
        self, relay: Relay, team: str, place: Place, *, clock: Clock, every_ms: int = EVERY_MS
    ) -> None:
        self._relay = relay
        self._team = team
        self._place = place
        self._clock = clock
        self._every_ms = every_ms
        self._size: int | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Send them while the block runs: one at once, and a last one at the end of it."""
        keeping = asyncio.create_task(self._keep_on(), name="nodrop checkpoints")
        try:
            yield
            try:
                async with asyncio.timeout(_LAST_SECONDS_MAX):
                    await self._send()
            except (NodropError, UnsentError, OSError) as error:
                log.warning("the last checkpoint was not kept: %s", error)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep_on(self) -> None:
        while True:
            due = self._clock.now() + self._every_ms
            wait = _FIRST_MS
            while True:
                try:
                    await self._send()
                    break
                except (NodropError, UnsentError, OSError) as error:
                    log.warning("a checkpoint was not kept, and is tried again: %s", error)
                again = self._clock.now() + wait
                if again >= due:
                    break
                await self._clock.sleep_until(again)
                wait *= 2
            await self._clock.sleep_until(due)

    async def _send(self) -> None:
        request = requests.GetCheckpoint()
        reply = await self._relay.call(operator_of(self._team), "checkpoints", request)
        made: View = reply.answer
        assert isinstance(made, CheckpointAnswer), "that is what is asked for"
        if self._size is not None and made.size < self._size:
            log.critical(
                "the log of %s had %d entries and has %d: no checkpoint of it is kept",
                *(self._team, self._size, made.size),
            )
        elif made.size != self._size:
            await self._place.keep(made)
            self._size = made.size

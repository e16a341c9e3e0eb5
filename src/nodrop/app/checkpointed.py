"""A relay's log beside the last checkpoint that the relay wrote into a file of its own.

A log that ends before that checkpoint, or has another entry there, was rolled back or rewritten. A
relay that went on from it would sign two histories; so it does not start, unless `nodrop restore` has
marked that an older copy was put in place on purpose.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from nodrop.audit.verify.chain import Checkpoint
from nodrop.client.auth import private_file
from nodrop.model.errors import CheckpointMismatchError
from nodrop.protocol.entries import GENESIS, Head
from nodrop.protocol.times import parse_time

log = logging.getLogger("nodrop.checkpoints")

Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Ask the relay: an operation and its fields."""
_MARK: Final = "restored.json"


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """That an older copy was put in place on purpose: when, and where its logs end."""

    at: str
    aside: str
    """How the names of files end that belong to the database before."""
    logs: dict[str, Head]


def mark(home: Path, restored: Restored) -> None:
    """Keep in a relay's home that its database was restored on purpose."""
    private_file.write(home / _MARK, msgspec.json.encode(restored))


def last_in(path: Path, team: str) -> Checkpoint | None:
    """Return the last genuine checkpoint of a team in a file; None: there is none.

    Raises:
        CheckpointMismatchError: the file cannot be read.
    """
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise CheckpointMismatchError(f"{path} cannot be read: {error.strerror}") from error
    for line in reversed(lines):
        try:
            found = msgspec.json.decode(line, type=Checkpoint)
            if found.team == team and found.genuine():
                return found
        except (msgspec.MsgspecError, ValueError):
            continue  # a crash cut it off, or it is no checkpoint
    return None


async def difference(call: Call, head: Head, at: str) -> str | None:
    """Return how a log differs from one that ended at `head` once; None: it goes on from there."""
    now = await call("checkpoints", {})
    if now["size"] < head.seq:
        return f"the log ends at entry {now['size']}; it had {head.seq} entries at {at}"
    there: str = now["head"] if now["size"] == head.seq else GENESIS
    if 0 < head.seq < now["size"]:
        found = (await call("log", {"after": head.seq - 1, "limit": 1}))["entries"]
        if not found or found[0]["seq"] > head.seq + 1:
            return None  # pruned, and longer than it was
        there = found[0]["hash"] if found[0]["seq"] == head.seq else found[0]["prev_hash"]
    if there != head.hash:
        return f"entry {head.seq} of the log is another one than at {at}"
    return None


async def hold_to(path: Path, *, team: str, home: Path, call: Call) -> str | None:
    """Compare a relay's log with the last of its own checkpoints, before it serves.

    Returns:
        What to tell the operator, where an older copy was put in place with `nodrop restore`: the
        checkpoints of the log before are moved aside, and a new file begins. None: all is well.

    Raises:
        CheckpointMismatchError: the log is shorter or another one, and nobody said why.
    """
    last = last_in(path, team)
    if last is None:
        return None
    why = await difference(call, Head(seq=last.size, hash=last.head), last.at)
    if why is None:
        return None
    restored = _restored(home)
    if restored is None or not await _on_purpose(restored, last, call):
        log.critical("%s, as the relay itself signed in %s. It does not serve this log.", why, path)
        raise CheckpointMismatchError(f"{why}, as the relay itself signed in {path}")
    old = path.with_name(f"{path.name}.{restored.aside}")
    try:
        await asyncio.to_thread(path.rename, old)
    except OSError as error:
        raise CheckpointMismatchError(f"{path} cannot be moved to {old}: {error}") from error
    told = f"Restored on purpose: {why}. The checkpoints from before are in {old}."
    log.warning("%s", told)
    return told


def _restored(home: Path) -> Restored | None:
    try:
        return msgspec.json.decode((home / _MARK).read_bytes(), type=Restored)
    except (OSError, msgspec.MsgspecError):
        return None


async def _on_purpose(restored: Restored, last: Checkpoint, call: Call) -> bool:
    """Whether a log goes on from what was restored, after a checkpoint was made."""
    head = restored.logs.get(last.team)
    if head is None or parse_time(restored.at) < parse_time(last.at):
        return False
    return await difference(call, head, restored.at) is None

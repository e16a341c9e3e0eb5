"""Which delivery each agent of this home last got: what a turn-based caller must remember.

A command about a delivery names its attempt, so that somebody who lost it cannot act on it any
more. People and assistants type one command at a time, hence the file `NODROP_HOME/attempts.json`
(`{agent: {handoff id: attempt}}`). Forgetting an entry is safe: the relay refuses, never guesses.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from nodrop.model.handoff import FINAL

HANDOFFS_PER_AGENT_MAX: Final = 1_000
"""Kept for one agent; the oldest go first. Far more than anybody has open by hand."""

_LOCK_SECONDS_MAX: Final = 2.0
_LOCK_RETRY_SECONDS: Final = 0.01
_FINAL: Final = frozenset(state.value for state in FINAL)

_Known = dict[str, dict[str, int]]


class Attempts:
    """The attempts that one agent holds, kept in a file that several commands may share."""

    def __init__(self, home: Path, agent: str) -> None:
        self._path = home / "attempts.json"
        self._agent = agent

    def of(self, handoff_id: str) -> int | None:
        """Return the attempt this agent last got."""
        return self._read().get(self._agent, {}).get(handoff_id)

    def remember(self, handoff: Mapping[str, Any]) -> None:
        """Keep the attempt that `handoff` shows, or forget it once that can do nothing more."""
        handoff_id, attempt, recipient = handoff["id"], handoff["attempt"], handoff["to"]
        held = handoff["state"] not in {*_FINAL, "offered"} and recipient == self._agent
        if held and attempt:
            self._change(lambda mine: mine.update({handoff_id: attempt}))
        else:
            self.forget(handoff_id)

    def forget(self, handoff_id: str) -> None:
        """Drop what is known of a handoff."""
        if self.of(handoff_id) is not None:
            self._change(lambda mine: mine.pop(handoff_id, None))

    def _read(self) -> _Known:
        # A file that cannot be read is no reason to refuse: what it held can be asked for again.
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Known)
        except (FileNotFoundError, msgspec.MsgspecError):
            return {}

    def _change(self, change: Callable[[dict[str, int]], object]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(self._path.with_suffix(".lock")):
            known = self._read()
            mine = known.setdefault(self._agent, {})
            change(mine)
            known[self._agent] = dict(list(mine.items())[-HANDOFFS_PER_AGENT_MAX:])
            _replace(
                self._path, msgspec.json.encode({a: held for a, held in known.items() if held})
            )


@contextmanager
def _alone(lock: Path) -> Generator[None]:
    """Keep other commands of this home out while the file is rewritten; give up after a while."""
    with lock.open("wb") as held:
        lock.chmod(0o600)
        until = time.monotonic() + _LOCK_SECONDS_MAX
        while not _locked(held) and time.monotonic() < until:
            time.sleep(_LOCK_RETRY_SECONDS)
        yield


def _locked(held: IO[bytes]) -> bool:
    if sys.platform == "win32":
        return True  # an update lost to another command costs a refusal there, and no work
    import fcntl  # noqa: PLC0415  # Windows has none

    with suppress(BlockingIOError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _replace(path: Path, content: bytes) -> None:
    """Write `path` so that readers see the old content or the new, and only their owner does."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # made with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as written:
            written.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

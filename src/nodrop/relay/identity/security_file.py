"""The file of the security log: what was refused, as JSON lines, in a few files of bounded size."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

import msgspec

from nodrop.relay.identity.refusals import Refusal

log = logging.getLogger("nodrop.security")

BYTES_MAX: Final = 1_048_576
FILES_MAX: Final = 3
"""Earlier files that are kept beside the current one."""


class SecurityFile:
    """Where refusals outlive the relay. Made when there is the first of them, for its owner alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handler: RotatingFileHandler | None = None

    def write(self, refusal: Refusal) -> None:
        """Append a line. A full disk must not make a refusal anything else than one."""
        try:
            if self._handler is None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._path.touch(mode=0o600)
                self._handler = RotatingFileHandler(
                    self._path, maxBytes=BYTES_MAX, backupCount=FILES_MAX, encoding="utf-8"
                )
            line = msgspec.json.encode(refusal).decode()
            self._handler.emit(logging.makeLogRecord({"msg": line}))
        except OSError:
            log.exception("the security log cannot be written")

    def close(self) -> None:
        """Let go of the file."""
        if self._handler is not None:
            self._handler.close()

"""Log output of `nodrop up` and `nodrop work`: its level, its form and its place.

Libraries only emit. Here alone handlers are set, and here alone levels: that of `nodrop` is the user's, everybody
else's is WARNING. At DEBUG some of them write whole frames, with tokens and payloads.
"""

import json
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from nodrop.cli.verb import path
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol import visible

FILE_BYTES_MAX: Final = 10_485_760
FILES_MAX: Final = 5
"""Earlier files that are kept beside the current one."""
_PANEL: Final = "Log"


class LogLevel(StrEnum):
    """What is worth a line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a line is written."""

    TEXT = "text"
    JSON = "json"


Level = Annotated[
    LogLevel,
    typer.Option(
        "--log-level", envvar="NODROP_LOG_LEVEL", help="The least to log.", rich_help_panel=_PANEL
    ),
]
Format = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="NODROP_LOG_FORMAT",
        help="Lines for people, or one JSON object per line.",
        rich_help_panel=_PANEL,
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--log-file",
        parser=path,
        help="Log there and not to stderr; after 10 MB the next file begins, and 5 earlier ones stay.",
        rich_help_panel=_PANEL,
    ),
]


class Logs(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line says about its log."""

    level: LogLevel
    form: LogFormat
    file: Path | None

    def begin(self) -> None:
        """Log from now on.

        Raises:
            InvalidRequestError: the file cannot be written.
        """
        handler = logging.StreamHandler(sys.stderr) if self.file is None else _rotating(self.file)
        handler.setFormatter(_JsonLines() if self.form is LogFormat.JSON else _TextLines())
        logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
        logging.getLogger("nodrop").setLevel(self.level.upper())

    def options(self) -> Sequence[str]:
        """Return what a service's command line says to have the same log: what is not the default."""
        options: list[str] = []
        if self.level is not LogLevel.INFO:
            options += ["--log-level", self.level.value]
        if self.form is not LogFormat.TEXT:
            options += ["--log-format", self.form.value]
        if self.file is not None:
            options += ["--log-file", str(self.file.resolve())]
        return options


def _rotating(file: Path) -> logging.Handler:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        return RotatingFileHandler(
            file, maxBytes=FILE_BYTES_MAX, backupCount=FILES_MAX, encoding="utf-8"
        )
    except OSError as error:
        problem = Problem(path="--log-file", message=f"{file}: {error.strerror or error}")
        raise InvalidRequestError("the log cannot be written", errors=(problem,)) from error


def _time(record: logging.LogRecord) -> str:
    made = datetime.fromtimestamp(record.created, UTC)
    return made.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _TextLines(logging.Formatter):
    """Time, level, logger and message in one line; below it a traceback, where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().replace("\n", "\\n")
        line = f"{_time(record)} {record.levelname} {record.name}: {message}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return visible.replaced(line)


class _JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return visible.escaped(json.dumps(line, ensure_ascii=False))

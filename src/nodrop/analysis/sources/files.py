"""Opening logs: plain, compressed, or from stdin."""

import gzip
import sys
from pathlib import Path
from typing import IO, cast

from nodrop.model.errors import InvalidRequestError, NotFoundError, Problem


def open_log(path: Path) -> IO[bytes]:
    """Return a log's bytes; `-` is stdin, and what ends in .gz is unpacked.

    Raises:
        NotFoundError: it cannot be read.
    """
    if str(path) == "-":
        return sys.stdin.buffer
    try:
        if path.suffix == ".gz":
            return cast("IO[bytes]", gzip.open(path, "rb"))
        return path.open("rb")
    except OSError as error:
        raise NotFoundError(
            f"cannot read {path}: {error.strerror}", next_step="Check the name of the file."
        ) from error


def not_a_log(path: Path, line: int, form: str, why: object) -> InvalidRequestError:
    """Return the refusal of something that is not a log of that form."""
    problem = Problem(path=f"{path} line {line}", message=f"is not an entry: {why}")
    return InvalidRequestError(
        f"this is no log of the form {form}; --from names the form it has", errors=(problem,)
    )

"""Whether a framework is there, and recent enough, before an adapter imports it."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib import metadata

from nodrop.model.errors import NotInstalledError


@contextmanager
def needs(distribution: str, at_least: str, *, extra: str) -> Generator[None]:
    """Import a framework within; what is missing or too old is said with the extra that has it.

    Raises:
        NotInstalledError: install the extra.
    """
    # In the message as well: a newcomer meets it as the last line of a traceback.
    brought = f"nodrop[{extra}] brings it"
    install = f"Install it: pip install 'nodrop[{extra}]'."
    try:
        found = metadata.version(distribution)
    except metadata.PackageNotFoundError as error:
        detail = f"{distribution} is not installed: {brought}"
        raise NotInstalledError(detail, next_step=install) from error
    if _release(found) < _release(at_least):
        detail = f"{distribution} {found} is too old: it takes {at_least} or later, {brought}"
        raise NotInstalledError(detail, next_step=install)
    try:
        yield
    except ImportError as error:
        # There, but not what this adapter was written for: a part of it moved or is missing.
        detail = f"{distribution} {found} does not have what this takes ({error}): {brought}"
        raise NotInstalledError(detail, next_step=install) from error


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers a version begins with; what follows them is no older."""
    begins = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, begins[0].split("."))) if begins else ()

"""An offer out of what a person has: a JSON file, or a text block."""

from typing import Any

from nodrop.cli import screen
from nodrop.cli.values import decode, file_text
from nodrop.protocol import text


def read(name: str) -> dict[str, Any]:
    """Return the fields of the offer in the file called `name`; `-` is stdin. Warn of `[...]` in a block.

    Raises:
        InvalidRequestError: it is neither JSON nor a text block; `errors` says where.
    """
    written = file_text(name)
    if written.lstrip("\ufeff \t\r\n").startswith("{"):
        return decode(written.lstrip("\ufeff"), path="stdin" if name == "-" else name)
    fields = text.parse(written)
    for found in text.left_out(written):
        screen.warning(f"{found.path}: {found.message}; write out what belongs there")
    return fields

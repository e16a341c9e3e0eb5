"""A cursor: a place in the team's log or in an inbox, from which reading goes on."""

from collections.abc import Mapping
from typing import Any, Self


class Cursor(int):
    """The number of an entry, with its hash. It is an `int` wherever one is expected.

    Numbers are used again after an older copy of the relay's database was restored. With the hash the
    relay tells another entry of that number from the one that was read; without it, only a number
    beyond the end of the log is noticed. Keep both where a program goes on after a restart.
    """

    hash: str | None

    def __new__(cls, seq: int = 0, hash: str | None = None) -> Self:  # noqa: A002  # the field's name in the log
        """Make a cursor that stands behind entry `seq`."""
        made = super().__new__(cls, seq)
        made.hash = hash
        return made

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Return where the next page begins."""
        return cls(answer["after"], answer.get("after_hash"))


def fields_of(after: int) -> dict[str, Any]:
    """Return a cursor as a request has it."""
    if isinstance(after, Cursor) and after.hash is not None:
        return {"after": int(after), "after_hash": after.hash}
    return {"after": int(after)}

"""CONTROL: a relay in this process whose connections wait for each other.

What must then go wrong is that one slow reader keeps everybody else from being served.
"""

from collections.abc import Generator
from contextlib import contextmanager
from unittest import mock
from weakref import WeakSet

from nodrop.servers.websocket.outbox import Outbox


@contextmanager
def one_line() -> Generator[None]:
    """Have whoever is sent to stand in one line for a while."""
    flush, drained, line = Outbox.flush, Outbox.drained, WeakSet[Outbox]()

    def in_turn(self: Outbox) -> None:
        line.add(self)
        if all(each._channel.can_write for each in line):  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            flush(self)

    def all_in_turn(self: Outbox) -> None:
        drained(self)
        for each in tuple(line):
            in_turn(each)

    with (
        mock.patch.object(Outbox, "flush", in_turn),
        mock.patch.object(Outbox, "drained", all_in_turn),
    ):
        yield

"""CONTROL: a relay in this process that lets any attempt act, however stale.

What must then go wrong is that a worker that stood still, and whose work somebody else has by now,
goes on with it: results of superseded attempts, recorded steps run again.
"""

from collections.abc import Generator
from contextlib import contextmanager
from unittest import mock

from nodrop.model import decisions
from nodrop.model.commands import Actor
from nodrop.model.events import Fact
from nodrop.model.handoff import Handoff


def _let_in(_handoff: Handoff, _attempt: int | None, _by: Actor) -> tuple[Fact, ...]:
    return ()


@contextmanager
def unfenced() -> Generator[None]:
    """Take the fence down for a while."""
    with mock.patch.object(decisions, "_fence", _let_in):
        yield

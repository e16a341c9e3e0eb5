"""Somebody who asked for an operation, and is told later, without a task that waits meanwhile."""

from abc import ABC, abstractmethod

import msgspec

from nodrop.core.errors import NodropError
from nodrop.engine.following import Follower
from nodrop.engine.shows import Caller
from nodrop.wire import views
from nodrop.wire.requests import Request


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An answer, and whether it was given before."""

    answer: views.View
    replayed: bool = False


class Asking(ABC):
    """An operation that is asked for. Being told what came of it never waits and never raises."""

    __slots__ = ("caller", "follower", "operation", "request")

    def __init__(self, caller: Caller, operation: str, request: Request) -> None:
        self.caller = caller
        self.operation = operation
        self.request = request
        self.follower: Follower | None = None
        """What it waits for, where that is a handoff."""

    @abstractmethod
    def tell(self, reply: Reply) -> None:
        """Take the answer."""

    @abstractmethod
    def refuse(self, error: NodropError) -> None:
        """Take the reason why there is none."""

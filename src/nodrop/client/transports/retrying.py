"""Retries: which requests may be sent again, how long to wait before that, and for how long to go on."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from nodrop.model.errors import UnansweredError, UnavailableError
from nodrop.protocol.operations import OPERATIONS

T = TypeVar("T")

_LOG: Final = logging.getLogger("nodrop.client")


class Retrying(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential backoff with jitter. Randomness, time and sleep are handed in, for tests."""

    first_seconds: float = 0.05
    factor: float = 2.0
    delay_seconds_max: float = 5.0
    refused_seconds_max: float = 30.0
    """How long a refusal that the relay calls retryable is met with a repeat."""
    unanswered_max: int = 10
    """How often a request is sent if its connection ends each time before the answer.

    Waiting for a relay that is not there does not count, for however long; nor does a request that itself waits."""
    random: Callable[[], float] = random.random
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    def delays(self) -> Iterator[float]:
        """Yield how long to wait before each retry: the first is immediate, and none is endless."""
        yield 0.0
        delay = self.first_seconds
        while True:
            # Between half and all of it: apart from each other, and never at once.
            yield delay * (0.5 + self.random() / 2)
            delay = min(delay * self.factor, self.delay_seconds_max)

    async def endlessly(self, attempt: Callable[[], Awaitable[T]], *, what: str) -> T:
        """Repeat `attempt` until the relay can do it: what it is about must not be dropped.

        Raises:
            UnansweredError: the relay may have stopped over it, each time.
        """
        for delay in self.delays():
            try:
                return await attempt()
            except UnansweredError:
                raise
            except UnavailableError as error:
                _LOG.warning("%s will be repeated: %s", what, error)
                delay = max(delay, error.retry_after_seconds or 0.0)  # noqa: PLW2901  # not before
            await self.sleep(delay)
        raise AssertionError("delays never end")

    async def until_taken(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` while the relay cannot do it now, within `refused_seconds_max`."""
        give_up_at = self.now() + self.refused_seconds_max
        delays = self.delays()
        next(delays)  # the relay said "later", so not at once
        while True:
            try:
                return await attempt()
            except UnansweredError:
                raise
            except UnavailableError as error:
                # Where the relay says when, coming earlier is of no use to anybody.
                delay = max(next(delays), error.retry_after_seconds or 0.0)
                if self.now() + delay > give_up_at:
                    raise
            await self.sleep(delay)


DEFAULT: Final = Retrying()


def is_repeatable(operation: str, fields: Mapping[str, Any]) -> bool:
    """Whether the relay carries out an operation once, however often it is sent."""
    if "command_id" in fields or not OPERATIONS[operation].changes:
        return True
    return operation == "offer" and bool(fields.get("idempotency_key"))

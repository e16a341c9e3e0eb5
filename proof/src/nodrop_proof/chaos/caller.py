"""One caller: hands off, waits for the outcome, and writes both down, through the SDK."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from nodrop.client.client import Client
from nodrop.client.handoff import Handoff
from nodrop.model.errors import NodropError, UnavailableError
from nodrop_proof.chaos.record import Asked, Record, Refused, Stored, Told

ATTEMPTS_MAX: Final = 100
"""Enough for the unluckiest handoff: what is measured is the relay, not luck."""

BACKOFF: Final = {"first": "0.1s", "factor": 1}
"""Short beside a stall, so that a worker wakes while another has its work or has done it."""

AGAIN_SECONDS: Final = 0.2

T = TypeVar("T")

_LOG: Final = logging.getLogger("nodrop.chaos")


class Caller:
    """Somebody who means what it asks for, and asks until it is answered."""

    def __init__(self, client: Client, record: Record, *, keyless: bool = False) -> None:
        """Be a caller.

        Args:
            client: its connection.
            record: what it writes down.
            keyless: CONTROL: offers carry neither an idempotency key nor a command id.
        """
        self._client = client
        self._record = record
        self._keyless = keyless

    async def hand_off(
        self,
        ask: str,
        *,
        to: str,
        legs: int = 1,
        padding: int = 0,
        waits: bool = True,
        terms: Mapping[str, Any] | None = None,
    ) -> Handoff:
        """Ask for something, with so many characters beside; return it once it is stored.

        `terms` are fields of the offer that take the place of the usual ones.
        """
        fields: dict[str, Any] = {
            "to": to,
            "title": ask,
            "payload": {"ask": ask, "padding": "x" * padding},
            "correlation_id": ask,
            "attempts_max": ATTEMPTS_MAX,
            "backoff": BACKOFF,
            "then": [{"to": to}] * (legs - 1),
            **(terms or {}),
        }
        self._record.write(Asked(ask=ask, legs=legs, waits=waits))
        try:
            if self._keyless:
                answer = await self._client.transport.call("offer", fields)
                handoff = Handoff(answer["handoff"], self._client)
            else:
                fields["idempotency_key"] = ask
                handoff = await _until_able(lambda: self._client.hand_off(**fields))
        except NodropError as error:
            self._record.write(Refused(ask=ask, code=error.code))
            raise
        self._record.write(Stored(ask=ask, handoff_id=handoff.id))
        return handoff

    async def outcome(self, ask: str, handoff: Handoff) -> None:
        """Wait for what becomes of it, and settle it."""
        outcome = await _until_able(lambda: handoff.outcome(of="chain"))
        await self._client.flush()
        self._record.write(Told(ask=ask, state=outcome.state, result=outcome.result))


async def _until_able(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat what the SDK gave up on: with a key, asking again is no second handoff."""
    while True:
        try:
            return await attempt()
        except UnavailableError as error:
            _LOG.warning("asking again: %s", error)
            await asyncio.sleep(AGAIN_SECONDS)

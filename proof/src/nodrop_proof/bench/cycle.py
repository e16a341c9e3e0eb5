"""The cycle that every system repeats, and what travels in it.

    offer (idempotency key) → delivered to a worker → ack → complete (result) → outcome

Offer, ack and complete are durable before they are answered. The requester holds the outcome
against what it asked: an answer to something else is no cycle.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

Ask = dict[str, Any]
Cycle = Callable[[str, Ask], Awaitable[Any]]
"""Carries out one cycle for an idempotency key and a payload; returns the outcome's result."""
BlockingCycle = Callable[[str, Ask], Any]
"""The same for a client library that blocks its thread."""

WORKER: Final = "worker"
REQUESTER: Final = "requester"
CONCURRENCY: Final = 64
"""How many handoffs a worker has in hand at once, in every system."""

PAYLOAD_BYTES: Final = 430
RESULT_BYTES: Final = 220
_KEY_BYTES: Final = 16
_FRAME: Final = '{"key":"","text":""}'


class WrongAnswerError(Exception):
    """What came back is not the result of what was asked."""


def fresh_key() -> str:
    """Return an idempotency key that nobody used before."""
    return secrets.token_hex(_KEY_BYTES)


def payload(key: str) -> Ask:
    """Return what is asked: 430 bytes of JSON."""
    return {"key": key, "text": "x" * (PAYLOAD_BYTES - len(_FRAME) - len(key))}


def result(asked: Ask) -> Ask:
    """Return what a worker answers: 220 bytes of JSON."""
    key = str(asked["key"])
    return {"key": key, "text": "y" * (RESULT_BYTES - len(_FRAME) - len(key))}


def check(asked: Ask, answered: Any) -> None:
    """Make sure that an answer belongs to its question.

    Raises:
        WrongAnswerError: it does not.
    """
    if answered != result(asked):
        raise WrongAnswerError(f"asked {asked['key']}, got {str(answered)[:80]}")

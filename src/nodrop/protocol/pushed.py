"""An offer whose outcome the relay pushes, as a transport hands it to the SDK."""

import asyncio
from typing import Any

import msgspec


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a handoff ended."""

    state: str
    at: str
    by: str
    code: str | None = None
    reason: str | None = None
    result: Any = None
    verified: bool = False


class Ended(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An outcome as it was pushed."""

    handoff: bytes
    """The handoff that ended, briefly, as JSON."""
    outcome: Outcome


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to an offer that is followed."""

    ok: bytes
    """As JSON."""
    followed: asyncio.Future[Ended | None] | None
    """The outcome, once the relay has pushed it; None: it has to be asked for."""

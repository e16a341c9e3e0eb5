"""What varies between runs and is handed to the engine: time, ids, the relay's signature."""

from typing import Final, Protocol

NEVER: Final = 2**63
"""A time that does not come."""


class Clock(Protocol):
    """The only source of time. Milliseconds since the epoch; never runs backwards."""

    def now(self) -> int:
        """Return the current time."""
        ...

    async def sleep_until(self, at: int) -> None:
        """Return when `now()` has reached `at`, not before."""
        ...

    def processor_seconds(self) -> float:
        """Return how much processor time this thread has used: only differences mean something."""
        ...


class Ids(Protocol):
    """The only source of ids and secrets."""

    def new(self) -> str:
        """Return a fresh id. Ids made later sort later (UUIDv7)."""
        ...

    def secret(self) -> str:
        """Return a fresh secret that cannot be guessed."""
        ...

    def salt(self) -> bytes:
        """Return 16 bytes that cannot be guessed: what the digest of a body is taken with."""
        ...


class Signer(Protocol):
    """The relay's own key, for statements that must hold outside of it."""

    @property
    def public_key(self) -> str:
        """The Ed25519 public key, base64url."""
        ...

    def sign(self, message: bytes) -> str:
        """Return the signature of `message`, base64url."""
        ...

"""Ids and secrets that follow from the seed, and a signature that is none."""

from random import Random
from uuid import UUID

from nodrop.relay.ports import Clock


class SeededIds:
    """UUIDv7s and secrets, the same ones for the same seed and times."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._last = 0

    def new(self) -> str:
        """Return an id that sorts after those made before."""
        # 48 bits of time, then the version's 4, 12 to count within a millisecond, 2 and 62 at random.
        self._last = max(self._last + 1, self._clock.now() << 12)
        time, number = self._last >> 12, self._last & 0xFFF
        return str(UUID(int=(time << 80) | (0x7000 + number << 64) | 2 << 62 | self._bits(62)))

    def secret(self) -> str:
        """Return a secret that only the seed tells."""
        return f"{self._bits(256):064x}"

    def salt(self) -> bytes:
        """Return no salt worth the name: what is decided twice must come out the same."""
        return bytes(16)

    def _bits(self, n: int) -> int:
        return self._random.getrandbits(n)


class NoSigner:
    """Signatures are not what is simulated."""

    @property
    def public_key(self) -> str:
        """No key."""
        return "none"

    def sign(self, message: bytes) -> str:
        """No signature."""
        return f"none over {len(message)} bytes"

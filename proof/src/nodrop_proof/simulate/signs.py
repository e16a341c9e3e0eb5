"""The signs of life of one process, as its own side knows them."""

from collections import deque


class Signs:
    """What the process sent, and what of it was answered.

    The relay counts a sign from some moment between its being sent and its being answered, so a
    lease is late only by the last one sent, and early only by the last one answered.
    """

    def __init__(self) -> None:
        self.sent_at = 0
        """The last moment at which one may have reached the relay."""
        self._answered: deque[int] = deque(maxlen=16)

    def answered(self, sent_at: int) -> None:
        """Note that the relay answered the heartbeat sent at that time."""
        self._answered.append(sent_at)

    def last_answered(self, before: int) -> int:
        """Return when the last heartbeat that counts before that time was sent."""
        return max((at for at in self._answered if at < before), default=0)

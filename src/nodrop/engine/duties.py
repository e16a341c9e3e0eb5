"""Duties: what one of several engines on a store does for all, such as sending an inbox on."""

from collections.abc import Collection

from nodrop.store import Fleet


class Duties:
    """Which of them fall to this engine."""

    def __init__(self, fleet: Fleet | None = None) -> None:
        self._fleet = fleet

    @property
    def shared(self) -> bool:
        """Whether there may be others to do them: then they must be claimed every second or so."""
        return self._fleet is not None

    async def claim(self, duties: Collection[str]) -> Collection[str]:
        """Return those of `duties` that are this engine's to do, and no other's that serves."""
        if self._fleet is None or not duties:
            return duties
        return await self._fleet.claim(duties)

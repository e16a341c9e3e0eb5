"""Open connections of a listener: how many there may be, and who has to go when there are too many.

A connection is *proven* once a door accepted a token that came over it. Connections without one are
closed oldest first when there is no room, so that they never keep out a client that has one.
"""

import logging
from collections import Counter
from typing import Final, Protocol

from nodrop.model.errors import QueueFullError
from nodrop.model.limits import DEFAULT, Limits

log = logging.getLogger(__name__)

_RESERVED_MIN: Final = 64
_RESERVED_PART: Final = 8
"""This part of all file descriptors is kept for files, outgoing calls and connections not yet judged."""
_BACKLOG_MAX: Final = 2_048
_OVER_AT: Final = 0.9
"""An episode of too many connections is over when at most this share of the bound is in use."""

Holder = tuple[str, str]
"""(team, agent)."""


class Transport(Protocol):
    """All that is needed of a connection."""

    def abort(self) -> None:
        """Close it without sending what waits."""
        ...


class Connections:
    """The connections of one listener, of HTTP and of WebSocket."""

    def __init__(self, limits: Limits = DEFAULT, *, descriptors: int | None = None) -> None:
        """Allow as many as `limits` say, and as `descriptors` are enough for; None: without end."""
        reserved = max(_RESERVED_MIN, (descriptors or 0) // _RESERVED_PART)
        room = limits.connections_max if descriptors is None else max(descriptors - reserved, 1)
        self.most = min(limits.connections_max, room)
        self.per_agent = min(limits.connections_per_agent_max, max(self.most // 2, 1))
        self._handshakes = max(self.most // 2, 1)
        self.backlog = _BACKLOG_MAX if descriptors is None else min(_BACKLOG_MAX, reserved // 2)
        """Connections that the kernel may hold for us: they come all at once, out of the reserve."""
        self.keep_alive_seconds = limits.keep_alive_ms / 1_000
        self.keep_alive_unproven_seconds = limits.keep_alive_unproven_ms / 1_000
        self._newcomers = reserved // 4
        """Connections beyond `most` that may still show a token."""
        self._open: dict[Transport, Holder | None] = {}
        self._idle: dict[Transport, None] = {}
        """Without a token and without a request, the longest idle first."""
        self._busy: dict[Transport, None] = {}
        """Without a token, while a request is answered or a WebSocket has not said hello."""
        self._held: Counter[Holder] = Counter()
        self._held_back: dict[Transport, int] = {}
        """Bytes of messages that have begun to arrive and are not complete."""
        self._bytes: Counter[Holder | None] = Counter()
        """The same by whose they are; None: of all that showed no token."""
        self._bytes_per_agent = limits.incoming_bytes_per_agent_max
        self._bytes_per_relay = limits.incoming_bytes_per_relay_max
        self._closed = 0
        """Connections closed in this episode; 0: there is none."""

    def __len__(self) -> int:
        return len(self._open)

    def has_room_to_shake_hands(self, under_way: int) -> bool:
        """Whether another TLS handshake may begin: those are half of all connections at most."""
        room = self.most + self._newcomers - len(self._open)
        return under_way < min(self._handshakes, room)

    def made(self, transport: Transport) -> None:
        """Count a new connection; close another one, or this one, if it is one too many."""
        self._open[transport] = None
        if len(self._open) > self.most:
            oldest = next(iter(self._idle), None) or next(iter(self._busy), None)
            if oldest is not None:
                self._close(oldest)
            elif len(self._open) > self.most + self._newcomers:
                self._close(transport)
                return
        self._idle[transport] = None

    def lost(self, transport: Transport) -> None:
        """Count a connection no longer. Harmless if it was closed here."""
        self.hold(transport, 0)
        holder = self._open.pop(transport, None)
        if holder is not None:
            self._less(holder)
        self._idle.pop(transport, None)
        self._busy.pop(transport, None)
        if self._closed and len(self._open) <= self.most * _OVER_AT:
            log.warning(
                "%d connections are open again; %d were closed to make room",
                len(self._open),
                self._closed,
            )
            self._closed = 0

    def hold(self, transport: Transport, size: int) -> bool:
        """Know how many bytes of an unfinished message a connection has; False: they are too many."""
        holder, before = self._open.get(transport), self._held_back.pop(transport, 0)
        self._bytes[holder] += size - before
        if size:
            self._held_back[transport] = size
        elif not self._bytes[holder]:
            del self._bytes[holder]
        return (
            self._bytes[holder] <= self._bytes_per_agent
            and self._bytes.total() <= self._bytes_per_relay
        )

    def begin(self, transport: Transport) -> None:
        """Know that a request came in over a connection."""
        if transport in self._idle:
            del self._idle[transport]
            self._busy[transport] = None

    def end(self, transport: Transport) -> None:
        """Know that the request was answered."""
        if transport in self._busy:
            del self._busy[transport]
            self._idle[transport] = None

    def proven(self, transport: Transport) -> bool:
        """Whether a valid token came over a connection."""
        return self._open.get(transport) is not None

    def prove(self, transport: Transport, team: str, agent: str) -> None:
        """Know whose token came over a connection.

        Raises:
            QueueFullError: that agent, or the relay, has too many connections open.
        """
        holder = (team, agent)
        before = self._open.get(transport)
        if before == holder or transport not in self._open:
            return
        if self._held[holder] >= self.per_agent:
            raise _too_many(f"{self._held[holder]} connections of {agent} are open")
        if before is None and len(self._open) > self.most:
            raise _too_many(f"{len(self._open) - 1} connections to this relay are open")
        if before is not None:
            self._less(before)
        self.hold(transport, 0)
        self._idle.pop(transport, None)
        self._busy.pop(transport, None)
        self._open[transport] = holder
        self._held[holder] += 1

    def _close(self, transport: Transport) -> None:
        if not self._closed:
            log.warning(
                "%d connections are open, and there is room for %d: "
                "closing those that showed no token, the oldest first",
                len(self._open),
                self.most,
            )
        self._closed += 1
        self.lost(transport)
        transport.abort()

    def _less(self, holder: Holder) -> None:
        self._held[holder] -= 1
        if not self._held[holder]:
            del self._held[holder]


def _too_many(detail: str) -> QueueFullError:
    return QueueFullError(
        detail,
        next_step="Close connections that you do not need: one WebSocket carries any number of "
        "commands at a time. Then repeat the same command.",
    )

"""The log lines of a connection: established, lost, not coming back and why, through `nodrop.client`.

A short interruption is told at INFO. One that lasts is told at WARNING, which Python shows without any
configuration, and so is its end.
"""

import logging
import os
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from nodrop.client.transports.trust import is_untrusted
from nodrop.model.errors import NodropError

LOG: Final = logging.getLogger("nodrop.client")

SHORT_SECONDS: Final = 1.0
"""An interruption that is over within this is not worth a warning."""
REMIND_SECONDS: Final = 60.0
"""How often a warning is repeated whose reason stays the same."""


class ConnectionLog:
    """Tells of the connections to one relay."""

    def __init__(self, url: str, *, now: Callable[[], float]) -> None:
        """Prepare to tell of connections to `url`; `now` is a clock in seconds."""
        self._address = shown(url)
        self._now = now
        self._established = False
        """Whether there has been a connection."""
        self._away_since: float | None = None
        self._warned_of = ""
        self._warned_at = float("-inf")

    def connected(self, agent: str | None = None) -> None:
        """Tell that there is a connection; at WARNING where it ends a warning."""
        if self._established and self._away_since is None:
            return
        level = logging.WARNING if self._warned_of else logging.INFO
        identity = f" as {agent}" if agent else ""
        LOG.log(level, "connected to %s%s", self._address, identity)
        self._established = True
        self._away_since = None
        self._warned_of, self._warned_at = "", float("-inf")

    def lost(self, why: str) -> None:
        """Tell that the connection ended; the next try is immediate."""
        if self._away_since is None:
            self._away_since = self._now()
            LOG.info("lost the connection to %s (%s); reconnecting now", self._address, why)

    def failed(self, error: BaseException, *, again_in: float, patient: bool = True) -> None:
        """Tell that a try to connect failed.

        Args:
            error: why.
            again_in: the seconds until the next try.
            patient: tries go on for as long as it takes. Where they do not, the caller gets an error.
        """
        now = self._now()
        if self._away_since is None:
            self._away_since = now
        lasts = now - self._away_since >= SHORT_SECONDS or is_untrusted(error)
        reason = why(error)
        news = reason != self._warned_of or now - self._warned_at >= REMIND_SECONDS
        level = logging.WARNING if patient and lasts and news else logging.DEBUG
        if level == logging.WARNING:
            self._warned_of, self._warned_at = reason, now
        state = "cannot reconnect" if self._established else "cannot connect"
        LOG.log(
            level, "%s to %s: %s; trying again in %.1f s", state, self._address, reason, again_in
        )

    def refused(self, error: NodropError) -> None:
        """Tell that the relay does not let this client in, and that no more tries follow."""
        LOG.error("%s refused the connection: %s; not trying again", self._address, error)


def shown(url: str) -> str:
    """Return the address of a relay as people write it, without a user's name and password."""
    parts = urlsplit(url)
    base, _, _ = parts.path.partition("/v1")
    return f"{parts.scheme.replace('ws', 'http')}://{parts.netloc.rpartition('@')[2]}{base}"


def why(error: BaseException) -> str:
    """Return why a relay could not be reached, in one line and with what helps."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}). "
            "Name the certificate of its issuer: --ca FILE or NODROP_CA=FILE"
        )
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__

"""The ways out of a relay: a signed HTTP request, or a message to a person.

What leads to an address that is not public is not sent, unless an operator allowed that one outlet;
the address is looked at when it is connected to, so that a name cannot change its mind in between.
"""

import asyncio
import ipaddress
import socket
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final, Protocol

import aiohttp
import msgspec
import yarl
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from nodrop.model.errors import NotInstalledError
from nodrop.model.limits import SECOND
from nodrop.protocol import extras
from nodrop.protocol.addresses import is_public

SECONDS_MAX: Final = 15.0


class UnsentError(Exception):
    """It could not be sent this time. `permanent`: nor will it ever be."""

    def __init__(self, why: str, *, permanent: bool = False) -> None:
        super().__init__(why)
        self.permanent = permanent


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """One item on its way out. `id` stays the same however often it is sent."""

    id: str
    subject: str
    text: str
    """For a person: what is owed, and the command to answer."""
    data: dict[str, Any]
    """For a program: the item, and the handoff it is about."""


class Way(Protocol):
    """Sends parcels."""

    async def send(self, parcel: Parcel, *, now: int) -> None:
        """Send one; raises `UnsentError`."""
        ...


class PublicOnly(AbstractResolver):
    """Resolves names to public addresses, and refuses others."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name, all of them public."""
        found = await self._resolver.resolve(host, port, family)
        for address in found:
            require_public(address["host"])
        return found

    async def close(self) -> None:
        """Nothing to let go of."""


def require_public(address: str) -> None:
    """Refuse an address that is not public."""
    if not is_public(address):
        raise OSError(f"{address} is not a public address")


class Webhook:
    """Posts parcels, signed as Standard Webhooks says."""

    def __init__(self, url: str, secret: str, *, allow_private: bool) -> None:
        try:
            webhooks: Any = import_module("standardwebhooks")
        except ImportError as error:
            raise extras.missing_at_relay("standardwebhooks") from error
        self._url = url
        self._signer = webhooks.Webhook(secret)
        self._allow_private = allow_private

    async def send(self, parcel: Parcel, *, now: int) -> None:
        """Post one. 2xx is an answer; 410 says that nobody wants more."""
        body = msgspec.json.encode({"id": parcel.id, **parcel.data}).decode()
        at = datetime.fromtimestamp(now // SECOND, tz=UTC)
        headers = {
            "content-type": "application/json",
            "webhook-id": parcel.id,
            "webhook-timestamp": str(now // SECOND),
            "webhook-signature": self._signer.sign(parcel.id, at, body),
        }
        await post(self._url, body.encode(), headers=headers, allow_private=self._allow_private)


async def post(url: str, body: bytes, *, headers: dict[str, str], allow_private: bool) -> None:
    """Post something. 2xx is an answer; 410 says that nobody wants more.

    Raises:
        UnsentError: it was not taken.
    """
    resolver = None if allow_private else PublicOnly()
    timeout = aiohttp.ClientTimeout(total=SECONDS_MAX)
    try:
        if not allow_private:
            _check_literal(url)
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=resolver), timeout=timeout
            ) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            status = answer.status
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise UnsentError(f"{type(error).__name__}: {error}") from error
    if not 200 <= status < 300:  # noqa: PLR2004  # HTTP's own
        raise UnsentError(f"answered {status}", permanent=status == 410)  # noqa: PLR2004  # same


def _check_literal(url: str) -> None:
    """Look at an address that is written as a number: no name is resolved for it."""
    host = yarl.URL(url).host or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    require_public(host)


class Notify:
    """Tells people, by whatever Apprise knows: mail, chat, push."""

    def __init__(self, url: str) -> None:
        try:
            apprise: Any = import_module("apprise")
        except ImportError as error:
            raise extras.missing_at_relay("Apprise") from error
        # A service that sends on elsewhere would have the relay call what no operator named.
        self._way = apprise.Apprise(asset=apprise.AppriseAsset(http_redirects=False))
        if not self._way.add(url):
            raise NotInstalledError("Apprise does not know such an address")

    async def send(self, parcel: Parcel, *, now: int) -> None:
        """Tell one."""
        del now
        async with asyncio.timeout(SECONDS_MAX * 4):
            done = await self._way.async_notify(body=parcel.text, title=parcel.subject)
        if not done:
            raise UnsentError("it was not delivered")

"""The network between clients and relays: a proxy that fails when told to, or balances load."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from nodrop.client.auth.credentials import CredentialsFile
from nodrop_proof.chaos.relay_process import ServedRelay
from nodrop_proof.kit.proxy import Proxy


@asynccontextmanager
async def behind_proxy(relay: ServedRelay, home: Path) -> AsyncGenerator[tuple[Proxy, ServedRelay]]:
    """Put a proxy before `relay`; yields it and the relay as clients with `home` reach it."""
    address = urlsplit(relay.url)
    assert address.hostname is not None, "a relay's address names its host"
    assert address.port is not None, "and its port"
    async with Proxy.open(address.hostname, address.port) as proxy:
        reached = ServedRelay(home, f"http://127.0.0.1:{proxy.port}")
        credentials = CredentialsFile(relay.home).read()
        # Secrets go to the relay they are for: for these clients, that is behind the proxy.
        CredentialsFile(home).write(msgspec.structs.replace(credentials, url=reached.url))
        yield proxy, reached


def mend(proxy: Proxy) -> None:
    """Let what is merely slow or far away be neither. What is dead is for the clients to notice."""
    for link in proxy.links:
        if link.up.passing.is_set() and link.down.passing.is_set():
            link.heal()


def balance(proxy: Proxy, relays: Iterable[ServedRelay]) -> None:
    """Let `proxy` forward to all of `relays` in turn."""
    proxy.targets.clear()
    for relay in relays:
        address = urlsplit(relay.url)
        proxy.targets.append((str(address.hostname), address.port or 0))

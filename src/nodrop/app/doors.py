"""The networked doors of a relay, opened together behind one gate."""

import asyncio
import functools
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from nodrop.app.machine import KeyFile, SystemIds, open_files_max
from nodrop.app.relay import TEAM
from nodrop.client.auth import key_files
from nodrop.relay.relay import Relay
from nodrop.servers.a2a.door import A2ADoor
from nodrop.servers.access import AccessLog
from nodrop.servers.gate import LOOPBACK, Gate
from nodrop.servers.http.door import HTTPDoor
from nodrop.servers.inprocess import InProcessTransport
from nodrop.servers.listener.connections import Connections
from nodrop.servers.listener.server import ANY_ADDRESS, TLS, listen
from nodrop.servers.mcp.door import MCPDoor
from nodrop.servers.websocket.door import WebSocketDoor

HOST: Final = "127.0.0.1"


class A2A(msgspec.Struct, frozen=True, kw_only=True):
    """What the agents of a relay are to those who speak A2A."""

    team: str = TEAM
    home: Path | None = None
    """Where the keys are that cards are signed with; unsigned where there is none."""
    allowed: Collection[str] = ()
    """HOST or HOST:PORT that the relay may call although it is not a public address."""

    strict: bool = False
    """Cards have the fields of A2A 1.0 only, and not those that clients of 0.3 look for."""
    grpc_port: int | None = None
    """Where gRPC is spoken too; 0 is any free one."""
    grpc_agent: str = ""
    """Whom a request over gRPC means that names no tenant."""

    def keys(self) -> Sequence[Any]:
        """Return the keys that cards are signed with."""
        if self.home is None:
            return ()
        folder = self.home / "keys"
        return (KeyFile(folder / "relay.pem").key, key_files.es256(folder / "cards.pem"))


@asynccontextmanager
async def listening(
    relay: Relay,
    *,
    host: str = HOST,
    port: int = 0,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    tls: TLS | None = None,
    new_id: Callable[[], str] | None = None,
    a2a: A2A | None = None,
    dashboard: bool = True,
    access_log: bool = False,
    prepared: asyncio.Event | None = None,
) -> AsyncGenerator[str]:
    """Open the networked doors of `relay`; yields the address. Port 0 is any free one.

    `hosts` are further names that the relay is reached by, `origins` further sites whose pages may
    call it, `a2a` what its agents are to the world outside. Without `dashboard` nothing is at `/`. With
    `access_log` each request is a line of `nodrop.access`. Until `prepared` is set, where it is given, `/readyz` says that the relay is starting.

    Raises:
        UnavailableError: the address cannot be listened on.
    """
    everywhere = host in ANY_ADDRESS
    http = HTTPDoor(relay, dashboard=dashboard, prepared=prepared)
    way = functools.partial(InProcessTransport, relay)
    mcp = MCPDoor(relay, way)
    a2a = a2a or A2A()
    agents = A2ADoor(
        relay, way, team=a2a.team, keys=a2a.keys, allowed=a2a.allowed, strict=a2a.strict
    )
    gate = Gate(
        http=http,
        websocket=WebSocketDoor(relay, new_id=new_id or SystemIds().new),
        mcp=mcp,
        a2a=agents,
        hosts={*LOOPBACK, host, *hosts, *([socket.gethostname()] if everywhere else [])},
        addresses=everywhere,
        origins=origins,
        refused=lambda error, address: relay.refusals.note(
            error, operation="gate", address=address
        ),
    )

    def before_shutdown() -> None:
        http.close()
        mcp.close()
        agents.close()

    async with (
        mcp.running(),
        agents.running(),
        _grpc(agents, a2a, host, tls),
        listen(
            AccessLog(gate) if access_log else gate,
            host=host,
            port=port,
            tls=tls,
            frame_bytes_max=relay.limits.frame_bytes_max,
            connections=Connections(relay.limits, descriptors=open_files_max()),
            before_shutdown=before_shutdown,
        ) as url,
    ):
        yield url


@asynccontextmanager
async def _grpc(door: A2ADoor, a2a: A2A, host: str, tls: TLS | None) -> AsyncGenerator[None]:
    """Speak gRPC while the block runs, where that is wanted."""
    if a2a.grpc_port is None:
        yield
        return
    await door.service()  # says what to install, if it is not
    from nodrop.servers.a2a.grpc import serving  # noqa: PLC0415  # needs the extra

    pair = (tls.certificate, tls.key) if tls else None
    async with serving(door, host=host, port=a2a.grpc_port, certificate=pair, agent=a2a.grpc_agent):
        yield

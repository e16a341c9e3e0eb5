"""From an address to a client: which transport, whose token, or a relay in this process."""

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from nodrop.client.auth.credentials import CredentialsFile
from nodrop.client.auth.tokens import OPERATOR, FixedToken, MintedToken, Tokens
from nodrop.client.blocking import BlockingClient
from nodrop.client.client import Client
from nodrop.client.portal import LoopThread
from nodrop.client.settings import Address, Settings, load
from nodrop.client.transports import retrying
from nodrop.client.transports.address import Embedded, Remote, parse
from nodrop.client.transports.retrying import Retrying
from nodrop.client.transports.transport import Transport
from nodrop.client.values import require, unexpected
from nodrop.model.errors import StoreInUseError

if TYPE_CHECKING:
    from nodrop.client.auth.keys import AgentKey

TransportName = Literal["websocket", "http"]


class OpenEmbedded(Protocol):
    """Opens a database in this process."""

    async def __call__(self, path: str, *, agent: str, team: str | None, home: Path) -> Transport:
        """Return the way of `agent` to the database at `path`, or `:memory:`.

        Raises:
            StoreInUseError: another process serves it; `address` says where.
        """
        ...


_opener: list[OpenEmbedded] = []


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker introduces itself. It waits for its relay for as long as it takes."""

    id: str
    heartbeat_seconds: float

    @property
    def policy(self) -> Retrying:
        """How it comes back: within a heartbeat of the relay's return, before any lease lapses."""
        longest = min(retrying.DEFAULT.delay_seconds_max, self.heartbeat_seconds)
        return msgspec.structs.replace(retrying.DEFAULT, delay_seconds_max=longest)


def provide_embedded(opener: OpenEmbedded) -> None:
    """Say how a database is opened in this process. The SDK itself knows only the wire."""
    _opener[:] = [opener]


@asynccontextmanager
async def connect(
    address: Address | None = None,
    *,
    agent: str | None = None,
    token: str | None = None,
    team: str | None = None,
    transport: TransportName | Transport | None = None,
    home: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
) -> AsyncGenerator[Client]:
    """Connect to a relay as an agent.

    Args:
        address: `http(s)://host:port` of a relay, the path of a database, or `:memory:`; what is
            configured, or the relay of this user, where left out.
        agent: who is asking; the person `me` where nothing else is configured.
        token: the agent's token. On this machine none is needed: it is made on first use.
        team: the team, if not the token's own.
        transport: "websocket" (the default), "http", or a transport that is open already.
        home: where this user's credentials are, if not in `NODROP_HOME`.
        ca: a file with the certificates of the CAs to trust (PEM), if not the system's.

    Raises:
        UnreachableError: no relay answered.
        NodropError: the relay refused.
    """
    client = await open_client(
        address, agent=agent, token=token, team=team, transport=transport, home=home, ca=ca
    )
    try:
        yield client
    finally:
        await client.close()


@contextmanager
def connect_sync(
    address: Address | None = None,
    *,
    agent: str | None = None,
    token: str | None = None,
    team: str | None = None,
    transport: TransportName | None = None,
    home: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
) -> Generator[BlockingClient]:
    """Connect to a relay as an agent, from a program without an event loop; see `connect`."""
    thread = LoopThread()
    try:
        client = thread.portal.call(
            open_client(
                address,
                agent=agent,
                token=token,
                team=team,
                transport=transport,
                home=home,
                ca=ca,
            )
        )
        try:
            yield BlockingClient(client, thread.portal)
        finally:
            if thread.portal.is_open:  # a forked process leaves the connection to its parent
                thread.portal.call(client.close())
    finally:
        thread.stop()


async def open_client(
    address: Address | None = None,
    *,
    agent: str | None = None,
    token: str | None = None,
    team: str | None = None,
    transport: TransportName | Transport | None = None,
    home: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    process: Process | None = None,
) -> Client:
    """Return a client that is connected, and must be closed; see `connect`."""
    named = os.fspath(address) if isinstance(address, os.PathLike) else address
    for name, said in (("address", named), ("agent", agent), ("token", token), ("team", team)):
        _require_said(name, said)
    if transport is not None and not isinstance(transport, str):
        return Client(transport, agent=agent)
    if transport not in (None, "websocket", "http"):
        raise unexpected("transport", "websocket, http or one that is open", f"{transport!r:.100}")
    settings = load(address, agent=agent, token=token, team=team, home=home, ca=ca)
    place = parse(settings.address, team=settings.team)
    if isinstance(place, Embedded):
        try:
            return await _open_embedded(place, settings)
        except StoreInUseError as error:
            if error.address is None:
                raise
            place = parse(error.address, team=settings.team)
            assert isinstance(place, Remote), "whoever serves a database is reached by the network"
    return await _open_remote(place, settings, transport or "websocket", process)


def _require_said(path: str, said: object) -> None:
    """Refuse what says nothing: an empty agent is a variable not set, and not the person `me`."""
    if said is not None:
        require(path, said, str, "a text")
    if said == "":
        raise unexpected(path, "a text", "an empty one")


async def _open_embedded(place: Embedded, settings: Settings) -> Client:
    if not _opener:
        raise RuntimeError("import nodrop, not nodrop.client, to open a database in this process")
    agent = settings.agent or OPERATOR
    transport = await _opener[0](place.path, agent=agent, team=settings.team, home=settings.home)
    return Client(transport, agent=agent, signer=_key(place, settings))


async def _open_remote(
    place: Remote, settings: Settings, transport: TransportName, process: Process | None
) -> Client:
    # Loaded late: a program that embeds its relay needs no network library.
    from nodrop.client.transports import http, websocket  # noqa: PLC0415  # see above

    key = _key(place, settings)
    tokens = key or _tokens(place, settings)
    policy = process.policy if process else retrying.DEFAULT
    if transport == "http":
        patience = None if process else http.FIRST_SECONDS_MAX
        polling = http.HttpTransport(
            place.http, tokens, ca=settings.ca, first_seconds_max=patience, policy=policy
        )
        return Client(polling, agent=settings.agent, signer=key)
    channel = websocket.WebSocketTransport(
        place.channel,
        tokens,
        agent=settings.agent,
        process=process.id if process else None,
        heartbeat_seconds=process.heartbeat_seconds if process else None,
        ca=settings.ca,
        first_seconds_max=None if process else websocket.FIRST_SECONDS_MAX,
        policy=policy,
    )
    try:
        await channel.open()
    except BaseException:
        await channel.close()
        raise
    return Client(channel, agent=channel.agent, signer=key)


def tokens_for(place: Remote, settings: Settings) -> Tokens:
    """Return whose bearer token a connection carries that this SDK does not open itself."""
    return _key(place, settings) or _tokens(place, settings)


def _key(place: Remote | Embedded, settings: Settings) -> "AgentKey | None":
    """Return the agent's own key, where it has one that this relay knows."""
    credentials = CredentialsFile(settings.home).read()
    team, agent = settings.team or credentials.team, settings.agent or OPERATOR
    if settings.token is not None or not (settings.home / "keys" / team / f"{agent}.pem").exists():
        return None
    from nodrop.client.auth.keys import AgentKey, KeyFile  # noqa: PLC0415  # most programs have no key

    file = KeyFile(settings.home, team, agent)
    known = file.known()
    if known is None:
        return None
    if isinstance(place, Embedded):
        same = str(Path(place.path).expanduser().resolve()) == known.url
    else:
        # The relay of this user may listen elsewhere by now; any other one must be the very same.
        mine = credentials.url is not None and place.same_relay(credentials.url)
        local = isinstance(home := parse(known.url), Remote) and home.loopback
        same = place.same_relay(known.url) or (mine and local and place.loopback)
    return AgentKey(file, known) if same else None


def _tokens(place: Remote, settings: Settings) -> Tokens:
    """Return where the token comes from: handed in, or from the credentials of this user."""
    if settings.token is not None:
        return FixedToken(settings.token)
    file = CredentialsFile(settings.home)
    url = file.read().url
    # What is secret goes to the relay it is for, and to nobody else.
    if not place.loopback or (url is not None and not place.same_relay(url)):
        return FixedToken(None)

    async def mint(operator: str, agent: str) -> str:
        from nodrop.client.transports.http import HttpTransport  # noqa: PLC0415  # see `_open_remote`

        bearer = FixedToken(operator)
        transport = HttpTransport(place.http, bearer, ca=settings.ca, first_seconds_max=0)
        try:
            answer = await Client(transport, agent=OPERATOR).call("create_token", {"agent": agent})
        finally:
            await transport.close()
        return answer["token"]

    return MintedToken(file, settings.agent or OPERATOR, mint)

"""The composition root: the only package that knows the concrete parts, the clock and the ids.

`open_relay` is a relay on a database; `listening` opens the networked doors before one; `serve` is
both, as `nodrop up` runs them; `open_embedded` is a relay inside the caller's own process.
"""

import asyncio
import functools
import gc
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from nodrop.app.machine import KeyFile, SteeredClock, SystemClock, SystemIds
from nodrop.client import key_files, private_file
from nodrop.client.credentials import CredentialsFile
from nodrop.client.settings import find_home
from nodrop.core.errors import (
    NodropError,
    StoreFullError,
    StoreInUseError,
    StoreUnavailableError,
    UnauthenticatedError,
)
from nodrop.core.limits import DEFAULT, Limits
from nodrop.doors.a2a.door import A2ADoor
from nodrop.doors.gate import LOOPBACK, Gate
from nodrop.doors.http.door import HTTPDoor
from nodrop.doors.inprocess import InProcessTransport
from nodrop.doors.listener import ANY_ADDRESS, TLS, listen
from nodrop.doors.mcp.door import MCPDoor
from nodrop.doors.outlets.checkpoints import Checkpoints, leaving
from nodrop.doors.outlets.sender import Sender
from nodrop.doors.telemetry.door import telling
from nodrop.doors.websocket.door import WebSocketDoor
from nodrop.engine import rule_file
from nodrop.engine.ports import Clock, Ids
from nodrop.engine.relay import Caller, Relay, operator_of
from nodrop.engine.security_file import SecurityFile
from nodrop.store import Store
from nodrop.stores.memory import MemoryStore
from nodrop.stores.sqlite import SQLiteStore, SQLiteTables
from nodrop.wire import manifest, openapi

if TYPE_CHECKING:  # an extra: loaded when an address asks for it
    from nodrop.stores.postgres import PostgresFleet, PostgresStore

log = logging.getLogger(__name__)

T = TypeVar("T")

HOST: Final = "127.0.0.1"
PORT: Final = 6377
"""N-D-R-P on a phone."""
TEAM: Final = "default"
SWITCH_SECONDS: Final = 0.0005
PERSON: Final = "me"
"""The person a relay works for, and its operator."""
MEMORY: Final = ":memory:"
DATABASE: Final = "nodrop.db"


# --- a relay on a database -----------------------------------------------------------------------


@asynccontextmanager
async def open_relay(
    database: str | os.PathLike[str],
    *,
    home: Path,
    team: str = TEAM,
    clock: Clock | None = None,
    ids: Ids | None = None,
    limits: Limits = DEFAULT,
) -> AsyncGenerator[Relay]:
    """Run a relay on `database`, with `team` and its person in it.

    `database` is a file, `:memory:`, or a `postgresql://` address, which other relays may serve at
    the same time.

    Raises:
        StoreInUseError: another relay serves the file; `address` says where, if it can be known.
    """
    async with AsyncExitStack() as stack:
        ids = ids or SystemIds()
        fleet = None
        if is_address(database):
            store, fleet, its_clock = await _open_shared(str(database), node=ids.new())
            clock = clock or its_clock
        else:
            store = await _open_store(database)
        stack.push_async_callback(store.close)
        security = SecurityFile(home / "security.log")
        stack.callback(security.close)
        relay = await Relay.start(
            store,
            clock=clock or SystemClock(),
            ids=ids,
            signer=KeyFile(home / "keys" / "relay.pem"),
            limits=limits,
            tell=security.write,
            fleet=fleet,
        )
        stack.push_async_callback(relay.stop)
        await relay.ensure_team(team)
        yield relay


async def _open_store(database: str | os.PathLike[str]) -> Store:
    if os.fspath(database) == MEMORY:
        return MemoryStore()
    path = Path(database)
    try:
        store = await SQLiteStore.open(path)
    except StoreInUseError as error:
        raise StoreInUseError(error.detail, address=AddressFile(path).read()) from None
    AddressFile(path).remove()  # whoever wrote it is gone: the file is ours now
    return store


async def migrate(home: Path, address: str) -> dict[str, int]:
    """Copy the relay in `home` to a PostgreSQL database; return how many rows of each table there were.

    The file stays as it is. No relay may serve either of the two meanwhile.

    Raises:
        StoreInUseError: a relay serves the file.
        StoreUnavailableError: the database cannot be reached, or is not empty.
        RelayFaultError: the log of the file does not hold; nothing was copied.
    """
    with SQLiteTables(home / DATABASE) as tables:
        store, _, _ = await _open_shared(address, node="")
        async with store:
            return await store.take_in(tables)


def is_address(database: str | os.PathLike[str]) -> bool:
    """Whether `database` is not a file but the address of a server."""
    return os.fspath(database).startswith(("postgresql://", "postgres://"))


async def _open_shared(address: str, *, node: str) -> "tuple[PostgresStore, PostgresFleet, Clock]":
    """Open a database that others may serve too, with the others, and a clock that all go by."""
    try:
        from nodrop.stores.postgres import PostgresFleet, PostgresStore  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise StoreUnavailableError(
            "the PostgreSQL driver is not installed", next_step="pip install 'nodrop[postgres]'"
        ) from error
    store = await PostgresStore.open(address)
    database_ns = await store.now_ns()
    clock = SteeredClock(wall_ns=lambda: database_ns)
    return store, PostgresFleet(store, node=node, clock=clock), clock


class AddressFile:
    """Where the relay that serves a database listens, for those who find it locked."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(f"{database.name}.address")

    def read(self) -> str | None:
        """Return the address, if there is one."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Address).url
        except (OSError, msgspec.MsgspecError):
            return None

    def write(self, url: str) -> None:
        """Tell the address.

        Raises:
            StoreFullError: there is no room to.
        """
        address = _Address(url=url, pid=os.getpid())
        private_file.write(self._path, msgspec.json.encode(address))

    def remove(self) -> None:
        """Tell nothing any more."""
        self._path.unlink(missing_ok=True)


class _Address(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    pid: int


# --- its doors -----------------------------------------------------------------------------------


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
) -> AsyncGenerator[str]:
    """Open the networked doors of `relay`; yields the address. Port 0 is any free one.

    `hosts` are further names that the relay is reached by, `origins` further sites whose pages may
    call it, `a2a` what its agents are to the world outside.

    Raises:
        UnavailableError: the address cannot be listened on.
    """
    everywhere = host in ANY_ADDRESS
    http = HTTPDoor(relay)
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
            gate,
            host=host,
            port=port,
            tls=tls,
            frame_bytes_max=relay.limits.frame_bytes_max,
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
    from nodrop.doors.a2a.grpc import serving  # noqa: PLC0415  # needs the extra

    pair = (tls.certificate, tls.key) if tls else None
    async with serving(door, host=host, port=a2a.grpc_port, certificate=pair, agent=a2a.grpc_agent):
        yield


# --- nodrop up -----------------------------------------------------------------------------------


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What `nodrop up` has to tell once it listens."""

    url: str
    database: str
    credentials: Path
    warnings: Sequence[str] = ()


async def serve(
    home: Path,
    *,
    store: str | None = None,
    host: str = HOST,
    port: int = PORT,
    team: str = TEAM,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    tls: TLS | None = None,
    keep_ms: int | None = None,
    limits: Limits = DEFAULT,
    triggers: Sequence[Mapping[str, Any]] | None = None,
    checkpoints: Checkpoints | None = None,
    allowed: Collection[str] = (),
    grpc_port: int | None = None,
    ready: Callable[[Served], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve the database in `home`, or the one at `store`, until a signal asks to end, or `stop`.

    What was settled longer than `keep_ms` ago is pruned; None keeps everything. `triggers` are the
    rules that a file holds; None leaves all rules as they are. `checkpoints` are sent away there.
    `allowed` are addresses that are not public and may be called all the same; on `grpc_port` A2A is
    spoken too.

    Raises:
        StoreInUseError: another relay serves it; `address` says where.
        StoreFullError: there is no room for what must be written to begin.
        UnavailableError: the address cannot be listened on.
    """
    stop = stop or asyncio.Event()
    database = store or str(home / DATABASE)
    ids = SystemIds()
    with _signals_set(stop):
        async with (
            open_relay(database, home=home, team=team, ids=ids, limits=limits) as relay,
            listening(
                relay,
                host=host,
                port=port,
                hosts=hosts,
                origins=origins,
                tls=tls,
                new_id=ids.new,
                a2a=A2A(team=team, home=home, allowed=allowed, grpc_port=grpc_port),
            ) as url,
            Sender(relay, clock=SystemClock()).running(),
            leaving(relay, team, checkpoints, clock=SystemClock()),
            telling(relay, team=team, clock=SystemClock(), environment=os.environ) as untold,
        ):
            credentials = await _keep_credentials(relay, home, url=url, team=team, ids=ids)
            if store is not None:
                KeyFile(home / "keys" / "relay.pem").make()  # for the other nodes to have too
            if triggers is not None:
                await rule_file.follow(relay, operator_of(team), triggers)
            address = AddressFile(home / DATABASE)
            try:
                if store is None:
                    address.write(url)
            except StoreFullError as error:
                # Nobody but those who find the database locked needs it: what is stored can be read.
                log.warning("the disk is full, and the relay serves all the same: %s", error)
            pruning = asyncio.create_task(_prune_hourly(relay, team, keep_ms))
            try:
                in_clear = () if tls or host in LOOPBACK else (_IN_CLEAR.format(host=host),)
                ready(
                    Served(
                        url=url,
                        database=without_password(database),
                        credentials=credentials.path,
                        warnings=(*in_clear, *untold),
                    )
                )
                await stop.wait()
            finally:
                pruning.cancel()
                if store is None:
                    address.remove()


def without_password(database: str) -> str:
    """Return where a database is, fit to be shown."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", database)


async def _prune_hourly(relay: Relay, team: str, keep_ms: int | None) -> None:
    while keep_ms is not None:
        try:
            await relay.prune(team, older_than_ms=keep_ms)
        except NodropError:
            log.exception("could not prune; trying again in an hour")
        await asyncio.sleep(_PRUNE_SECONDS)


_PRUNE_SECONDS: Final = 3_600
_IN_CLEAR: Final = (
    "Listening on {host} without TLS: tokens and payloads travel in clear. "
    "Give it a certificate, or put it behind something that has one."
)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Return what `main` returns, run on the fastest event loop there is."""
    # The store's thread must not wait long for a busy loop to let go of the interpreter.
    sys.setswitchinterval(SWITCH_SECONDS)
    # Values here are frozen and make no cycles: looking for some so often costs a sixth of the rate.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415  # there is none for Windows

    return uvloop.new_event_loop


async def _keep_credentials(
    relay: Relay, home: Path, *, url: str, team: str, ids: Ids
) -> CredentialsFile:
    """Write down where the relay is and the operator's token, made anew if it is no longer one."""
    file = CredentialsFile(home)
    known = file.read()
    token = known.operator
    if token is None or not await _is_operator(relay, token, team):
        token = f"nd_{ids.secret()}"
        await relay.ensure_token(team, agent=PERSON, role="operator", secret=token)
    file.write(msgspec.structs.replace(known, url=url, team=team, operator=token))
    return file


async def _is_operator(relay: Relay, token: str, team: str) -> bool:
    try:
        caller = await relay.authenticate(token)
    except UnauthenticatedError:
        return False
    return caller.operator and caller.team == team


@contextmanager
def _signals_set(stop: asyncio.Event) -> Generator[None]:
    """Let SIGTERM and SIGINT set `stop`; a second one ends the process as if nobody listened."""
    loop = asyncio.get_running_loop()
    ours = (signal.SIGTERM, signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return

    def restore() -> None:
        for number in ours:
            loop.remove_signal_handler(number)

    def asked() -> None:
        log.info("asked to stop")
        restore()
        stop.set()

    for number in ours:
        loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        restore()


# --- a relay in the caller's own process ---------------------------------------------------------


async def open_embedded(
    path: str | os.PathLike[str], *, agent: str = PERSON, team: str = TEAM, home: Path | None = None
) -> InProcessTransport:
    """Return the way of `agent` to a relay on `path` that runs in this process.

    Connections of one event loop to the same file, or to `:memory:`, share a relay; it stops when
    the last of them is closed.

    Raises:
        StoreInUseError: another process serves the file; `address` says where, if it can be known.
    """
    database = _full_path(path)
    here = asyncio.get_running_loop()
    if database != MEMORY and any(
        database in relays and relays[database].used
        for loop, relays in list(_EMBEDDED.items())
        if loop is not here
    ):
        raise StoreInUseError(
            f"{database} is open in another event loop of this process; "
            "share one, or run `nodrop up` and connect to that"
        )
    relays = _EMBEDDED.setdefault(here, {})
    shared = relays.setdefault(database, _Shared(database, home or find_home()))
    relay = await shared.join(team)
    caller = Caller(team=team, agent=agent, operator=agent == PERSON)
    return InProcessTransport(relay, caller, on_close=shared.leave)


def _full_path(path: str | os.PathLike[str]) -> str:
    place = os.fspath(path)
    return place if place == MEMORY else str(Path(place).expanduser().resolve())


class _Shared:
    """A relay that runs as long as somebody uses it."""

    def __init__(self, database: str, home: Path) -> None:
        self._database = database
        self._home = home
        self._users = 0
        self._stack = AsyncExitStack()
        self._relay: Relay | None = None
        self._changing = asyncio.Lock()

    @property
    def used(self) -> bool:
        return self._users > 0

    async def join(self, team: str) -> Relay:
        async with self._changing:
            if self._relay is None:
                opened = open_relay(self._database, home=self._home, team=team)
                self._relay = await self._stack.enter_async_context(opened)
            else:
                await self._relay.ensure_team(team)
            self._users += 1
            return self._relay

    async def leave(self) -> None:
        async with self._changing:
            self._users -= 1
            if self._users == 0:
                self._relay = None
                await self._stack.aclose()


_EMBEDDED: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Shared]]] = (
    WeakKeyDictionary()
)


# --- generated files -----------------------------------------------------------------------------


def write_schemas(directory: Path) -> None:
    """Write the generated schemas, which are checked in, into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (directory / name).write_bytes(text)


def schemas() -> dict[str, bytes]:
    """Return every generated schema by the name of its file."""
    made = {"openapi.json": openapi.document(), "manifest.json": manifest.document()}
    return {
        name: msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        for name, document in made.items()
    }

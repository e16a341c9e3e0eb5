"""What `nodrop up` runs: a relay and its doors, and all that goes on beside them until it is stopped.

Beside them: outlets, checkpoints that leave, telemetry, findings, hourly pruning; the operator's credentials
and the address, for those who look for the relay.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from nodrop.app.checkpointed import hold_to
from nodrop.app.database import DATABASE, AddressFile, without_password
from nodrop.app.doors import A2A, HOST, listening
from nodrop.app.machine import KeyFile, Memory, SystemClock, SystemIds, allow_open_files
from nodrop.app.process import Registered, registered
from nodrop.app.relay import PERSON, TEAM, open_relay
from nodrop.client.auth.credentials import CredentialsFile
from nodrop.model.errors import NodropError, StoreFullError, UnauthenticatedError
from nodrop.model.limits import DEFAULT, Limits
from nodrop.outbound.outlets.checkpoints import Checkpoints, InFile, leaving, place_of
from nodrop.outbound.outlets.sender import Sender
from nodrop.outbound.telemetry.door import telling
from nodrop.protocol import extras
from nodrop.protocol.identity.key_views import LinkAnswer
from nodrop.protocol.requests import CreateLink
from nodrop.relay.coordination import rule_file
from nodrop.relay.ports import Ids
from nodrop.relay.relay import Caller, Relay, operator_of
from nodrop.servers.gate import LOOPBACK
from nodrop.servers.inprocess import InProcessTransport
from nodrop.servers.listener.server import ANY_ADDRESS, TLS

log = logging.getLogger("nodrop.relay")

PORT: Final = 6377
"""N-D-R-P on a phone."""
RETENTION: Final = "90d"
"""How long `nodrop up` keeps what is settled, unless told otherwise."""
_PRUNE_SECONDS: Final = 3_600
_IN_CLEAR: Final = (
    "Listening on {host} without TLS: tokens and payloads travel in clear. "
    "Give it a certificate (--tls-cert FILE), or put it behind a proxy that has one."
)

_BEGUN_ANEW: Final = (
    "{home} has the credentials of a relay and no database: an empty one was made at {database}. "
    "If there should be one, stop the relay and bring it back: nodrop restore FILE"
)


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What `nodrop up` has to tell once it listens."""

    url: str
    """For clients on this machine."""
    others: str | None = None
    """For clients elsewhere, where it listens on every address of this machine."""
    database: str
    credentials: Path
    sign_in: str | None = None
    """The address that signs the person in, once; None: it could not be stored."""
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
    dashboard: bool = True,
    watch: bool = True,
    access_log: bool = False,
    ready: Callable[[Served], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve the database in `home`, or the one at `store`, until a signal asks to end, or `stop`.

    What was settled longer than `keep_ms` ago is pruned; None keeps everything. `triggers` are the
    rules that a file holds; None leaves all rules as they are. `checkpoints` are sent away there.
    `allowed` are addresses that are not public and may be called all the same; on `grpc_port` A2A is
    spoken too. Without `dashboard` nothing is served at `/`; without `watch` the person is not told of
    loops, storms and orphaned work. With `access_log` each request is logged.

    Raises:
        StoreInUseError: another relay serves it; `address` says where.
        StoreFullError: there is no room for what must be written to begin.
        CheckpointMismatchError: the log is shorter than its own checkpoints say, or another one.
        UnavailableError: the address cannot be listened on.
    """
    stop = stop or asyncio.Event()
    allow_open_files()
    database = store or str(home / DATABASE)
    ids = SystemIds()
    prepared = asyncio.Event()
    begun_anew = _begun_anew(home) if store is None else ()
    with _signals_set(stop), _findable(home, name=ids.new()) as process:
        async with (
            open_relay(database, home=home, team=team, ids=ids, limits=limits) as relay,
            _held_to_checkpoints(relay, team, checkpoints, home) as restored,
            listening(
                relay,
                host=host,
                port=port,
                hosts=hosts,
                origins=origins,
                tls=tls,
                new_id=ids.new,
                a2a=A2A(team=team, home=home, allowed=allowed, grpc_port=grpc_port),
                dashboard=dashboard,
                access_log=access_log,
                prepared=prepared,
            ) as url,
            Sender(relay, clock=SystemClock()).running(),
            leaving(relay, team, checkpoints, clock=SystemClock()),
            telling(relay, team=team, clock=SystemClock(), environment=os.environ) as untold,
        ):
            ca = tls and str(tls.certificate.resolve())
            credentials = await _keep_credentials(relay, home, url=url, team=team, ids=ids, ca=ca)
            if store is not None:
                KeyFile(home / "keys" / "relay.pem").make()  # for the other nodes to have too
            if triggers is not None:
                await rule_file.follow(relay, operator_of(team), triggers)
            in_clear = () if tls or host in LOOPBACK else (_IN_CLEAR.format(host=host),)
            served = Served(
                url=url,
                others=_from_elsewhere(url) if host in ANY_ADDRESS else None,
                database=without_password(database),
                credentials=credentials.path,
                sign_in=await _sign_in_address(relay, url=url, team=team),
                warnings=(*in_clear, *untold, *restored, *begun_anew, *extras.not_served()),
            )
            file = AddressFile(home / DATABASE) if store is None else None
            with (
                _announced(url, file),
                _stopping_recorded(process, url),
                _pruned_hourly(relay, team, keep_ms),
                _watched(relay, team, watch=watch),
                _memory_given_back(relay),
            ):
                prepared.set()
                log.info("serving %s at %s", served.database, served.url)
                ready(served)
                await stop.wait()


def _begun_anew(home: Path) -> Sequence[str]:
    """Return what to tell where a relay ran before, and its database is gone."""
    database = home / DATABASE
    if database.exists() or CredentialsFile(home).read().operator is None:
        return ()
    told = _BEGUN_ANEW.format(home=home, database=database)
    log.warning("%s", told)
    return (told,)


@asynccontextmanager
async def _held_to_checkpoints(
    relay: Relay, team: str, checkpoints: Checkpoints | None, home: Path
) -> AsyncGenerator[Sequence[str]]:
    """Compare the log with the relay's own checkpoints, where they are in a file."""
    place = None if checkpoints is None else place_of(checkpoints.to)
    if not isinstance(place, InFile):
        yield ()
        return
    call = InProcessTransport(relay, operator_of(team)).call
    told = await hold_to(place.path, team=team, home=home, call=call)
    yield () if told is None else (told,)


@contextmanager
def _announced(url: str, file: AddressFile | None) -> Generator[None]:
    """Tell those who find the database locked where it is served; None: it never is locked."""
    if file is None:
        yield
        return
    try:
        file.write(url)
    except StoreFullError as error:
        # Nobody but those who find the database locked needs it: what is stored can be read.
        log.warning("the disk is full, and the relay serves all the same: %s", error)
    try:
        yield
    finally:
        file.remove()


@contextmanager
def _findable(home: Path, *, name: str) -> Generator[Registered]:
    """Let `nodrop stop` find this process, where it is one that signals stop gracefully."""
    if threading.current_thread() is not threading.main_thread():
        yield Registered(None)
        return
    with registered(home, name) as process:
        yield process


@contextmanager
def _stopping_recorded(process: Registered, url: str) -> Generator[None]:
    """Record the address, and at the end of the block that the relay is stopping."""
    process.listens(url)
    try:
        yield
    finally:
        process.stops()


@contextmanager
def _pruned_hourly(relay: Relay, team: str, keep_ms: int | None) -> Generator[None]:
    """Prune while the block runs; None: keep everything."""
    if keep_ms is None:
        yield
        return
    pruning = asyncio.create_task(_prune_hourly(relay, team, keep_ms))
    try:
        yield
    finally:
        pruning.cancel()


@contextmanager
def _watched(relay: Relay, team: str, *, watch: bool) -> Generator[None]:
    """Tell the person of patterns in the log while the block runs; one of several relays does."""
    if not watch:
        yield
        return
    follow = partial(relay.findings.follow, team)
    following = asyncio.create_task(relay.duties.hold(f"findings/{team}", follow))
    try:
        yield
    finally:
        following.cancel()


@contextmanager
def _memory_given_back(relay: Relay) -> Generator[None]:
    """Give free memory back to the system while the block runs."""
    giving = asyncio.create_task(Memory(relay.shed).give_back())
    try:
        yield
    finally:
        giving.cancel()


async def _prune_hourly(relay: Relay, team: str, keep_ms: int) -> None:
    while True:
        try:
            await relay.prune(team, older_than_ms=keep_ms)
        except NodropError:
            log.exception("could not prune; trying again in an hour")
        await asyncio.sleep(_PRUNE_SECONDS)


async def _keep_credentials(
    relay: Relay, home: Path, *, url: str, team: str, ids: Ids, ca: str | None
) -> CredentialsFile:
    """Write down where the relay is and the operator's token, made anew if it is no longer one."""
    file = CredentialsFile(home)
    known = file.read()
    token = known.operator
    if token is None or not await _is_operator(relay, token, team):
        token = f"nd_{ids.secret()}"
        await relay.ensure_token(team, agent=PERSON, role="operator", secret=token)
    file.write(msgspec.structs.replace(known, url=url, ca=ca, team=team, operator=token))
    return file


def _from_elsewhere(url: str) -> str:
    """Return the address of a relay by the name of this machine."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{socket.gethostname()}:{parts.port}"


async def _sign_in_address(relay: Relay, *, url: str, team: str) -> str | None:
    """Return an address that signs the person in, once, within 15 minutes."""
    person = Caller(team=team, agent=PERSON, operator=True)
    try:
        answer = (await relay.call(person, "create_link", CreateLink())).answer
    except NodropError as error:
        log.warning("could not make a sign-in link; `nodrop open` makes one: %s", error)
        return None
    assert isinstance(answer, LinkAnswer), "the answer to `create_link`"
    return url + answer.path


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
        log.info("stopping: a signal asked for it")
        restore()
        stop.set()

    for number in ours:
        loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        restore()

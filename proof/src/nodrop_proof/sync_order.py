"""No answer leaves before the sync of its commit: counted from what happened, in order.

Every command carries a mark of its own, which turns up in the pages that its commit writes and in
its answer. An answer is early if it is sent before a sync that began after the first write of its
mark has ended. Nothing is asked of the relay: the happenings come from the system calls of a relay
process, seen by strace, or from a disk in memory under a relay in this process.

`nodrop prove sync-order` is the first, on Linux where strace is installed.
"""

import asyncio
import itertools
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from nodrop.client.auth.tokens import FixedToken
from nodrop.client.transports.http import HttpTransport
from nodrop.client.transports.transport import Transport
from nodrop.client.transports.websocket import WebSocketTransport
from nodrop.model.errors import UnavailableError
from nodrop.relay.relay import Caller
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock
from nodrop_proof.chaos.in_process import SYNCHRONOUS_NORMAL, Host
from nodrop_proof.chaos.relay_process import END_SECONDS_MAX, RelayProcess, environment
from nodrop_proof.kit.powercut import Doing, PowerCutDisk

MARK: Final = re.compile(rb"ndmark-\d+-end")
WRITE_AHEAD_LOG: Final = "-wal"
SENDER: Final = "sender"
RECIPIENT: Final = "recipient"


class What(Enum):
    """What can happen."""

    WRITTEN = "written to the write-ahead log"
    SYNCING = "a sync of it begins"
    SYNCED = "a sync of it has ended"
    SENT = "sent to somebody"


Happening = tuple[What, bytes]
"""What happened, and the bytes that were written or sent."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted."""

    commits: int
    """Syncs of the write-ahead log that something new was covered by."""
    answers: int
    early: int
    """Answers that left before the sync of their commit."""


def count(happenings: Iterable[Happening]) -> Order:
    """Return how many answers there were, and how many of them were early."""
    written: set[bytes] = set()
    covered: set[bytes] = set()
    synced: set[bytes] = set()
    answered: set[bytes] = set()
    commits = early = 0
    for what, data in happenings:
        match what:
            case What.WRITTEN:
                written.update(mark for mark in MARK.findall(data) if mark not in synced)
            case What.SYNCING:
                covered, written = written, set()
            case What.SYNCED:
                commits += bool(covered)
                synced |= covered
            case What.SENT:
                told = set(MARK.findall(data)) - answered
                early += len(told - synced)
                answered |= told
    return Order(commits=commits, answers=len(answered), early=early)


# --- the load -----------------------------------------------------------------------------------


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who hands off, and somebody who works."""

    sender: Transport
    recipient: Transport


class Load:
    """Handoffs from offer to result: three commands, three commits, three answers each."""

    COMMANDS: Final = 3

    def __init__(self) -> None:
        self._numbers = itertools.count()

    async def one_by_one(self, pairs: Sequence[Pair], handoffs: int) -> None:
        """Carry through one handoff after the other."""
        for _, pair in zip(range(handoffs), itertools.cycle(pairs), strict=False):
            await self._carry_through(pair)

    async def at_once(self, pairs: Sequence[Pair], handoffs: int) -> None:
        """Carry through as many at once as there are pairs: they share commits."""
        left = iter(range(handoffs))

        async def go_on(pair: Pair) -> None:
            for _ in left:
                await self._carry_through(pair)

        async with asyncio.TaskGroup() as group:
            for pair in pairs:
                group.create_task(go_on(pair))

    async def _carry_through(self, pair: Pair) -> None:
        offer = {"to": RECIPIENT, "title": self._mark()}
        offered = await self._command(pair.sender, "offer", offer)
        handoff = offered["id"]
        acked = await self._command(pair.recipient, "ack", {"status": self._mark()}, handoff)
        result = {"attempt": acked["attempt"], "result": self._mark()}
        await self._command(pair.recipient, "complete", result, handoff)

    async def _command(
        self, door: Transport, operation: str, fields: dict[str, Any], handoff: str | None = None
    ) -> dict[str, Any]:
        command_id = f"command-{next(self._numbers)}"
        fields = fields | {"command_id": command_id}
        return (await door.call(operation, fields, handoff=handoff))["handoff"]

    def _mark(self) -> str:
        return f"ndmark-{next(self._numbers)}-end"


# --- a relay in this process --------------------------------------------------------------------


async def in_process(
    folder: Path,
    *,
    handoffs: int,
    pairs: int,
    controls: frozenset[str] = frozenset(),
    seed: int = 0,
) -> Order:
    """Return what was counted on a disk in memory. Controls: those of `chaos.in_process`."""
    happenings: list[Happening] = []
    random = Random(seed)  # noqa: S311  # to be repeated
    disk = PowerCutDisk("nodrop-sync-order", random)

    def watch(what: Doing, name: str, data: bytes) -> None:
        if name.endswith(WRITE_AHEAD_LOG) and what is Doing.WRITE:
            happenings.append((What.WRITTEN, data))
        elif name.endswith(WRITE_AHEAD_LOG) and what is Doing.SYNC:
            happenings.extend([(What.SYNCING, b""), (What.SYNCED, b"")])

    disk.watcher = watch
    host = Host(folder / "sync-order.db", disk, clock=FakeClock(), random=random, controls=controls)
    try:
        async with host.opened() as (store, _), host.relay_on(store) as relay:
            sender, recipient = (
                _Heard(InProcessTransport(relay, Caller(team="default", agent=agent)), happenings)
                for agent in (SENDER, RECIPIENT)
            )
            load = Load()
            several = [Pair(sender=sender, recipient=recipient)] * pairs
            await load.one_by_one(several, handoffs)
            await load.at_once(several, handoffs)
    finally:
        disk.unregister()
    return count(happenings)


class _Heard:
    """A way to a relay that keeps what comes back over it."""

    def __init__(self, door: InProcessTransport, happenings: list[Happening]) -> None:
        self.deliveries = door.deliveries
        self.close = door.close
        self._door = door
        self._happenings = happenings

    async def call(
        self,
        operation: str,
        fields: Any,
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        answer = await self._door.call(operation, fields, handoff=handoff, name=name)
        self._happenings.append((What.SENT, msgspec.json.encode(answer)))
        return answer


# --- a relay under strace -----------------------------------------------------------------------

STRACE: Final = (
    "strace",
    "--follow-forks",
    "--quiet=all",
    "--decode-fds=path",
    "--string-limit=100000",
    "--trace=write,writev,sendto,sendmsg,sendmmsg,pwrite64,pwritev,pwritev2,fsync,fdatasync",
)
PAIRS: Final = 16
_WEAKENED: Final = (
    "from nodrop_proof.kit.eager import weaken_sync; weaken_sync();"
    "from nodrop.cli import main; main()"
)


async def traced(folder: Path, *, commits: int, controls: frozenset[str] = frozenset()) -> Order:
    """Return what was counted of a relay process: so many commits one by one, and again at once.

    Control: `synchronous=NORMAL`.

    Raises:
        UnavailableError: there is no strace, or it may not trace.
    """
    if shutil.which(STRACE[0]) is None:
        raise UnavailableError("strace is not installed")
    handoffs = -(-commits // Load.COMMANDS)
    trace = folder / "trace"
    async with _TracedRelay(folder / "relay", trace, controls) as relay, _pairs(relay) as pairs:
        load = Load()
        await load.one_by_one(pairs, handoffs)
        await load.at_once(pairs, handoffs)
    with trace.open("rb") as lines:
        return count(happenings_of(lines))


class _TracedRelay(RelayProcess):
    """`nodrop up` under strace."""

    def __init__(self, home: Path, trace: Path, controls: frozenset[str]) -> None:
        super().__init__(home)
        self._trace = trace
        weakened = SYNCHRONOUS_NORMAL in controls
        self._nodrop = ("-c", _WEAKENED) if weakened else ("-m", "nodrop.cli")

    async def spawn(self) -> Process:
        self.home.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as complaints:
            self._process = await asyncio.create_subprocess_exec(
                *(*STRACE, f"--output={self._trace}"),
                *(sys.executable, *self._nodrop, "up", "--json", "--port", "0"),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=complaints,
                env=environment(self.home),
                cwd=self.home,
                start_new_session=True,
            )
        return self._process

    async def stop(self) -> None:
        """End the relay. strace itself hears no signal, and ends with it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(TimeoutError, ProcessLookupError):
                os.killpg(self.pid, number)
                async with asyncio.timeout(END_SECONDS_MAX):
                    if self._process is not None:
                        await self._process.wait()
                return


@asynccontextmanager
async def _pairs(relay: RelayProcess) -> AsyncGenerator[list[Pair]]:
    """Connect as senders and recipients, half of them over HTTP and half over WebSocket."""
    async with AsyncExitStack() as stack, relay.operator() as me:
        pairs: list[Pair] = []
        for number in range(PAIRS):
            ways: list[Transport] = []
            for agent in (SENDER, RECIPIENT):
                minted = await me.call("create_token", {"agent": agent})
                token = FixedToken(minted["token"])
                channel = relay.url.replace("http", "ws", 1) + "/v1/channel"
                way: Transport = (
                    HttpTransport(f"{relay.url}/v1", token)
                    if number % 2
                    else WebSocketTransport(channel, token)
                )
                stack.push_async_callback(way.close)
                ways.append(way)
            pairs.append(Pair(sender=ways[0], recipient=ways[1]))
        yield pairs


_CALL: Final = re.compile(rb"(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>|\((?:\d+)<([^>]*)>)")
_SYNCS: Final = frozenset({b"fsync", b"fdatasync"})
_UNFINISHED: Final = b"<unfinished ...>"
_DONE: Final = re.compile(rb"\) += 0$")


def happenings_of(lines: Iterable[bytes]) -> Iterator[Happening]:
    """Yield what a trace tells, in its order. A line of strace stands where its call began."""
    syncing: set[bytes] = set()
    """Threads that are in the middle of a sync of the write-ahead log."""
    for line in lines:
        found = _CALL.match(line)
        if found is None:
            continue
        thread, call, path = found.groups()
        if call in _SYNCS:
            if path is not None and path.endswith(WRITE_AHEAD_LOG.encode()):
                syncing.add(thread)
                yield What.SYNCING, b""
            if thread in syncing and _UNFINISHED not in line:
                syncing.discard(thread)
                if _DONE.search(line.rstrip()):
                    yield What.SYNCED, b""
        elif path is None:
            continue  # the end of a call that has been told of
        elif path.endswith(WRITE_AHEAD_LOG.encode()):
            yield What.WRITTEN, line
        elif path.startswith(b"socket:"):
            yield What.SENT, line

"""`python -m nodrop_proof.bench.relay_cost`: what a cycle costs the relay alone, in one process.

A worker and a requester say over two connections what the SDK says, without sockets and without the
SDK: what is measured is the relay from the message that came to the message that goes. Under
`valgrind --tool=callgrind`, the difference of two runs with different numbers of cycles gives
instructions, which other work on the machine does not change.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from nodrop.app import SystemIds
from nodrop.app.relay import open_relay
from nodrop.app.running import run
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.websocket.connection import Connection
from nodrop.servers.websocket.frames import Hello
from nodrop.servers.websocket.outbox import Outbox
from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.cycle import CONCURRENCY, REQUESTER, WORKER, Ask
from nodrop_proof.bench.ours import CAPABILITY, worker

_HEARTBEAT_SECONDS: Final = 10.0
_TEAM: Final = "default"
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode


class Client:
    """One end of a connection to a relay in the same process."""

    can_write = True

    def __init__(self, relay: Relay, agent: str, *, works: bool) -> None:
        self.hear: Callable[[dict[str, Any]], None] = lambda _: None
        limits = relay.limits
        outbox = Outbox(
            self,
            flushes=relay.flushes,
            bytes_max=limits.outgoing_bytes_max,
            frame_bytes_max=limits.frame_bytes_max,
        )
        outbox.batch = True
        self._connection = Connection(
            relay,
            Caller(team=_TEAM, agent=agent),
            Hello(batch=True, heartbeat_seconds=_HEARTBEAT_SECONDS if works else None),
            process=f"{agent}-process",
            outbox=outbox,
        )
        self._ids = itertools.count(1)
        self._said: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._unread: deque[bytes] = deque()
        self._reading: asyncio.Task[None] | None = None
        """Reads what the relay did not take at once; what comes meanwhile waits behind it."""

    def say(self, operation: str, **fields: Any) -> int:
        """Send a frame; frames of one turn of the event loop share a message."""
        if not self._said:
            self._loop.call_soon(self._send)
        number = next(self._ids)
        self._said.append(_encode({"op": operation, "id": number, **fields}))
        return number

    def _send(self) -> None:
        said, self._said = self._said, []
        message = said[0] if len(said) == 1 else b"[%b]" % b",".join(said)
        if self._reading is not None:
            self._unread.append(message)
        elif not self._connection.take(message):
            self._unread.append(message)
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while self._unread:
            await self._connection.receive(self._unread.popleft())
        self._reading = None

    def write(self, messages: Sequence[bytes]) -> None:
        """Take what the relay says: this is the connection's channel."""
        for message in messages:
            for frame in _decode(message if message.startswith(b"[") else b"[%b]" % message):
                if "error" in frame:
                    raise AssertionError(frame["error"])
                self.hear(frame)

    def attach(self, take: Callable[[bytes], bool], drained: Callable[[], None]) -> None:
        """Nothing comes from here but by `say`."""

    def detach(self) -> None:
        """Nothing was attached."""

    async def close(self) -> None:
        """End the connection."""
        await self._connection.close()


class Works:
    """A worker that acknowledges and completes what it is given, as the SDK's does."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._acked: dict[int, tuple[str, Ask]] = {}
        self._new_id = SystemIds().new
        self._registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        client.hear = self._hear

    async def register(self) -> None:
        """Say what it can do, and take deliveries."""
        manifest = worker().manifest()
        self._client.say("register", manifest=manifest, command_id=self._new_id(), name=WORKER)
        await self._registered
        self._client.say("credit", n=CONCURRENCY)

    def _hear(self, frame: dict[str, Any]) -> None:
        if frame.get("push") == "delivery":
            handoff = frame["delivery"]["handoff"]
            number = self._report(handoff["id"], "ack")
            self._acked[number] = (handoff["id"], handoff["payload"])
        elif (acked := self._acked.pop(frame["id"], None)) is not None:
            handoff_id, asked = acked
            self._report(handoff_id, "complete", result=cycles.result(asked))
            self._client.say("credit", n=1)
        elif not self._registered.done():
            self._registered.set_result(None)

    def _report(self, handoff_id: str, operation: str, **fields: Any) -> int:
        return self._client.say(
            operation,
            handoff_id=handoff_id,
            attempt=1,
            **fields,
            command_id=self._new_id(),
            bare=True,
        )


class Requests:
    """A requester that makes offers, awaits their outcomes and settles them, as the SDK does."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked: dict[int, Ask] = {}
        self._left = 0
        self._settled: set[int] = set()
        self._done: asyncio.Future[None] | None = None
        client.hear = self._hear

    async def run(self, count: int, callers: int) -> None:
        """Carry out `count` cycles, `callers` of them at a time."""
        self._left = count
        self._done = asyncio.get_running_loop().create_future()
        for _ in range(min(callers, count)):
            self._begin()
        await self._done

    def _begin(self) -> None:
        self._left -= 1
        key = cycles.fresh_key()
        asked = cycles.payload(key)
        number = self._client.say(
            "offer",
            to=WORKER,
            capability=CAPABILITY,
            payload=asked,
            idempotency_key=key,
            brief=True,
            follow=True,
        )
        self._asked[number] = asked

    def _hear(self, frame: dict[str, Any]) -> None:
        number = frame["id"]
        if "outcome" not in frame:
            return
        cycles.check(self._asked.pop(number), frame["outcome"]["result"])
        self._client.say("settle", handoff_id=frame["handoff"]["id"], quiet=True)
        if self._left:
            self._begin()
        elif not self._asked and self._done is not None:
            self._done.set_result(None)


@asynccontextmanager
async def _served(folder: Path) -> AsyncGenerator[Requests]:
    async with open_relay(folder / "nodrop.db", home=folder) as relay:
        works, requests = Client(relay, WORKER, works=True), Client(relay, REQUESTER, works=False)
        worker_ = Works(works)
        await worker_.register()
        yield Requests(requests)
        await requests.close()
        await works.close()


async def measure(folder: Path, *, callers: int, count: int) -> tuple[float, float]:
    """Return wall and processor time of a cycle, in microseconds."""
    async with _served(folder) as requests:
        await requests.run(max(count // 5, 1), callers)  # warm up
        began, used = time.perf_counter(), time.process_time()
        await requests.run(count, callers)
        ran, used = time.perf_counter() - began, time.process_time() - used
    return ran / count * 1e6, used / count * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="relay_cost", description=__doc__)
    parser.add_argument("--callers", default="64,1", help="numbers of callers, with commas between")
    parser.add_argument("--cycles", type=int, default=4_000, help="how many cycles are measured")
    options = parser.parse_args()
    for callers in map(int, options.callers.split(",")):
        with tempfile.TemporaryDirectory(prefix="nodrop-cost-") as folder:
            wall, used = run(measure(Path(folder), callers=callers, count=options.cycles))
        sys.stdout.write(f"{callers:>4} callers: {wall:7.1f} us, {used:7.1f} us of the processor\n")


if __name__ == "__main__":
    main()

"""`python -m nodrop_proof.bench.calls`: the functions of ours that one request passes through.

A relay is served in this thread and traced with `sys.setprofile`; its clients are in another, which is
not traced. Two requests are followed: a `complete` over WebSocket up to the requester who waits for the
outcome, and a `POST /v1/handoffs`. Calls of named functions are counted; comprehensions, lambdas and
coroutines that go on after a wait are not. Each is followed several times and the shortest is shown:
timers may fall into one.
"""

import argparse
import asyncio
import http.client
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import nodrop
from nodrop.app.serving import Served, serve

CALLS_MAX: Final = 80
FILES_MAX: Final = 25
_TRIES: Final = 7
_OURS: Final = str(Path(nodrop.__file__).parent)
_WAIT_SECONDS_MAX: Final = 30.0


class Trail:
    """The functions that one request has passed through, with how often."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()

    def see(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call, as `sys.setprofile` tells of it."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_OURS):
            return
        if code.co_name.startswith("<") or frame.f_lasti > _FIRST_INSTRUCTIONS:
            return
        self.calls[code] += 1

    @property
    def total(self) -> int:
        """How many calls there were."""
        return self.calls.total()

    @property
    def files(self) -> int:
        """In how many files."""
        return len({code.co_filename for code in self.calls})


_FIRST_INSTRUCTIONS: Final = 8
"""A coroutine that begins stands before this; one that goes on stands at its await."""


class Traced:
    """A relay that is served in the main thread, and its clients in another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, served: Served, token: str) -> None:
        self._loop = loop
        self.url = served.url
        self.token = token
        self.home = served.credentials.parent

    @contextmanager
    def followed(self) -> Generator[Trail]:
        """Count what the relay calls while the block runs."""
        path = Trail()
        self._set(path.see)
        try:
            yield path
        finally:
            self._set(None)

    def _set(self, see: Callable[..., None] | None) -> None:
        done = threading.Event()

        def change() -> None:
            sys.setprofile(see)
            done.set()

        self._loop.call_soon_threadsafe(change)
        assert done.wait(_WAIT_SECONDS_MAX), "the relay stands still"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


async def _shortest(of: Callable[[], Awaitable[Trail]]) -> Trail:
    paths = [await of() for _ in range(_TRIES)]
    return min(paths, key=lambda path: path.total)


async def _completes(relay: Traced) -> Trail:
    """Follow a `complete` up to the requester."""
    may_end = asyncio.Event()
    begun = asyncio.Event()
    agent = nodrop.Agent("worker")

    @agent.capability("work")
    async def work(task: nodrop.Task, n: int) -> dict[str, int]:  # noqa: ARG001  # as the README has it
        begun.set()
        await may_end.wait()
        may_end.clear()
        return {"n": n}

    working = asyncio.create_task(agent.serve(home=relay.home))
    try:
        async with nodrop.connect(agent="me", home=relay.home) as me:

            async def once() -> Trail:
                begun.clear()
                handoff = await me.hand_off(to="worker", title="Traced", payload={"n": 1})
                await begun.wait()
                await asyncio.sleep(0.2)  # the relay is idle again
                with relay.followed() as path:
                    may_end.set()
                    await handoff.result()
                return path

            return await _shortest(once)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _posts(relay: Traced) -> Trail:
    """Follow an offer over HTTP, on a connection that is open."""
    host, port = relay.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port))
    headers = {"authorization": f"Bearer {relay.token}", "content-type": "application/json"}
    body = json.dumps({"to": "nobody_yet", "title": "Traced", "payload": {"n": 1}})

    def post() -> None:
        connection.request("POST", "/v1/handoffs", body, headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == http.HTTPStatus.CREATED, answer.status

    await asyncio.to_thread(post)

    async def once() -> Trail:
        await asyncio.sleep(0.2)
        with relay.followed() as path:
            await asyncio.to_thread(post)
        return path

    return await _shortest(once)


def _show(what: str, path: Trail, *, every: bool) -> bool:
    holds = path.total <= CALLS_MAX and path.files <= FILES_MAX
    _say(f"{what}: {path.total} calls of {len(path.calls)} functions in {path.files} files")
    if every:
        for code, times in sorted(path.calls.items(), key=lambda item: item[0].co_filename):
            name = code.co_filename.removeprefix(_OURS)
            _say(f"  {times:3} {name.lstrip('/')}: {code.co_qualname}")
    return holds


async def _trace(home: Path, *, every: bool) -> bool:
    ready: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    serving = asyncio.create_task(
        serve(home, port=0, dashboard=False, ready=ready.set_result, stop=stop)
    )
    served = await ready
    token = json.loads(served.credentials.read_text())["operator"]
    relay = Traced(asyncio.get_running_loop(), served, token)

    def follow() -> bool:
        async def both() -> bool:
            complete = await _completes(relay)
            post = await _posts(relay)
            first = _show("complete over WebSocket, up to the requester", complete, every=every)
            second = _show("POST /v1/handoffs", post, every=every)
            _say(f"At most {CALLS_MAX} calls in {FILES_MAX} files are wanted.")
            return first and second

        return asyncio.run(both())

    try:
        return await asyncio.to_thread(follow)
    finally:
        stop.set()
        await serving


def main() -> None:
    """Trace both requests; fail where one passes through too much."""
    parser = argparse.ArgumentParser(prog="calls", description=__doc__)
    parser.add_argument("--all", action="store_true", help="name every function")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nodrop-calls-") as folder:
        holds = asyncio.run(_trace(Path(folder), every=options.all))
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()

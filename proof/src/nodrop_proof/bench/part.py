"""`python -m nodrop_proof.bench.part ROLE ORDER`: one process of a system under test.

Run with the interpreter of the environment that the system lives in. ORDER is a JSON document. A
server and a worker end when their standard input does, so that none outlives whoever started it.
"""

import asyncio
import functools
import os
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec

from nodrop_proof.bench import driving
from nodrop_proof.bench.cpu import used_seconds
from nodrop_proof.bench.driving import Measure, Window
from nodrop_proof.bench.system import Blocking, Load, load, state

STATE: Final = "state"
SERVER: Final = "server"
WORKER: Final = "worker"
REQUESTER: Final = "requester"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a part is to do."""

    system: str
    folder: str = ""
    address: str = ""
    load: Load = Load(callers=1)
    window: Window = Window()
    others: tuple[int, ...] = ()
    """The other processes of the system, whose processor time counts too."""


def main() -> None:
    """Play one part."""
    role, order = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Order)
    if role == STATE:
        _say(state(load(order.system).ABOUT))
        return
    import uvloop  # noqa: PLC0415  # every asyncio client gets the same loop, ours and theirs

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if role == SERVER:
            runner.run(_serve(order))
        elif role == WORKER:
            _end_with_input()
            runner.run(load(order.system).work(order.address))
        else:
            _say(runner.run(_request(order)))
    sys.stdout.flush()
    os._exit(0)  # callers that are lost may be threads, which nothing else would end


async def _serve(order: Order) -> None:
    system = load(order.system)
    async with system.server(Path(order.folder)) as address:
        _say(address)
        await asyncio.to_thread(sys.stdin.read)


async def _request(order: Order) -> Measure:
    cpu = functools.partial(used_seconds, {*order.others, os.getpid()})
    async with load(order.system).requester(order.address, order.load) as cycle:
        if isinstance(cycle, Blocking):
            return driving.drive_threads(
                cycle.cycle, callers=order.load.callers, window=order.window, cpu=cpu
            )
        return await driving.drive(cycle, callers=order.load.callers, window=order.window, cpu=cpu)


def _end_with_input() -> None:
    def watch() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _say(what: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

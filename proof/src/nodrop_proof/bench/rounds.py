"""Every system in turn, round after round, so that what disturbs one disturbs all alike."""

import shutil
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from nodrop.model.errors import UnavailableError
from nodrop_proof.bench import system
from nodrop_proof.bench.driving import Measure, Window
from nodrop_proof.bench.machine import Machine
from nodrop_proof.bench.plan import Plan
from nodrop_proof.bench.report import Report, Sample
from nodrop_proof.bench.stage import Environment, Stage, staged
from nodrop_proof.bench.system import Load, Progress


async def run(plan: Plan, progress: Progress) -> Report:
    """Measure the systems of the plan, interleaved."""
    about = {name: system.load(name).ABOUT for name in plan.systems}
    versions: dict[str, dict[str, str]] = {}
    absent: dict[str, tuple[str, ...]] = {}
    present: dict[str, Environment] = {}
    for name, said in about.items():
        environment = plan.ours if said.ours else plan.peers
        if environment is None:
            absent[name] = ("an environment for peers",)
            continue
        state = await environment.state(name)
        if state.missing:
            absent[name] = state.missing
        else:
            versions[name] = state.versions
            present[name] = environment
    machine = Machine.look(plan.folder)
    samples: list[Sample] = []
    total = plan.rounds * sum(len(plan.loads or about[name].loads) for name in present)
    for number in range(1, plan.rounds + 1):
        for name in _rotated(list(present), number - 1):
            progress(f"round {number}: {about[name].title}", len(samples), total)
            folder = plan.folder / f"{number}-{name}"
            folder.mkdir()
            loads = plan.loads or about[name].loads
            staging = staged(name, environment=present[name], folder=folder)
            for load, measure in await _measures(staging, loads, plan.window):
                samples.append(Sample(system=name, load=load, round=number, measure=measure))
            shutil.rmtree(folder)
    return Report(
        machine=machine,
        rounds=plan.rounds,
        window=plan.window,
        about=about,
        versions=versions,
        absent=absent,
        samples=samples,
    )


async def _measures(
    staging: AbstractAsyncContextManager[Stage], loads: Sequence[Load], window: Window
) -> list[tuple[Load, Measure]]:
    measures: dict[Load, Measure] = {}
    try:
        async with staging as stage:
            for load in loads:
                measures[load] = await stage.measure(load, window)
    except UnavailableError as error:
        for load in loads:
            measures.setdefault(load, Measure(failure=error.detail))
    return list(measures.items())


def _rotated(names: list[str], by: int) -> list[str]:
    """Return the names beginning elsewhere: who comes first must not always be the same."""
    start = by * len(names) // 3 % len(names) if names else 0
    return names[start:] + names[:start]

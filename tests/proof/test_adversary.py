"""An agent that does everything it may: how much of it the relay lets it have, wave by wave.

Counts, memory and the processor time of the event loop; how long others wait is for `nodrop prove
adversary` on a quiet machine. Each wave has a control: with the bound away that it runs into, it has more.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from nodrop_proof.adversary import run as proof
from nodrop_proof.adversary.waves import CONTROLS, WAVES

SECONDS = 5.0
SMALL = {
    "connections_per_agent_max": 200,
    "polls_per_agent_max": 50,
    "topics_max": 40,
    "tokens_per_agent_max": 10,
    "open_handoffs_max": 20,
    "page_bytes_max": 1_048_576,
    "outgoing_bytes_max": 2_097_152,
    "outgoing_bytes_per_agent_max": 4_194_304,
}
"""Bounds that are met within seconds."""
BOUNDS = {
    "connections": 200,
    "polls": 50,
    "topics": 40,
    "tokens": 10,
    "unfinished handoffs": 20,
    "bytes of an answer": 2_500_000,
}
"""What the adversary may then have."""


async def ran(folder: Path, wave: str, more: Mapping[str, int]) -> proof.Report:
    plan = proof.Plan(
        seconds=SECONDS + 12,
        wave_seconds=SECONDS,
        before_seconds=1.0,
        after_seconds=0.0,
        large=20,
        waves=(wave,),
        limits={**SMALL, **more},
        bounds=BOUNDS,
        turns=1,
    )
    return await proof.run(plan, folder, lambda _: None)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wave", WAVES)
async def test_an_adversary_has_no_more_than_it_may(wave: str, tmp_path: Path) -> None:
    report = await ran(tmp_path, wave, {})
    assert report.exceeded() == []
    assert report.restarts == 0
    assert report.peak_mb <= proof.PEAK_MB_MAX
    assert report.busy_ms <= proof.BUSY_MS_MAX
    assert [told.name for told in report.waves] == [wave]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wave", WAVES)
async def test_without_its_bound_it_has_more(wave: str, tmp_path: Path) -> None:
    report = await ran(tmp_path, wave, CONTROLS[wave])
    assert report.exceeded()

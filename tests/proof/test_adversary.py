"""An agent that does everything it may: nothing restarts, and memory is bounded. How long others wait is
for `nodrop prove adversary` on a quiet machine.
"""

from pathlib import Path

import pytest

from nodrop_proof.adversary import run as proof

SECONDS = 20.0


async def ran(folder: Path, *waves: str, program: str = "nodrop.cli") -> proof.Report:
    plan = proof.Plan(
        seconds=SECONDS,
        wave_seconds=4.0,
        before_seconds=2.0,
        after_seconds=0.0,
        waves=waves,
        program=program,
    )
    return await proof.run(plan, folder, lambda _: None)


@pytest.mark.timeout(180)
async def test_a_relay_lives_through_it_within_its_memory(tmp_path: Path) -> None:
    report = await ran(tmp_path, "schemas", "sockets", "unread", "bodies")
    assert report.restarts == 0
    assert report.peak_mb <= proof.PEAK_MB_MAX
    assert report.handoffs > 0

"""A worker of each framework dies in the middle: another goes on, and there is one outcome."""

import json

import pytest

from report import Report
from story import WAIT_SECONDS_MAX, entries, heard, tell
from troupe import TARGETS, Troupe, stage_of


@pytest.mark.parametrize("agent", TARGETS)
async def test_what_a_killed_worker_held_is_done_by_another(
    troupe: Troupe, report: Report, agent: str
) -> None:
    stage = stage_of(agent)
    with report.showing("killed", agent):
        await troupe.full(stage, 2)
        async with troupe.connected("origin") as me:
            handoff = await tell(me, agent, "hold", attempts_max=3)
            killed = int(await troupe.noted(f"held-{handoff.id}"))
            troupe.kill(stage, killed)
            result = await handoff.result(wait=WAIT_SECONDS_MAX)
            happened = await entries(me, handoff)
        assert json.loads(heard(result).heard)["pid"] != killed
        assert handoff.attempt > 1
        assert happened.count("handoff.completed.v1") == 1
        assert not {"handoff.failed.v1", "handoff.expired.v1"} & set(happened)


async def test_without_another_try_the_kill_would_be_the_end(troupe: Troupe) -> None:
    """The control of the one above: it is the relay's redelivery that saves it."""
    await troupe.full("langgraph", 2)
    async with troupe.connected("origin") as me:
        handoff = await tell(me, "langgraph", "hold", attempts_max=1)
        troupe.kill("langgraph", int(await troupe.noted(f"held-{handoff.id}")))
        outcome = await handoff.outcome(wait=WAIT_SECONDS_MAX)
    assert (outcome.state, outcome.code) == ("failed", "attempts_exhausted")

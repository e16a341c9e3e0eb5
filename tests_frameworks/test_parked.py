"""A question outlives the process that asked it: parked by one, answered, resumed by another."""

import pytest

from report import Report
from story import ANSWER, WAIT_SECONDS_MAX, answered, blocked, heard, tell
from troupe import TARGETS, Troupe, stage_of

LIVE = {"crewai", "crewai_crew", "smolagents"}
"""Who holds its run while it asks: nothing of it can be saved."""


@pytest.mark.parametrize("agent", [agent for agent in TARGETS if agent not in LIVE | {"a2a"}])
async def test_a_parked_run_goes_on_in_another_process(
    troupe: Troupe, report: Report, agent: str
) -> None:
    stage = stage_of(agent)
    async with troupe.connected("origin") as me:
        handoff = await tell(me, agent, "ask")
        await blocked(me, handoff)
        troupe.kill(stage)
        await troupe.full(stage, 1)
        await answered(me, handoff)
        result = await handoff.result(wait=WAIT_SECONDS_MAX)
    assert heard(result).heard == ANSWER
    assert handoff.attempt > 1
    report.saw("parked", agent)


async def test_the_relay_keeps_parked_state_that_it_cannot_read(troupe: Troupe) -> None:
    async with troupe.connected("origin") as me, troupe.connected("me") as operator:
        handoff = await tell(me, "pydantic_ai", "ask")
        await blocked(me, handoff)
        kept = [entry.body for entry in await operator.log(handoff_id=handoff.id, limit=200)]
        await answered(me, handoff)
        await handoff.result(wait=WAIT_SECONDS_MAX)
    checkpoints = [body["checkpoint"] for body in kept if body and body.get("checkpoint")]
    assert [list(checkpoint) for checkpoint in checkpoints] == [["nodrop_sealed"]]
    assert "ask_for_help" not in str(checkpoints)


@pytest.mark.parametrize("agent", sorted(LIVE))
async def test_a_held_run_that_dies_asks_only_once(
    troupe: Troupe, report: Report, agent: str
) -> None:
    """What cannot be saved is run again; the answer that came meanwhile is not asked for twice."""
    stage = stage_of(agent)
    async with troupe.connected("origin") as me:
        handoff = await tell(me, agent, "ask", attempts_max=3)
        await blocked(me, handoff)
        troupe.kill(stage)
        await answered(me, handoff)
        await troupe.full(stage, 1)
        result = await handoff.result(wait=WAIT_SECONDS_MAX)
        asked = [e for e in await me.log(handoff_id=handoff.id, limit=200) if "blocked" in e.type]
    assert heard(result).heard == ANSWER
    assert len(asked) == 1
    report.saw("held", agent)

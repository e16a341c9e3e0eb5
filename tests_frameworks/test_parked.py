"""A question outlives the process that asked it: parked by one, answered, resumed by another."""

import base64

import pytest

from report import Report
from story import ANSWER, WAIT_SECONDS_MAX, answered, blocked, entries, heard, tell
from troupe import PARKING, THREADED, Troupe, stage_of


@pytest.mark.parametrize("agent", PARKING)
async def test_a_parked_run_goes_on_in_another_process(
    troupe: Troupe, report: Report, agent: str
) -> None:
    """And what the relay keeps meanwhile, it cannot read."""
    stage = stage_of(agent)
    with report.showing("parked", agent):
        async with troupe.connected("origin") as me, troupe.connected("me") as operator:
            handoff = await tell(me, agent, "ask")
            await blocked(me, handoff)
            troupe.kill(stage)
            kept = [entry.body for entry in await operator.log(handoff_id=handoff.id, limit=200)]
            await troupe.full(stage, 1)
            await answered(me, handoff)
            result = await handoff.result(wait=WAIT_SECONDS_MAX)
        assert heard(result).heard == ANSWER
        assert handoff.attempt > 1
        checkpoints = [body["checkpoint"] for body in kept if body and body.get("checkpoint")]
        (sealed,) = checkpoints
        assert list(sealed) == ["nodrop_sealed"]
        opened = base64.b64decode(sealed["nodrop_sealed"])
        assert not [word for word in (b"ask", b"account", b"state", b'":') if word in opened]


@pytest.mark.parametrize("agent", THREADED)
async def test_a_held_run_that_dies_asks_only_once(
    troupe: Troupe, report: Report, agent: str
) -> None:
    """What cannot be saved is run again; the answer that came meanwhile is not asked for twice."""
    stage = stage_of(agent)
    with report.showing("held", agent):
        async with troupe.connected("origin") as me:
            handoff = await tell(me, agent, "ask", attempts_max=3)
            await blocked(me, handoff)
            troupe.kill(stage)
            await answered(me, handoff)
            await troupe.full(stage, 1)
            result = await handoff.result(wait=WAIT_SECONDS_MAX)
            happened = await entries(me, handoff)
        assert heard(result).heard == ANSWER
        assert happened.count("handoff.blocked.v1") == 1

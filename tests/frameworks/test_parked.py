"""A question outlives the process that asked it: parked by one, answered, resumed by another."""

import base64
import random

import pytest

from report import Report
from story import ANSWER, WAIT_SECONDS_MAX, answered, blocked, entries, heard, tell
from troupe import PARKING, THREADED, Troupe, stage_of

TEXT_SHARE = 0.8
"""JSON is readable from end to end; of noise, three bytes in eight are, by chance."""


def readable(kept: bytes) -> float:
    """Return which share of the bytes are plain letters, digits and signs."""
    return sum(byte in range(0x20, 0x7F) for byte in kept) / len(kept)


def test_text_is_readable_and_noise_is_not() -> None:
    noise = random.Random(1)  # any noise will do
    assert readable(b'{"state": {"question": "Which account?"}}') == 1
    assert all(readable(noise.randbytes(200)) < TEXT_SHARE for _ in range(10_000))


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
        assert readable(base64.b64decode(sealed["nodrop_sealed"])) < TEXT_SHARE


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

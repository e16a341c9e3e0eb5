"""Six at once on one object, and threads that do not know yet that nobody wants them."""

import asyncio
import json

import pytest

from report import Report
from story import WAIT_SECONDS_MAX, answered, entries, heard, tell
from troupe import AGENTS, Troupe

ALL = [agent for agents in AGENTS.values() for agent in agents]
THREADED = ["crewai", "crewai_crew", "smolagents"]


@pytest.mark.parametrize("agent", ALL)
async def test_six_handoffs_at_once_do_not_hear_each_other(
    troupe: Troupe, report: Report, agent: str
) -> None:
    async with troupe.connected("origin") as me:
        handoffs = await asyncio.gather(*(tell(me, agent, f"report {n}") for n in range(6)))
        results = await asyncio.gather(*(h.result(wait=WAIT_SECONDS_MAX) for h in handoffs))
    for number, (handoff, result) in enumerate(zip(handoffs, results, strict=True)):
        assert heard(result).task == f"report {number}"
        seen = json.loads(heard(result).heard)
        assert seen["correlation_id"] == handoff.correlation_id
        assert seen["payload"] in ({"task": f"report {number}"}, None)  # None: behind A2A
    report.saw("six", agent)


@pytest.mark.parametrize("agent", THREADED)
async def test_a_thread_that_outlives_its_cancel_is_fenced(
    troupe: Troupe, report: Report, agent: str
) -> None:
    async with troupe.connected("origin") as me:
        handoff = await tell(me, agent, "hold")
        await troupe.noted(f"held-{handoff.id}")
        await handoff.cancel("changed my mind")
        (troupe.folder / f"release-{handoff.id}").touch()
        await troupe.noted(f"fenced-{handoff.id}")
        happened = await entries(me, handoff)
    assert "handoff.cancelled.v1" in happened
    assert not {"handoff.completed.v1", "handoff.blocked.v1"} & set(happened)
    report.saw("fenced", agent)


@pytest.mark.parametrize("agent", THREADED)
async def test_the_same_thread_may_ask_while_it_is_wanted(troupe: Troupe, agent: str) -> None:
    """The control of the one above: without the cancel, the question is asked and answered."""
    async with troupe.connected("origin") as me:
        handoff = await tell(me, agent, "hold")
        await troupe.noted(f"held-{handoff.id}")
        (troupe.folder / f"release-{handoff.id}").touch()
        assert await answered(me, handoff) == "May I still ask?"
        assert heard(await handoff.result(wait=WAIT_SECONDS_MAX)).heard == "held"
    assert not (troupe.folder / f"fenced-{handoff.id}").exists()

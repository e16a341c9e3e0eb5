"""Six at once on one object, and runs that nobody wants any more."""

import asyncio
import json

import pytest

from report import Report
from story import WAIT_SECONDS_MAX, answered, entries, heard, tell
from troupe import EVERYONE, TARGETS, THREADED, Troupe


@pytest.mark.parametrize("agent", EVERYONE)
async def test_six_handoffs_at_once_do_not_hear_each_other(
    troupe: Troupe, report: Report, agent: str
) -> None:
    with report.showing("six", agent):
        async with troupe.connected("origin") as me:
            handoffs = await asyncio.gather(*(tell(me, agent, f"report {n}") for n in range(6)))
            results = await asyncio.gather(*(h.result(wait=WAIT_SECONDS_MAX) for h in handoffs))
        for number, (handoff, result) in enumerate(zip(handoffs, results, strict=True)):
            assert heard(result).task == f"report {number}"
            seen = json.loads(heard(result).heard)
            assert seen["correlation_id"] == handoff.correlation_id
            assert seen["payload"] in ({"task": f"report {number}"}, None)  # None: behind A2A


@pytest.mark.parametrize("agent", [agent for agent in TARGETS if agent not in THREADED])
async def test_a_cancelled_run_is_stopped_in_its_own_process(
    troupe: Troupe, report: Report, agent: str
) -> None:
    """The relay's word that it is cancelled is one thing; that the framework lets go is another."""
    with report.showing("stopped", agent):
        async with troupe.connected("origin") as me:
            handoff = await tell(me, agent, "hold")
            working = await troupe.noted(f"held-{handoff.id}")
            await handoff.cancel("changed my mind")
            assert await troupe.noted(f"stopped-{handoff.id}") == working


@pytest.mark.parametrize("agent", THREADED)
async def test_a_thread_that_outlives_its_cancel_is_fenced(
    troupe: Troupe, report: Report, agent: str
) -> None:
    with report.showing("fenced", agent):
        async with troupe.connected("origin") as me:
            handoff = await tell(me, agent, "hold")
            await troupe.noted(f"held-{handoff.id}")
            await handoff.cancel("changed my mind")
            (troupe.folder / f"release-{handoff.id}").touch()
            await troupe.noted(f"fenced-{handoff.id}")
            happened = await entries(me, handoff)
        assert "handoff.cancelled.v1" in happened
        assert not {"handoff.completed.v1", "handoff.blocked.v1"} & set(happened)


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


@pytest.mark.parametrize("agent", THREADED)
async def test_the_late_result_of_a_thread_is_nobodys(
    troupe: Troupe, report: Report, agent: str
) -> None:
    with report.showing("late", agent):
        async with troupe.connected("origin") as me:
            handoff = await tell(me, agent, "hold quietly")
            await troupe.noted(f"held-{handoff.id}")
            await handoff.cancel("changed my mind")
            before = await entries(me, handoff)
            (troupe.folder / f"release-{handoff.id}").touch()
            await troupe.noted(f"returned-{handoff.id}")
            await (await tell(me, agent, "report")).result(wait=WAIT_SECONDS_MAX)
            outcome = await handoff.outcome(wait=WAIT_SECONDS_MAX)
            after = await entries(me, handoff)
        assert (outcome.state, outcome.result) == ("cancelled", None)
        assert before.count("handoff.cancelled.v1") == 1
        assert after == before


@pytest.mark.parametrize("agent", THREADED)
async def test_the_same_result_in_time_is_the_result(troupe: Troupe, agent: str) -> None:
    """The control of the one above."""
    async with troupe.connected("origin") as me:
        handoff = await tell(me, agent, "hold quietly")
        await troupe.noted(f"held-{handoff.id}")
        (troupe.folder / f"release-{handoff.id}").touch()
        assert heard(await handoff.result(wait=WAIT_SECONDS_MAX)).heard == "held"

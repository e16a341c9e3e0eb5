"""Every framework hands to every other, through a real relay, and each aspect behaves the same."""

import asyncio
import json

import pytest

from nodrop.client.client import Client
from nodrop.client.handoff import Handoff
from report import Report
from story import (
    ANSWER,
    DEADLINE_SECONDS,
    TRACE_ID,
    WAIT_SECONDS_MAX,
    answered,
    heard,
    tell,
)
from troupe import CALLERS, TARGETS, Troupe

LOOK_SECONDS = 0.05


async def below(top: Handoff, watcher: Client) -> list[Handoff]:
    """Return what was handed on from it. The requester is no party to that; an operator sees it."""
    return [handoff for handoff in await watcher.trace(top.correlation_id) if handoff.id != top.id]


async def reports(me: Client, watcher: Client, caller: str, target: str) -> dict[str, bool]:
    """Result, correlation, trace and deadline, as a tool of the target's model sees them."""
    top = await tell(me, caller, f"pass {target} report here")
    passed = heard(await top.result(wait=WAIT_SECONDS_MAX))
    reply = heard(passed.heard)
    seen = json.loads(reply.heard)
    (child,) = await below(top, watcher)
    return {
        "result": reply.task == "report here",
        "correlation": seen["correlation_id"] == top.correlation_id
        and child.view["parent_id"] == top.id
        and (child.sender, child.recipient) == (caller, target),
        "trace": seen["trace_id"] == TRACE_ID,
        "deadline": 0 < seen["seconds_left"] <= DEADLINE_SECONDS and child.deadline <= top.deadline,
    }


async def keeps_the_contract(me: Client, caller: str, target: str) -> bool:
    """A payload that does not fit is refused at once; a result that does not fit ends it."""
    misfit = await tell(me, caller, f"misfit {target} report")
    nonsense = await tell(me, caller, f"pass {target} nonsense")
    refused = json.loads(heard(await misfit.result(wait=WAIT_SECONDS_MAX)).heard)
    failed = json.loads(heard(await nonsense.result(wait=WAIT_SECONDS_MAX)).heard)
    return (refused["state"], refused["code"], failed["state"], failed["code"]) == (
        *("refused", "payload_invalid"),
        *("failed", "result_invalid"),
    )


async def fails(me: Client, caller: str, target: str) -> bool:
    """The failure of one is an answer for the other, with its reason."""
    top = await tell(me, caller, f"pass {target} fail")
    said = json.loads(heard(await top.result(wait=WAIT_SECONDS_MAX)).heard)
    return said["state"] == "failed" and "down" in said["reason"].lower()


async def is_cancelled(me: Client, watcher: Client, caller: str, target: str) -> bool:
    """Withdrawing the first withdraws what was handed on from it."""
    top = await tell(me, caller, f"pass {target} hold")
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not (found := await below(top, watcher)):
            await asyncio.sleep(LOOK_SECONDS)
    child = found[0]
    await child.acknowledged(wait=WAIT_SECONDS_MAX)
    await top.cancel("changed my mind")
    outcome = await child.outcome(wait=WAIT_SECONDS_MAX)
    return outcome.state == "cancelled"


async def gets_help(me: Client, caller: str, target: str) -> bool:
    """The question of one reaches whoever began it, and the answer comes back."""
    top = await tell(me, caller, f"pass {target} ask")
    question = await answered(me, top)
    reply = heard(heard(await top.result(wait=WAIT_SECONDS_MAX)).heard)
    return question.startswith(f"{target} asks: ") and ANSWER in str(reply.heard)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("caller", CALLERS)
async def test_one_hands_to_the_other(
    troupe: Troupe, report: Report, caller: str, target: str
) -> None:
    async with troupe.connected("origin") as me, troupe.connected("me") as watcher:
        results = await asyncio.gather(
            reports(me, watcher, caller, target),
            keeps_the_contract(me, caller, target),
            fails(me, caller, target),
            is_cancelled(me, watcher, caller, target),
            gets_help(me, caller, target),
            return_exceptions=True,
        )
    seen, *others = results
    cell = seen if isinstance(seen, dict) else {}
    cell |= {
        aspect: holds is True
        for aspect, holds in zip(["contract", "failure", "cancel", "help"], others, strict=True)
    }
    report.add(caller, target, cell)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    assert [aspect for aspect, holds in cell.items() if not holds] == []

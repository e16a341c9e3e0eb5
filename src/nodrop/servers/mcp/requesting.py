"""The requester's tools: hand work off, wait for it, answer what it asks, withdraw it."""

import time
from collections.abc import Callable
from typing import Any, Final

from nodrop.model.errors import InvalidRequestError, Problem, StaleQuestionError
from nodrop.servers.mcp import looking, tools, wording
from nodrop.servers.mcp.desk import Desk, View, ended, given
from nodrop.servers.mcp.wording import lines

SURELY_HEARD_SECONDS: Final = 4.0
"""Some clients give up on a tool after five seconds, and few of them say so."""
_PIECE_SECONDS_MAX: Final = 20.0
"""What one request waits: short enough that a dead connection is noticed."""


async def hand_off(desk: Desk, said: tools.HandOff) -> str:
    """Put a handoff into somebody's inbox."""
    fields: dict[str, Any] = {
        "to": said.to,
        "capability": said.capability,
        "title": said.title,
        "payload": said.payload,
        "expected_outcome": said.expected_outcome,
        "priority": said.priority,
        "deadline": said.deadline,
        "accept_within": said.accept_within,
        "then": [given(to=leg.to, capability=leg.capability, title=leg.title) for leg in said.then],
        "escalation": None
        if said.escalation is None
        else [
            given(when=step.when, after=step.after, notify=step.notify) for step in said.escalation
        ],
        "idempotency_key": said.key,
        "parent_id": said.parent,
    }
    answer = await desk.call("offer", given(**fields) | {"turn_based": True})
    handoff = answer["handoff"]
    before = "stored before, and not again (replayed)" if answer.get("replayed") else "stored"
    return lines(
        f"{before}: {wording.standing(handoff)}",
        *(f"warning {warning['code']}: {warning['detail']}" for warning in handoff["warnings"]),
        f'Next: wait(handoff="{handoff["id"]}"), or go on: the outcome comes to your inbox.',
    )


async def wait(desk: Desk, said: tools.Wait, *, now: Callable[[], float] = time.monotonic) -> str:
    """Wait for an outcome, for a question, or for anything at all."""
    if said.handoff is None:
        return await _wait_for_mail(desk, said)
    begun = now()
    of = "chain" if said.until == "finished" else "handoff"
    seen: int = (await desk.call("checkpoints"))["size"]
    handoff = await desk.handoff(said.handoff, of=of)
    while not _reached(handoff, said.until, desk.agent):
        left = said.patience_seconds - (now() - begun)
        if left <= 0:
            return _still_waiting(handoff, said)
        # Whatever moves a leg of this chain is in the log; what it means is asked again.
        page = await desk.call(
            "log",
            {
                "correlation_id": handoff["correlation_id"],
                "after": seen,
                "wait": round(min(left, _PIECE_SECONDS_MAX), 3),
            },
        )
        seen = page["after"]
        handoff = await desk.handoff(said.handoff, of=of)
    if not ended(handoff):
        return _moved(handoff, desk.agent)
    return await _outcome(desk, handoff, surely_heard=now() - begun <= SURELY_HEARD_SECONDS)


async def _wait_for_mail(desk: Desk, said: tools.Wait) -> str:
    page = await looking.mail(desk, after=said.after, wait_seconds=said.patience_seconds)
    if page.items:
        return looking.told(desk, page)
    return lines(
        looking.ANEW if page.anew else None,
        f"nothing came within {said.seconds:g} s.",
        f'Next: wait(after="{page.after}") goes on waiting, or do something else first.',
    )


def _reached(handoff: View, until: str, agent: str | None) -> bool:
    asked = handoff["question"] is not None and handoff["question"]["asked"] == agent
    rungs = {receipt["rung"] for receipt in handoff["receipts"]}
    return ended(handoff) or asked or (until == "acknowledged" and "acknowledged" in rungs)


def _still_waiting(handoff: View, said: tools.Wait) -> str:
    return lines(
        f"no outcome within {said.seconds:g} s, which changed nothing. {wording.standing(handoff)}",
        f"last receipt: {handoff['receipts'][-1]['rung']}",
        wording.last_word(handoff),
        f'Next: wait(handoff="{handoff["id"]}") again, or go on: the outcome comes to your inbox.',
    )


def _moved(handoff: View, agent: str | None) -> str:
    asked = handoff["question"] is not None and handoff["question"]["asked"] == agent
    return lines(
        wording.standing(handoff),
        wording.question(handoff) if asked else wording.last_word(handoff),
        f'Next: answer(handoff="{handoff["id"]}", …): it waits for you.'
        if asked
        else f'Next: wait(handoff="{handoff["id"]}") for the outcome.',
    )


async def _outcome(desk: Desk, handoff: View, *, surely_heard: bool) -> str:
    """Tell an outcome. It is settled with it only if whoever asked is surely still listening."""
    mine = handoff["chain"]["origin"] == desk.agent and handoff["settled_at"] is None
    if mine and surely_heard:
        handoff = await desk.command("settle", handoff, {})
    return lines(
        wording.standing(handoff),
        wording.outcome(handoff),
        f'Next: ack(handoff="{handoff["id"]}") says that you have it.'
        if mine and not surely_heard
        else None,
        _decide_hint(handoff),
    )


def _decide_hint(handoff: View) -> str | None:
    if handoff["state"] in {"completed", "cancelled"} or handoff["decision"]:
        return None
    return f"A dead letter: a person may try it again with `nodrop dlq redrive {handoff['id']}`."


async def settle(desk: Desk, handoff: View) -> str:
    """Say that the requester has an outcome."""
    return lines(wording.standing(await desk.command("settle", handoff, {})))


async def answer(desk: Desk, said: tools.Answer) -> str:
    """Answer the question that a handoff waits for, or decide on its terms."""
    handoff = await desk.handoff(said.handoff)
    asked = handoff["question"]
    if asked is None:
        raise StaleQuestionError(
            f"handoff {handoff['id']} is {handoff['state']} and waits for no answer",
            next_step=f'See track(handoff="{handoff["id"]}").',
        )
    if asked["kind"] != "terms":
        fields = {"seq": asked["seq"], "answer": said.answer}
        done = await desk.command("answer", handoff, fields)
    elif said.agree is None:
        problem = Problem(path="agree", message="say true or false")
        raise InvalidRequestError("other terms are proposed", errors=(problem,))
    elif said.agree:
        done = await desk.command("agree", handoff, {"seq": asked["seq"]})
    else:
        fields = {"seq": asked["seq"], **given(reason=said.reason)}
        done = await desk.command("decline", handoff, fields)
    return lines(f"answered: {wording.standing(done)}")


async def cancel(desk: Desk, handoff: View, reason: str | None) -> str:
    """Withdraw a handoff."""
    done = await desk.command("cancel", handoff, given(reason=reason))
    return lines(f"withdrawn: {wording.standing(done)}")

"""The recipient's tools: take work from the inbox, say how it goes, end it."""

from typing import Any, assert_never

from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.servers.mcp import requesting, tools, wording
from nodrop.servers.mcp.desk import Desk, View, ended, given
from nodrop.servers.mcp.wording import lines


async def ack(desk: Desk, said: tools.Ack) -> str:
    """Take a handoff, reject it or counter; settle an outcome; dismiss notices."""
    handoff = await desk.handoff(said.handoff)
    match said.decision:
        case "accept":
            if ended(handoff) and handoff["chain"]["origin"] == desk.agent:
                return await requesting.settle(desk, handoff)
            return await _accept(desk, handoff, said)
        case "queue":
            return await _queue(desk, handoff, said)
        case "reject":
            fields = given(reason=said.reason or said.status)
            done = await desk.act("reject", handoff, fields, direct=True, ends=True)
            return lines(f"rejected: {wording.standing(done)}")
        case "counter":
            fields = given(deadline=said.deadline, reason=said.reason or said.status)
            if said.next_update:
                fields["update_every"] = said.next_update
            done = await desk.act("counter", handoff, fields, direct=True)
            return lines(
                f"proposed: {wording.standing(done)}",
                "Next: if it is agreed, it is accepted and yours to do; look into your inbox.",
            )
        case "dismiss":
            done = await desk.dismiss(handoff)
            return lines(
                f"dismissed: {wording.standing(done)}",
                "A later notice about it comes to your inbox again.",
            )
        case _:
            assert_never(said.decision)


async def _accept(desk: Desk, handoff: View, said: tools.Ack) -> str:
    fields = given(status=said.status, eta=said.eta, next_update=said.next_update)
    done = await desk.act("ack", handoff, fields, direct=True)
    return lines(
        f"yours: {wording.standing(done)}",
        wording.contract(done, checkpoint=await desk.checkpoint(done)),
        f'Next: do it, then update(handoff="{done["id"]}", status="done", result=…);'
        f" report before {done['due_at']} with status=working.",
    )


async def _queue(desk: Desk, handoff: View, said: tools.Ack) -> str:
    fields = given(status=said.status, eta=said.eta, next_update=said.next_update)
    done = await desk.queue(handoff, fields)
    if done["state"] != "offered":
        return lines(f"already delivered: {wording.standing(done)}")
    return lines(
        f"queued at position {done['ack']['position']}: {wording.standing(done)}",
        f'Next: ack(handoff="{done["id"]}") when you begin;'
        f" say so again with decision=queue before {done['ack']['next_update']}.",
    )


async def update(desk: Desk, said: tools.Update) -> str:
    """Say how a handoff goes, or end it."""
    handoff = await desk.handoff(said.handoff)
    left = given(checkpoint=said.result)
    match said.status:
        case "working":
            fields = given(status=said.text, eta=said.eta, next_update=said.next_update)
            done = await desk.act("update", handoff, fields)
            return lines(f"noted: {wording.standing(done)}", f"Report again by {done['due_at']}.")
        case "need_help":
            return await _ask(desk, handoff, said, left)
        case "done":
            result = said.text if said.result is None else said.result
            done = await desk.act("complete", handoff, {"result": result}, ends=True)
            return _handed_in(done)
        case "failed":
            fields = {**given(reason=said.text), "retryable": said.retryable}
            done = await desk.act("fail", handoff, fields, ends=True)
            return lines(f"given up: {wording.standing(done)}")
        case "released":
            fields = {**given(reason=said.text), **left}
            done = await desk.act("release", handoff, fields, ends=True)
            return lines(f"given back: {wording.standing(done)}")
        case "cancelled":
            return await requesting.cancel(desk, handoff, said.text)
        case _:
            assert_never(said.status)


async def _ask(desk: Desk, handoff: View, said: tools.Update, left: dict[str, Any]) -> str:
    if not said.question:
        problem = Problem(path="question", message="say what you need to know")
        raise InvalidRequestError("need_help asks a question", errors=(problem,))
    fields = {"question": said.question, "park": True, **given(to=said.ask), **left}
    done = await desk.act("block", handoff, fields, ends=True)
    return lines(
        f"asked {done['question']['asked']}: {wording.standing(done)}",
        "Next: the work is parked. Once answered it is in your inbox again: ack it then.",
    )


def _handed_in(done: View) -> str:
    if done["state"] == "completed":
        return lines(f"handed in: {wording.standing(done)}")
    return lines(
        f"too late: {wording.standing(done)}",
        "The result is kept; a person decides whether to take it.",
    )

"""The tools that look: who is there, what waits, where things stand, what happened."""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from nodrop.model.errors import CursorUnknownError, InvalidRequestError, Problem
from nodrop.servers.mcp import tools, wording
from nodrop.servers.mcp.desk import Desk, View, ended
from nodrop.servers.mcp.quoting import part, quoted
from nodrop.servers.mcp.wording import LISTED_MAX, lines

_PAGE_MAX: Final = 100
_HASH_CHARS: Final = 16
_CURSOR: Final = re.compile("([0-9]{1,18})(?::([0-9a-f]{8,64}))?")
ANEW: Final = (
    "The log has no such entry: the relay was restored from an older copy."
    " This is your inbox from its beginning."
)


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for an agent, as far as it was looked for."""

    items: Sequence[View] = ()
    more: int = 0
    """Items that were found beyond these."""
    kinds: Mapping[str, int] = {}
    """How many of all of them are of each kind."""
    after: str = ""
    """The cursor to go on from."""
    anew: bool = False
    """Whether it begins at 0 because the log has no such place as was asked for."""


async def join(desk: Desk, said: tools.Join) -> str:
    """Publish what an agent can do, and tell it who it is."""
    if said.capabilities is not None or said.description is not None:
        me = desk.agent or (await _introduced(desk))
        manifest = {
            "agent_id": me,
            "capabilities": [_declared(capability) for capability in said.capabilities or ()],
        }
        if said.description is not None:
            manifest["description"] = said.description
        await desk.call("register", {"manifest": manifest}, name=me)
    found = await mail(desk)
    offered = ", ".join(c.name for c in said.capabilities or ())
    return lines(
        f"you are {desk.agent}" + (f", and offer {offered}" if offered else ""),
        _counted(found),
        "Next: inbox() shows it." if found.items else "Next: find_agents, or hand_off.",
    )


async def _introduced(desk: Desk) -> str:
    await desk.call("checkpoints")  # the first answer tells whose token it is
    assert desk.agent is not None, "a way that was answered knows who asks"
    return desk.agent


def _declared(capability: tools.Capability) -> dict[str, Any]:
    declared = msgspec.to_builtins(capability)
    return {name: value for name, value in declared.items() if value is not None}


async def find_agents(desk: Desk, said: tools.FindAgents) -> str:
    """List the agents of the team."""
    asked = {} if said.capability is None else {"capability": said.capability}
    found = (await desk.call("agents", asked))["agents"]
    shown = found[:LISTED_MAX]
    more = len(found) - len(shown)
    return lines(
        f"{len(found)} agents",
        quoted(wording.agents(shown), by=[agent["agent_id"] for agent in shown]) if shown else None,
        f"{more} more: name a capability to see fewer" if more else None,
    )


async def inbox(desk: Desk, said: tools.Inbox) -> str:
    """Show what waits."""
    return told(desk, await mail(desk, after=said.after, everything=said.all))


async def mail(
    desk: Desk,
    *,
    after: str = "",
    everything: bool = False,
    wait_seconds: float = 0,
    now: Callable[[], float] = time.monotonic,
) -> Mail:
    """Return what waits for the agent after a cursor; wait if there is nothing."""
    until, anew, place = now() + wait_seconds, False, _place(after)
    while True:
        left = max(until - now(), 0)
        fields = {**place, "limit": _PAGE_MAX, "all": everything, "wait": round(left, 3)}
        try:
            page = await desk.call("inbox", fields)
        except CursorUnknownError:
            place, anew = {}, True
            continue
        items: Sequence[View] = page["items"]
        # A page of what no longer waits is passed over; the end of the inbox moves no cursor.
        if items or page["after"] <= place.get("after", 0):
            break
        place = {"after": page["after"], "after_hash": page.get("after_hash")}
    shown = items[:LISTED_MAX]
    if len(items) > len(shown):
        page = await desk.call("log", {"after": shown[-1]["seq"] - 1, "limit": 1})
    return Mail(
        items=shown,
        more=len(items) - len(shown),
        kinds=Counter(str(item["kind"]) for item in items),
        after=_cursor(page),
        anew=anew,
    )


def _place(cursor: str) -> dict[str, Any]:
    """Return the place in the log that a cursor means: a number, and the hash of the entry there."""
    if not cursor:
        return {}
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        problem = Problem(
            path="after", message="expected a cursor as it was told, such as 12:0a1b2c3d"
        )
        raise InvalidRequestError(f"{problem.path}: {problem.message}", errors=(problem,))
    seq, there = found.groups()
    return {"after": int(seq), "after_hash": there}


def _cursor(page: View) -> str:
    """Return the cursor behind a page."""
    there = page.get("after_hash")
    return f"{page['after']}:{there[:_HASH_CHARS]}" if there else str(page["after"])


def told(desk: Desk, found: Mail) -> str:
    """Return inbox items as an answer."""
    anew = ANEW if found.anew else None
    after = f'after="{found.after}"'
    if not found.items:
        return lines(anew, f"nothing waits for {desk.agent} ({after})")
    return lines(
        anew,
        _counted(found),
        quoted(wording.items(found.items), by=[item["from"] for item in found.items]),
        f"{found.more} or more are left out: inbox({after})" if found.more else after,
        "Next: ack takes a handoff or an outcome, answer answers a question or a counter;"
        " ack(decision=dismiss) takes a notice away.",
    )


def _counted(found: Mail) -> str:
    if not found.items:
        return "nothing waits"
    counts = ", ".join(f"{count} {kind}" for kind, count in found.kinds.items())
    waiting = sum(found.kinds.values())
    most = " or more" if waiting >= _PAGE_MAX else ""
    return f"{waiting}{most} wait for you: {counts}"


async def track(desk: Desk, said: tools.Track) -> str:
    """Show where a handoff stands, or a part of it, or everything that is open."""
    if said.handoff is None:
        return await _open(desk, said.before)
    handoff = await desk.handoff(said.handoff)
    if said.part is not None:
        return await _piece(desk, handoff, said)
    rungs = ", ".join(f"{r['rung']} {r['at']}" for r in handoff["receipts"][-LISTED_MAX:])
    return lines(
        wording.standing(handoff),
        f"receipts: {rungs}",
        wording.contract(handoff),
        wording.last_word(handoff),
        wording.question(handoff) if handoff["question"] else None,
        wording.outcome(handoff) if handoff["outcome"] else None,
        f"goes on as {handoff['next_leg'] or handoff['successor']}"
        if handoff["next_leg"] or handoff["successor"]
        else None,
    )


async def _open(desk: Desk, before: str | None) -> str:
    fields = {"limit": _PAGE_MAX} | ({} if before is None else {"before": before})
    page = await desk.call("list_handoffs", fields)
    found = [h for h in page["handoffs"] if h["settled_at"] is None]
    shown = found[:LISTED_MAX]
    rest = len(found) - len(shown)
    last = shown[-1]["id"] if rest else page["before"]
    further = rest or len(page["handoffs"]) == _PAGE_MAX
    running = sum(not ended(h) for h in found)
    return lines(
        f"{len(found)} open, {running} of them unfinished",
        quoted(wording.listed(shown), by=[h["from"] for h in shown]) if shown else None,
        f'older ones: track(before="{last}")' if further else None,
    )


async def _piece(desk: Desk, handoff: View, said: tools.Track) -> str:
    name = said.part or ""
    value: Any = handoff.get(name)
    by = handoff["from"]
    if name == "result":
        outcome: View = handoff["outcome"] or {}
        value, by = outcome.get("result"), handoff["to"]
    elif name == "checkpoint":
        value, by = await desk.checkpoint(handoff), handoff["to"]
    elif name == "question" and value is not None:
        value = {k: value[k] for k in ("question", "terms", "reason") if k in value}
        by = handoff["to"]
    if value is None:
        problem = Problem(path="part", message=f"it has no {name}")
        raise InvalidRequestError("there is nothing to read", errors=(problem,))
    piece = part({name: value}, offset=said.offset)
    return lines(
        f"{name} of handoff {handoff['id']}, characters {piece.offset} to {piece.end}"
        f" of {piece.chars}",
        quoted([piece], by=[by]),
        f"Next: offset={piece.end} reads on." if piece.more else None,
    )


async def read_log(desk: Desk, said: tools.ReadLog) -> str:
    """Read the log."""
    fields: dict[str, Any] = {"limit": said.limit, **_place(said.after or "")}
    if said.handoff is not None:
        fields["handoff_id"] = said.handoff
    elif said.after is None:
        size = (await desk.call("checkpoints"))["size"]
        fields["after"] = max(size - said.limit, 0)
    page = await desk.call("log", fields)
    found = page["entries"]
    if not found:
        return lines(f"no entries after {fields.get('after', 0)}")
    return lines(
        f"{len(found)} entries",
        quoted(wording.entries(found), by=[entry["actor"] for entry in found]),
        f'later ones: read_log(after="{_cursor(page)}")' if len(found) == said.limit else None,
    )


async def write_log(desk: Desk, said: tools.WriteLog) -> str:
    """Write a note."""
    if said.handoff is None:
        noted = await desk.call("note_team", {"text": said.text})
        return lines(f"noted in the log at {noted['seq']}")
    handoff = await desk.handoff(said.handoff)
    await desk.command("note", handoff, {"text": said.text})
    return lines(f"noted about handoff {handoff['id']}")

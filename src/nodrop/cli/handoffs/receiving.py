"""The recipient's verbs: look at the inbox, take work, say how it goes, end it.

Turn-based: one command at a time, no heartbeat. The attempt is remembered between commands.
"""

from typing import Annotated, Any

import typer
from rich.table import Table

from nodrop.cli import picture, screen
from nodrop.cli.handoffs import doorbell
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.cli.values import given, json_or_text, text_of, waiting
from nodrop.cli.verb import Attempt, Ref
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol.text import notice_sentence

Reason = Annotated[str, typer.Argument(metavar="REASON", help="Why; @file and - work too.")]
Position = Annotated[int | None, typer.Option(min=1, help="Place in your queue.")]
Eta = Annotated[str | None, typer.Option(metavar="DURATION", help="When it will be done.")]
NextUpdate = Annotated[
    str | None, typer.Option(metavar="DURATION", help="When you will report next.")
]

_KIND_STYLES = {
    "handoff": "bold yellow",
    "outcome": "green",
    "question": "magenta",
    "counter": "magenta",
    "notice": "blue",
    "message": "cyan",
}

_LASTING = frozenset({"unacknowledged", "silent", "blocked", "terms", "outcome"})
"""Notices about what goes on; the others are about what happened once."""
_NAMED_MAX = 3


async def inbox(
    session: Session,
    *,
    after: Annotated[int, typer.Option(min=0, help="Only what came after this number.")] = 0,
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="Wait for something to come.")
    ] = "0",
    everything: Annotated[
        bool, typer.Option("--all", help="Also what no longer waits for you.")
    ] = False,
    each: Annotated[
        bool, typer.Option("--each", help="Each notice by itself, not gathered by cause.")
    ] = False,
    brief: Annotated[
        bool,
        typer.Option(
            "--brief", help="A doorbell for hooks: one line if something waits; never fails."
        ),
    ] = False,
) -> None:
    """Show what waits for you: work, outcomes, questions, notices."""
    if brief:
        await doorbell.ring(session)
        return
    left = waiting(wait, option="--wait")
    while True:
        fields = {"after": after, "wait": left.piece(), "all": everything, "each": each}
        answer = await session.call("inbox", fields)
        # A page may hold nothing that still waits, and the next one something.
        if answer["items"] or (answer["after"] <= after and left.over):
            break
        after = answer["after"]
    session.show(answer, lambda: _show_items(answer["items"], session))


def _show_items(items: list[dict[str, Any]], session: Session) -> None:
    out = screen.console()
    if not items:
        out.print(line((f"Nothing waits for {session.identity or 'you'}.", "bright_black")))
        return
    notices = [item for item in items if item["open"] and item.get("notice")]
    others = [item for item in items if item not in notices]
    if others:
        _show_table(others, session)
    if notices:
        _show_notices(notices, session)


def _show_notices(items: list[dict[str, Any]], session: Session) -> None:
    """Show what happened, why and since when, and below it the commands that answer it."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for item in items:
        notice = item["notice"]
        since = screen.ago(notice["since"], session.now())
        if notice["about"] in _LASTING and since.endswith(" ago"):
            since = f"for {since.removesuffix(' ago')}"
        elif notice["count"] > 1:
            since = f"from {since} on"
        said = notice_sentence(notice["what"], since, reason=notice["reason"], why=notice["why"])
        first = notice["handoffs"][:_NAMED_MAX]
        more = f" and {notice['count'] - len(first)} more" if notice["count"] > len(first) else ""
        named = ", ".join(f"{h['ref']} ({h['title']})" for h in first) + more
        mark = styled(item["kind"], _KIND_STYLES["notice"])
        rows = [styled(said), styled(named, "bold")]
        for row in rows if notice["count"] > 1 else reversed(rows):
            grid.add_row(mark, row)
            mark = styled("")
        for command in notice["commands"]:
            grid.add_row("", styled(command, "cyan"))
    screen.console().print(grid)


def _show_table(items: list[dict[str, Any]], session: Session) -> None:
    """Show each item with its reference on a line of its own, which an 80-column screen has room for."""
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("seq", "kind", "what", "when"):
        table.add_column(column, no_wrap=column != "what")
    for item in items:
        style = _KIND_STYLES.get(item["kind"], "") if item["open"] else "bright_black"
        notice = item.get("notice")
        what = f"{notice['handoffs'][0]['title']}: {notice['what']}" if notice else item["summary"]
        table.add_row(
            styled(item["seq"], "bright_black"),
            styled(item["kind"], style),
            line(
                (item["from"], "bold" if item["open"] else "bright_black"),
                (f": {what}", "" if item["open"] else "bright_black"),
            ),
            styled(screen.ago(item["at"], session.now()), "bright_black"),
        )
        if item["ref"]:
            table.add_row("", "", styled(item["ref"], "cyan"), "")
    screen.console().print(table)


async def dismiss(
    session: Session,
    refs: Annotated[
        list[str] | None,
        typer.Argument(metavar="REF...", help="Id, unique prefix of it, or sender/key."),
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Every notice about a handoff that waits for you.")
    ] = False,
    alike: Annotated[
        bool, typer.Option("--alike", help="Also the notices that are gathered with it.")
    ] = False,
    inbox: Annotated[
        str | None, typer.Option(metavar="AGENT", help="As an operator: whose notices.")
    ] = None,
) -> None:
    """Take notices about handoffs from your inbox. They stay in the log; a later one is shown again."""
    named = refs or []
    if bool(named) is everything or (inbox and (everything or alike)):
        raise InvalidRequestError(
            "say which notices to dismiss",
            next_step="Name handoffs, or --all for every notice of your own inbox.",
            errors=(Problem(path="REF", message="expected references, or --all alone"),),
        )
    if everything or alike:
        groups = await _gathered(session)
        chosen = [group for group in groups if everything or _is_of(group, named)]
        alone = [ref for ref in named if not any(_is_of(group, [ref]) for group in chosen)]
        named = alone + [h["id"] for group in chosen for h in group]
    answers = [
        await session.call("dismiss", given(inbox=inbox), handoff=ref)
        for ref in dict.fromkeys(named)
    ]

    def show() -> None:
        for answer in answers:
            screen.success("dismissed the notices about ", (answer["handoff"]["ref"], "bold"))
        if not answers:
            screen.console().print(line(("No notice waits.", "bright_black")))

    session.show({"handoffs": [answer["handoff"] for answer in answers]}, show)


async def _gathered(session: Session) -> list[list[dict[str, Any]]]:
    """Return the handoffs that notices of the inbox are about, those of one cause together."""
    found: list[list[dict[str, Any]]] = []
    after = 0
    while True:
        page = await session.call("inbox", {"after": after})
        found += [item["notice"]["handoffs"] for item in page["items"] if item.get("notice")]
        if page["after"] <= after:
            return found
        after = page["after"]


def _is_of(group: list[dict[str, Any]], refs: list[str]) -> bool:
    return any(h["ref"] in refs or h["id"] in refs for h in group)


async def take(
    session: Session,
    most: Annotated[int, typer.Option("--max", min=1, help="Take at most this many.")] = 1,
    wait: Annotated[str, typer.Option(metavar="DURATION", help="Wait for work to come.")] = "0",
) -> None:
    """Take the next work from your inbox. Acknowledge it within a minute, or it goes back."""
    left = waiting(wait, option="--wait")
    while True:
        answer = await session.call("take", {"max": most, "wait": left.piece()})
        if answer["deliveries"] or left.over:
            break
    for delivery in answer["deliveries"]:
        session.attempts(delivery["handoff"]).remember(delivery["handoff"])

    def show() -> None:
        if not answer["deliveries"]:
            screen.console().print(line(("Nothing to take.", "bright_black")))
        for delivery in answer["deliveries"]:
            picture.track(delivery["handoff"], now=session.now())
            _show_left_behind(delivery)
            screen.hint(f"nodrop ack {delivery['handoff']['ref']}")

    session.show(answer, show)


def _show_left_behind(delivery: dict[str, Any]) -> None:
    for name in ("checkpoint", "steps", "answers"):
        if delivery[name]:
            told = line((f"  {name}  ", "bright_black"), picture.brief(delivery[name]))
            screen.console().print(told, soft_wrap=True)


async def ack(
    session: Session,
    ref: Ref,
    *,
    position: Position = None,
    eta: Eta = None,
    next_update: NextUpdate = None,
    status: Annotated[str | None, typer.Option(help="What you are doing with it.")] = None,
    queued: Annotated[
        bool, typer.Option("--queued", help="It waits in your queue; you take it later.")
    ] = False,
    attempt: Attempt = None,
) -> None:
    """Say that you have it. Works on anything in your inbox, taken or not."""
    fields = given(position=position, eta=eta, next_update=next_update, status=status)
    if queued:
        fields |= {"queued": True} | given(attempt=attempt)
        answer = await session.call("ack", fields, handoff=ref)
        known = screen.is_queued(answer["handoff"])
        _moved(session, answer, "acknowledged" if known else "already delivered:")
        return
    answer = await session.about_delivery("ack", ref, fields, attempt=attempt, direct=True)
    _moved(session, answer, "acknowledged")


async def update(
    session: Session,
    ref: Ref,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="How it goes; @file and - work too.")],
    *,
    position: Position = None,
    eta: Eta = None,
    next_update: NextUpdate = None,
    attempt: Attempt = None,
) -> None:
    """Say how it goes. Keeps your promise of a next update."""
    fields = given(status=text_of(text), position=position, eta=eta, next_update=next_update)
    answer = await session.about_delivery("update", ref, fields, attempt=attempt)
    _moved(session, answer, "updated")


async def ask(
    session: Session,
    ref: Ref,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="@file and - work too.")],
    to: Annotated[str | None, typer.Option(help="Whom to ask; the sender by default.")] = None,
    attempt: Attempt = None,
) -> None:
    """Ask a question. The work is parked, and back in your inbox once it is answered."""
    fields = {"question": text_of(question), "park": True, **given(to=to)}
    answer = await session.about_delivery("block", ref, fields, attempt=attempt)
    # Parking ends the attempt; the answer brings the handoff back as another one.
    session.attempts(answer["handoff"]).forget(answer["handoff"]["id"])
    _moved(session, answer, "asked about")


async def counter(
    session: Session,
    ref: Ref,
    *,
    deadline: Annotated[
        str | None, typer.Option(metavar="DURATION|TIME", help="When you could have it done.")
    ] = None,
    update_every: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How often you would report.")
    ] = None,
    accept_within: Annotated[
        str | None, typer.Option(metavar="DURATION", help="When you could begin.")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="low, medium, high or urgent.")] = None,
    timeout_: Annotated[
        str | None,
        typer.Option("--timeout", metavar="DURATION", help="How long an attempt would take."),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    attempt: Attempt = None,
) -> None:
    """Propose other terms; the requester agrees or declines."""
    fields = given(
        deadline=deadline,
        update_every=update_every,
        accept_within=accept_within,
        priority=priority,
        timeout_=timeout_,
        reason=reason,
    )
    answer = await session.about_delivery("counter", ref, fields, attempt=attempt, direct=True)
    _moved(session, answer, "proposed other terms for")


async def done(
    session: Session,
    ref: Ref,
    result: Annotated[
        str,
        typer.Argument(metavar="RESULT|@FILE|-", help="JSON if it parses, else text."),
    ] = "null",
    attempt: Attempt = None,
) -> None:
    """Hand in the result."""
    fields = {"result": json_or_text(result)}
    answer = await session.about_delivery("complete", ref, fields, attempt=attempt)
    late = answer["handoff"]["state"] != "completed"
    _moved(session, answer, "too late; the result is kept for" if late else "completed")


async def fail(
    session: Session,
    ref: Ref,
    reason: Reason,
    *,
    retryable: Annotated[bool, typer.Option("--retryable", help="It may work next time.")] = False,
    code: Annotated[str | None, typer.Option(help="A name for programs to know it by.")] = None,
    attempt: Attempt = None,
) -> None:
    """Give up on it, for now or for good."""
    fields = {"reason": text_of(reason), "retryable": retryable, **given(code=code)}
    answer = await session.about_delivery("fail", ref, fields, attempt=attempt)
    _moved(session, answer, "failed")


async def reject(session: Session, ref: Ref, reason: Reason, attempt: Attempt = None) -> None:
    """Say that you will not do it."""
    fields = {"reason": text_of(reason)}
    answer = await session.about_delivery("reject", ref, fields, attempt=attempt, direct=True)
    _moved(session, answer, "rejected")


async def release(
    session: Session,
    ref: Ref,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="What you learnt, for whoever goes on."),
    ] = None,
    attempt: Attempt = None,
) -> None:
    """Give it back to your inbox: for another process of yours, or for later."""
    learnt = {} if checkpoint is None else {"checkpoint": json_or_text(checkpoint)}
    fields = {**given(reason=reason), **learnt}
    answer = await session.about_delivery("release", ref, fields, attempt=attempt)
    _moved(session, answer, "released")


def _moved(session: Session, answer: dict[str, Any], did: str) -> None:
    session.show(answer, lambda: picture.moved(answer["handoff"], did, now=session.now()))

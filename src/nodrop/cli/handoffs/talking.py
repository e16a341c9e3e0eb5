"""Verbs that talk: messages, statuses, topics. Informal: nothing is owed for them."""

from typing import Annotated, Any

import typer

from nodrop.cli import screen
from nodrop.cli.screen import line
from nodrop.cli.session import Session
from nodrop.cli.values import given, text_of

About = Annotated[str | None, typer.Option(metavar="REF", help="The handoff it is about.")]
Supersedes = Annotated[int | None, typer.Option(metavar="SEQ", help="What it takes the place of.")]


async def say(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="@file and - work too.")],
    *,
    to: Annotated[str | None, typer.Option(help="Whom.")] = None,
    thread: Annotated[str | None, typer.Option(help="In a thread, to all who are in it.")] = None,
    about: About = None,
    supersedes: Supersedes = None,
) -> None:
    """Say something, informally: to an agent, in a thread, or to whom a handoff concerns."""
    fields = {"text": text_of(text)}
    fields |= given(to=to, thread=thread, about=about, supersedes=supersedes)
    _told(session, await session.call("say", fields))


async def status(
    session: Session,
    status: Annotated[
        str, typer.Argument(metavar="STATUS", help="working, stuck, need_help, done, or words.")
    ],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="More about it.")] = None,
    *,
    about: About = None,
    topic: Annotated[str | None, typer.Option(help="Its subscribers hear of it.")] = None,
    supersedes: Supersedes = None,
) -> None:
    """Tell everybody who needs to know how it goes."""
    fields = {"status": status}
    fields |= given(text=text, about=about, topic=topic, supersedes=supersedes)
    _told(session, await session.call("tell_status", fields))


async def messages(
    session: Session,
    *,
    after: Annotated[int, typer.Option(min=0, help="Only what came after this number.")] = 0,
    thread: Annotated[str | None, typer.Option(help="Only of this thread.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only of this topic.")] = None,
    sender: Annotated[str | None, typer.Option("--from", help="Only from this agent.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
) -> None:
    """Read what was said to you and by you, and every status."""
    fields: dict[str, Any] = given(after=after, thread=thread, topic=topic, limit=limit)
    if sender is not None:
        fields["from"] = sender
    answer = await session.call("messages", fields)
    session.show(answer, lambda: _show(answer["messages"], session.now()))


async def subscribe(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, or an agent's name.")],
    off: Annotated[bool, typer.Option("--off", help="Hear no more of it.")] = False,
) -> None:
    """Hear of a topic, or of everything that an agent tells."""
    operation = "unsubscribe_topic" if off else "subscribe_topic"
    answer = await session.call(operation, name=topic)
    heard = "no longer hear" if off else "hear"
    session.show(answer, lambda: screen.success(f"you {heard} of {topic}"))


def _told(session: Session, answer: dict[str, Any]) -> None:
    heard = ", ".join(answer["to"]) or "nobody yet: it is in the log"
    session.show(answer, lambda: screen.success(f"said at {answer['seq']} to {heard}"))


def _show(found: list[dict[str, Any]], now: int) -> None:
    out = screen.console()
    if not found:
        out.print(line(("Nothing was said.", "bright_black")))
    for said in found:
        stale = said["superseded_by"] is not None
        to = f" → {', '.join(said['to'])}" if said["to"] else ""
        words = ": ".join(filter(None, (said["status"], said["text"])))
        newer = f"  ({said['newer']} newer)" if said["newer"] and not stale else ""
        old = f"  (superseded by {said['superseded_by']})" if stale else newer
        out.print(
            line(
                (f"{said['seq']:>5} {screen.ago(said['composed_at'], now)}  ", "bright_black"),
                (f"{said['from']}{to}  ", "bold"),
                (words, "bright_black strike" if stale else ""),
                (old, "yellow"),
            ),
            soft_wrap=True,
        )

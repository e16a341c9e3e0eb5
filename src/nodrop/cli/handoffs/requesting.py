"""The requester's verbs: hand work off, wait for it, answer, change one's mind, settle."""

import sys
from typing import Annotated, Any, Final

import typer

from nodrop.cli import picture, screen
from nodrop.cli.handoffs import offer
from nodrop.cli.screen import line
from nodrop.cli.session import Session
from nodrop.cli.values import given, json_of, typed, waiting
from nodrop.cli.verb import Ref
from nodrop.client.durations import Wait
from nodrop.model.errors import InvalidRequestError, Problem, StaleQuestionError
from nodrop.model.handoff import FINAL
from nodrop.protocol.errors import EXIT_FAILED, EXIT_TRY_AGAIN

_FINAL: Final = frozenset(state.value for state in FINAL)
WAIT: Final = "30s"

Why = Annotated[str | None, typer.Argument(metavar="REASON", help="Why.")]


async def send(
    session: Session,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|-",
            help="An offer in JSON, or a `HANDOFF: a → b` text block. Options overrule it.",
        ),
    ] = None,
    *,
    to: Annotated[str | None, typer.Option(help="Who shall do it.")] = None,
    capability: Annotated[str | None, typer.Option(help="What the recipient must offer.")] = None,
    title: Annotated[str | None, typer.Option(help="What it is, in a few words.")] = None,
    trigger: Annotated[str | None, typer.Option(help="What set it off.")] = None,
    priority: Annotated[str | None, typer.Option(help="low, medium, high or urgent.")] = None,
    payload: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE|-", help="What the recipient needs.")
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="DURATION|TIME", help="When it expires, such as 4h; 24h by default."),
    ] = None,
    timeout_: Annotated[
        str | None,
        typer.Option(
            "--timeout", metavar="DURATION", help="Active time per attempt, if less than declared."
        ),
    ] = None,
    contract: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Only under this contract.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Sent again with the same key, it is the same handoff.")
    ] = None,
    no_escalation: Annotated[
        bool, typer.Option("--no-escalation", help="No steps, and none of the team's either.")
    ] = False,
    wait: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Then wait for the outcome.")
    ] = None,
) -> None:
    """Hand a piece of work to another agent. When this returns, it is on disk.

    The same again within ten minutes, while the first is under way, is the same handoff.
    """
    fields = {} if file is None else offer.read(file)
    fields |= given(
        to=to,
        capability=capability,
        title=title,
        trigger=trigger,
        priority=priority,
        payload=None if payload is None else json_of(payload, path="--payload"),
        deadline=deadline,
        timeout_=timeout_,
        contract_digest=contract,
        idempotency_key=key,
        escalation=[] if no_escalation else None,
    )
    if not fields:
        raise InvalidRequestError(
            "there is nothing to send",
            next_step="Name a file, `-` for stdin, or say who and what: --to NAME --title TEXT.",
            errors=(Problem(path="FILE", message="no file and no options"),),
        )
    if fields.get("idempotency_key") is None:
        # Whoever types it again because nothing came back has not asked for it twice.
        fields.setdefault("turn_based", True)
    left = None if wait is None else waiting(wait, option="--wait")
    answer = await session.call("offer", fields)
    handoff = answer["handoff"]
    if session.as_json and left is None:
        screen.document(answer)
    elif not session.as_json:
        did = "stored before, and not again:" if answer.get("replayed") else "stored"
        picture.moved(handoff, did, now=session.now())
        if answer.get("replayed") and fields.get("turn_based"):
            screen.hint("To hand the same off once more, give it a --key.")
        screen.hint(f"nodrop track {handoff['ref']}")
    if left is not None:
        await _wait(session, handoff["id"], left, until="finished", of="handoff")
    elif not session.as_json and not sys.stdout.isatty():
        print(screen.clean(handoff["ref"]))  # REF=$(nodrop send …)


async def wait(
    session: Session,
    ref: Ref,
    length: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long to wait.")
    ] = WAIT,
    until: Annotated[
        str, typer.Option(metavar="RUNG", help="stored, delivered, acknowledged, finished, …")
    ] = "finished",
    chain: Annotated[bool, typer.Option("--chain", help="Wait for the last leg.")] = False,
) -> None:
    """Wait for the outcome, and settle it. Exit 75: it goes on; 1: it ended without a result."""
    left = waiting(length, option="--for")
    await _wait(session, ref, left, until=until, of="chain" if chain else "handoff")


async def _wait(session: Session, ref: str, left: Wait, *, until: str, of: str) -> None:
    while True:
        fields = {"wait": left.piece(), "until": until, "of": of}
        answer = await session.call("get_handoff", fields, handoff=ref)
        if not answer.get("wait_elapsed") or left.over:
            break
    handoff = answer["handoff"]
    if handoff["state"] in _FINAL:
        answer = await _settled(session, answer)
    session.show(answer, lambda: _show_wait(session, answer))
    if answer.get("wait_elapsed"):
        raise typer.Exit(EXIT_TRY_AGAIN)
    if handoff["state"] in _FINAL and handoff["state"] != "completed":
        raise typer.Exit(EXIT_FAILED)


async def _settled(session: Session, answer: dict[str, Any]) -> dict[str, Any]:
    """Tell the relay that the requester has the outcome. Others only look."""
    handoff = answer["handoff"]
    mine = session.identity == handoff["chain"]["origin"]
    if not mine or handoff["settled_at"] is not None:
        return answer
    return await session.call("settle", {}, handoff=handoff["id"])


def _show_wait(session: Session, answer: dict[str, Any]) -> None:
    handoff = answer["handoff"]
    if handoff["outcome"] is not None:
        picture.outcome(handoff)
    elif answer.get("wait_elapsed"):
        out = screen.console(stderr=True)
        rung = handoff["receipts"][-1]["rung"]
        words = line(("… ", "yellow"), (handoff["ref"], "bold"), f" goes on: {handoff['state']}")
        out.print(
            words.append_text(line(f", last rung {rung}. The wait is over, the work is not."))
        )
    else:
        picture.moved(handoff, handoff["receipts"][-1]["rung"], now=session.now())


async def erase(session: Session, ref: Ref) -> None:
    """Erase the words and data of a settled handoff; the log keeps that it happened."""
    await _command(session, "erase", ref, {}, "erased")


async def settle(session: Session, ref: Ref) -> None:
    """Say that you have the outcome. `wait` does it for you."""
    await _command(session, "settle", ref, {}, "settled")


async def cancel(session: Session, ref: Ref, reason: Why = None) -> None:
    """Withdraw a handoff that is no longer wanted."""
    await _command(session, "cancel", ref, given(reason=reason), "cancelled")


async def reassign(
    session: Session,
    ref: Ref,
    to: Annotated[str | None, typer.Option(help="Who shall do it instead.")] = None,
    capability: Annotated[str | None, typer.Option(help="What the recipient must offer.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
) -> None:
    """Give a handoff to somebody else."""
    fields = given(to=to, capability=capability, reason=reason)
    await _command(session, "reassign", ref, fields, "reassigned")


async def answer(
    session: Session,
    ref: Ref,
    value: Annotated[
        str, typer.Argument(metavar="VALUE|@FILE|-", help="JSON if it parses, else text.")
    ],
) -> None:
    """Answer the question that a handoff waits for."""
    seq = await _open_question(session, ref)
    fields = {"seq": seq, "answer": typed(value)}
    await _command(session, "answer", ref, fields, "answered")


async def agree(session: Session, ref: Ref) -> None:
    """Agree to the terms that the recipient proposed."""
    await _command(session, "agree", ref, {"seq": await _open_question(session, ref)}, "agreed on")


async def decline(session: Session, ref: Ref, reason: Why = None) -> None:
    """Decline the terms that the recipient proposed."""
    fields = {"seq": await _open_question(session, ref), **given(reason=reason)}
    await _command(session, "decline", ref, fields, "declined the terms of")


async def _open_question(session: Session, ref: str) -> int:
    handoff = await session.handoff(ref)
    if handoff["question"] is None:
        raise StaleQuestionError(
            f"{handoff['ref']} is {handoff['state']} and waits for no answer",
            next_step=f"See `nodrop track {handoff['ref']}`.",
        )
    return handoff["question"]["seq"]


async def _command(
    session: Session, operation: str, ref: str, fields: dict[str, Any], did: str
) -> None:
    answered = await session.call(operation, fields, handoff=ref)
    session.show(answered, lambda: picture.moved(answered["handoff"], did, now=session.now()))

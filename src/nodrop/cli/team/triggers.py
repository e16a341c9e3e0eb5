"""`nodrop emit` and `nodrop triggers`: tell of events, and look after the rules that wait for them."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from nodrop.cli import picture, screen
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.cli.values import decode, file_text, given, json_or_text
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol.text import nouns

Name = Annotated[str, typer.Argument(metavar="NAME", help="The rule.")]


async def emit(
    session: Session,
    kind: Annotated[str, typer.Argument(metavar="TYPE", help="Such as email.received.")],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="JSON or text; @file and - work too.")
    ] = None,
    event_id: Annotated[
        str | None, typer.Option("--id", help="The same id again is the same event.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Where it comes from.")] = None,
) -> None:
    """Tell of an event; each rule that it meets hands off what it says, once."""
    fields = given(type=kind, event_id=event_id, source=source)
    fields["data"] = None if data is None else json_or_text(data)
    answer = await session.call("emit", fields)
    session.show(answer, lambda: _show_fired(answer))


def _show_fired(answer: dict[str, Any]) -> None:
    screen.success(f"event {answer['event_id']} is in the log at {answer['seq']}")
    out = screen.console()
    for fired in answer["fired"]:
        if fired.get("unmet"):
            out.print(line(("· ", "bright_black"), f"{fired['rule']}: not met, {fired['unmet']}"))
            continue
        before = " (it had before)" if fired.get("before") else ""
        out.print(line(("→ ", "cyan"), f"{fired['rule']} handed off {fired['handoff_id']}{before}"))


async def triggers_list(session: Session) -> None:
    """List the rules of the team."""
    answer = await session.call("triggers")
    session.show(answer, lambda: _show_rules(answer["triggers"]))


def _show_rules(rules: list[dict[str, Any]]) -> None:
    out = screen.console()
    if not rules:
        out.print(
            line(("No triggers. ", "bright_black"), "nodrop triggers set NAME FILE makes one.")
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("rule", "on", "when", "hands off to", ""):
        table.add_column(column, no_wrap=column != "when")
    for rule in rules:
        offer = rule["offer"]
        table.add_row(
            styled(rule["name"], "bold"),
            styled(rule["on"]),
            styled(rule["when"]),
            styled(offer.get("to") or offer.get("capability") or ""),
            styled("nodrop.toml" if rule["from_file"] else "", "bright_black"),
        )
    out.print(table)


async def triggers_set(
    session: Session,
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The rule, as TOML or JSON.")],
) -> None:
    """Set a rule, in the place of the one of its name."""
    session.act_as("me")
    answer = await session.call("put_trigger", _rule(file), name=name)
    session.show(answer, lambda: screen.success(f"{name} waits for {answer['trigger']['on']}"))


async def triggers_remove(session: Session, name: Name) -> None:
    """Take a rule away. What it has handed off stays."""
    session.act_as("me")
    answer = await session.call("remove_trigger", name=name)
    session.show(answer, lambda: screen.success(f"{name} is gone"))


async def triggers_test(
    session: Session,
    rule: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A rule, stored or in a file.")],
    after: Annotated[int, typer.Option(min=0, help="Only events after this number.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many events.")] = None,
) -> None:
    """See what a rule would have made of past events. Nothing is handed off."""
    session.act_as("me")
    several = _named(rule)
    tried = {
        name: await session.call("test_trigger", given(after=after, limit=limit) | fields)
        for name, fields in several.items()
    }
    if len(tried) == 1:
        [answer] = tried.values()
        session.show(answer, lambda: _show_trials(answer["trials"]))
    else:
        session.show({"rules": tried}, lambda: _show_all(tried))


def _show_all(tried: dict[str, dict[str, Any]]) -> None:
    for name, answer in tried.items():
        screen.console().print(line((name, "bold")))
        _show_trials(answer["trials"])


def _show_trials(trials: list[dict[str, Any]]) -> None:
    out = screen.console()
    for trial in trials:
        met = trial["met"] and not trial.get("refused")
        mark = ("✓ ", "green") if met else ("✗ ", "red") if trial["met"] else ("· ", "bright_black")
        offer: dict[str, Any] = trial.get("offer") or {}
        why = trial.get("refused") or trial.get("unmet") or picture.brief(offer.get("title") or "")
        out.print(line(mark, f"{trial['seq']:>5} {trial['event_id']}  ", why), soft_wrap=True)
    fired = sum(trial["met"] for trial in trials)
    screen.success(
        f"{fired} of {len(trials)} {nouns(len(trials), 'events')} would have been handed off"
    )


def _named(rule: str) -> dict[str, dict[str, Any]]:
    """Return what is meant by a name: the rule of a file, all of `nodrop.toml`, or a stored one."""
    path = Path(rule)
    if not path.is_file():
        return {rule: {"trigger": rule}}
    read = _read(path)
    if "triggers" not in read:
        return {rule: {"rule": _unnamed(read)}}
    return {str(each.get("name")): {"rule": _unnamed(each)} for each in read["triggers"]}


def _rule(path: Path) -> dict[str, Any]:
    return _unnamed(_read(path))


def _unnamed(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule without the name that it has in `nodrop.toml`."""
    return {name: value for name, value in rule.items() if name != "name"}


def _read(path: Path) -> dict[str, Any]:
    text = file_text(str(path))
    if path.suffix != ".toml":
        return decode(text, path=str(path))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = Problem(path=str(path), message=str(error))
        raise InvalidRequestError("it is no TOML", errors=(problem,)) from error

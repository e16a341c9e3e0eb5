"""Finding agents: who is there, and who can do what is needed, as measured and as claimed."""

import json
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from nodrop.cli import screen
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.cli.values import given, json_of

_MARKS: Final = {
    "working": ("●", "yellow"),
    "idle": ("●", "green"),
    "asleep": ("○", "bright_black"),
    "ghost": ("○", "red"),
}
_SHAPE: Final = "JSON|@FILE|-"


async def agents(
    session: Session,
    context: typer.Context,
    capability: Annotated[str | None, typer.Option(help="Only who offers this.")] = None,
) -> None:
    """List the agents of the team, what they offer, and what waits for them."""
    if context.invoked_subcommand is not None:
        return
    answer = await session.call("agents", given(capability=capability))
    while (after := answer.get("after")) is not None:
        more = await session.call("agents", {"after": after})
        answer = {**more, "agents": answer["agents"] + more["agents"]}
    session.show(answer, lambda: _show_agents(answer["agents"]))


async def find(
    session: Session,
    capability: Annotated[
        str | None, typer.Argument(metavar="CAPABILITY", help="What they must offer.")
    ] = None,
    *,
    tag: Annotated[
        list[str] | None, typer.Option(help="A word they must be tagged with; repeatable.")
    ] = None,
    given_input: Annotated[
        str | None,
        typer.Option("--input", metavar=_SHAPE, help='What you would send: {"query": "string"}.'),
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar=_SHAPE, help="What you need to get, likewise.")
    ] = None,
    timeout_: Annotated[
        str | None,
        typer.Option("--timeout", metavar="DURATION", help="The longest they may say it takes."),
    ] = None,
    reliability: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="The least share of completed handoffs, as measured."),
    ] = None,
    available: Annotated[bool, typer.Option("--available", help="Only who is there now.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
) -> None:
    """Find agents by what they can do, the best first by what was measured."""
    fields = given(
        capability=capability,
        tags=",".join(tag or ()) or None,
        input=_shape(given_input, path="--input"),
        output=_shape(output, path="--output"),
        timeout_=timeout_,
        reliability=reliability,
        available=available or None,
        limit=limit,
    )
    answer = await session.call("agents", fields)
    session.show(answer, lambda: _show_found(answer["agents"]))


def _shape(written: str | None, *, path: str) -> str | None:
    return None if written is None else json.dumps(json_of(written, path=path))


def _show_agents(listed: list[dict[str, Any]]) -> None:
    out = screen.console()
    if not listed:
        out.print(
            line(("No agents yet. ", "bright_black"), "nodrop work NAME --exec 'CMD' makes one.")
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("", "agent", "presence", "capabilities", "waiting", "about"):
        table.add_column(column, no_wrap=column in {"", "agent", "presence", "waiting"})
    for agent in listed:
        manifest: dict[str, Any] = agent["manifest"] or {}
        offered = [str(capability["name"]) for capability in manifest.get("capabilities") or ()]
        table.add_row(
            line(_MARKS[agent["presence"]]),
            styled(agent["agent_id"], "bold"),
            _presence(agent),
            styled(", ".join(offered)),
            styled(agent["queued"] or ""),
            styled(manifest.get("description") or "", "bright_black"),
        )
    out.print(table)


def _show_found(found: list[dict[str, Any]]) -> None:
    out = screen.console()
    if not found:
        out.print(line(("Nobody. ", "bright_black"), "nodrop agents lists who is there."))
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    columns = ("", "agent", "presence", "capability", "observed", "usually in", "waiting")
    for column in (*columns, "claims", "fit"):
        table.add_column(column, no_wrap=column in {"", "agent", "waiting"})
    for agent in found:
        if not agent["offers"]:  # nothing in particular was asked for
            name, mark = styled(agent["agent_id"], "bold"), line(_MARKS[agent["presence"]])
            table.add_row(mark, name, _presence(agent))
        for offer in agent["offers"]:
            observed: dict[str, Any] = offer["observed"]
            took = observed["duration_seconds"]
            table.add_row(
                line(_MARKS[agent["presence"]]),
                styled(agent["agent_id"], "bold"),
                _presence(agent),
                styled(offer["capability"]),
                styled(observed["says"]),
                styled("" if took is None else f"{took:g} s"),
                styled(agent["queued"] or ""),
                styled(_claims(offer["claimed"]), "bright_black"),
                styled(_fit(offer), "bright_black"),
            )
    out.print(table)


def _presence(agent: dict[str, Any]) -> Text:
    until = f" until {screen.moment(agent['until'])}" if agent["until"] else ""
    return styled(f"{agent['presence']}{until}")


def _claims(claimed: dict[str, Any]) -> str:
    sla, timeout = claimed["reliability_sla"], claimed["timeout_seconds"]
    said = [] if sla is None else [f"{sla:.0%}"]
    said += [] if timeout is None else [f"within {timeout:g} s"]
    return ", ".join(said)


def _fit(offer: dict[str, Any]) -> str:
    fits = [(name, offer[name]) for name in ("input", "output") if offer[name] is not None]
    return "; ".join(f"{name} {fit}" for name, fit in fits)

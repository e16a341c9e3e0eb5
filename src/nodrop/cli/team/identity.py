"""Verbs that let people and agents in: tokens, links, invitations, joining, and the rules of the team."""

import webbrowser
from typing import Annotated, Any

import typer
from rich.table import Table

from nodrop.cli import screen
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.cli.values import given
from nodrop.client.transports.address import Remote, parse
from nodrop.model.errors import InvalidRequestError, Problem


async def token(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The agent it is for.")] = None,
    role: Annotated[str, typer.Option(help="agent, observer or operator.")] = "agent",
    label: Annotated[str | None, typer.Option(help="To tell it from others later.")] = None,
    revoke: Annotated[
        str | None, typer.Option(metavar="ID", help="End a token at once, instead.")
    ] = None,
    *,
    listed: Annotated[
        bool, typer.Option("--list", help="List the tokens that are good, instead; NAME's, or all.")
    ] = False,
) -> None:
    """Make a token for an agent and print it, alone: `$(nodrop token code_agent)`."""
    session.act_as("me")  # only an operator may, whoever this directory works as
    if listed:
        found = await _tokens(session, name)
        session.show(found, lambda: _show_tokens(found["tokens"], now=session.now()))
        return
    if revoke is not None:
        ended = await session.call("revoke_token", name=revoke)
        session.show(ended, lambda: screen.success("revoked a token of ", (ended["agent"], "bold")))
        return
    if name is None:
        problem = Problem(path="NAME", message="say whom it is for; or --list, or --revoke ID")
        raise InvalidRequestError(problem.message, errors=(problem,))
    fields = {"agent": name, "role": role, "label": label or "nodrop token"}
    answer = await session.call("create_token", fields)
    session.show(answer, lambda: print(screen.clean(answer["token"])))


async def _tokens(session: Session, agent: str | None) -> dict[str, Any]:
    """Return every page of the list."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = await session.call("list_tokens", given(agent=agent, after=after, limit=500))
        found += page["tokens"]
        after = page["after"]
        if after is None:
            return {"tokens": found}


def _show_tokens(listed: list[dict[str, Any]], *, now: int) -> None:
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("token", "kind", "agent", "role", "made", "ends", "label"):
        table.add_column(column, no_wrap=True)
    for shown in listed:
        table.add_row(
            styled(shown["token_id"]),
            styled(_kind(shown)),
            styled(shown["agent"], "bold"),
            styled(shown["role"]),
            styled(screen.ago(shown["created_at"], now), "bright_black"),
            styled(screen.ago(shown["expires_at"], now) if shown["expires_at"] else "never"),
            styled(shown["label"] or ""),
        )
    screen.console().print(table)


def _kind(shown: dict[str, Any]) -> str:
    """Return what a token is, in words."""
    if shown["kind"] == "view":
        return "view link, with payloads" if shown["payloads"] else "view link"
    if shown["kind"] == "sign_in":
        return "browser session" if shown["used_at"] else "sign-in link"
    return "token"


async def open_(
    session: Session,
    *,
    printed: Annotated[
        bool, typer.Option("--print", help="Print the address; open no browser.")
    ] = False,
    view: Annotated[
        bool, typer.Option("--view", help="A link to look only, for others: many may use it.")
    ] = False,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long the link works: 15m by default, 24h with --view."
        ),
    ] = None,
    payloads: Annotated[
        bool, typer.Option("--payloads", help="With --view: show payloads and results too.")
    ] = False,
) -> None:
    """Open the dashboard, signed in by a link that works once; or make a link for others to look."""
    if payloads and not view:
        problem = Problem(path="--payloads", message="is for --view: you see payloads as yourself")
        raise InvalidRequestError(problem.message, errors=(problem,))
    session.act_as("me")
    address = _page_of(session.settings.address)
    fields = {"kind": "view" if view else "sign_in", "payloads": payloads}
    answer = await session.call("create_link", fields | given(expires_in=expires))
    link = address + answer["path"]
    opened = not (printed or view or session.as_json) and webbrowser.open(link)
    session.show({**answer, "url": link}, lambda: print(link))
    if session.as_json:
        return
    if opened:
        screen.success("opened in your browser")
    lasts = screen.ago(answer["expires_at"], session.now())
    if view:
        shows = "with payloads" if payloads else "without payloads"
        screen.success(f"anyone with this link can look, {shows}; it expires {lasts}")
        screen.hint(f"nodrop token --revoke {answer['token_id']}    # ends it at once")
    else:
        screen.success(f"works one time; expires {lasts}")


def _page_of(address: str) -> str:
    """Return where the dashboard of a relay is."""
    try:
        place = parse(address)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error
    if not isinstance(place, Remote):
        raise InvalidRequestError(
            f"{address} is a database, and no relay serves a page for it here",
            next_step="Start a relay with `nodrop up`, or name one with --url.",
        )
    return place.base


async def invite(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Whom it is for; by default whoever has it, under a free name."
        ),
    ] = None,
    role: Annotated[str, typer.Option(help="agent, observer or operator.")] = "agent",
    expires: Annotated[str, typer.Option(help="How long it is good.")] = "24h",
) -> None:
    """Invite an agent to join with a key of its own: good once, and not for long."""
    session.act_as("me")
    fields = {**given(agent=name), "role": role, "expires": expires}
    answer = await session.call("create_invitation", fields)

    def picture() -> None:
        print(screen.clean(answer["invitation"]))
        agent = "" if name else " --agent NAME"
        screen.hint(f"nodrop join {answer['invitation']} --url {session.settings.address}{agent}")

    session.show(answer, picture)


async def join(
    session: Session,
    invitation: Annotated[str, typer.Argument(metavar="INVITATION", help="It begins with ndi_")],
) -> None:
    """Join a team: makes a key, keeps it in NODROP_HOME/keys, and tells the relay its public half."""
    from nodrop.client.auth import joining  # noqa: PLC0415  # cryptography is loaded by who needs it

    where = session.where
    answer = await joining.join(
        invitation,
        agent=where.agent,
        address=where.url,
        home=session.settings.home,
        ca=session.settings.ca,
    )
    key = answer["key"]
    session.show(
        answer,
        lambda: screen.success(
            "joined ", (answer["team"], "bold"), " as ", (key["agent"], "bold"), f", {key['role']}"
        ),
    )


async def policy(
    session: Session,
    signatures: Annotated[
        str | None, typer.Option(help="optional or required: for offers and outcomes.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="FROM:CAPABILITY:TO", help="Who may hand what to whom; * is any."),
    ] = None,
    *,
    allow_all: Annotated[bool, typer.Option("--allow-all", help="Drop the allow rules.")] = False,
    escalate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHEN:AFTER:WHO",
            help="Whom to tell if an offer has no such step, as in dead:0s:me.",
        ),
    ] = None,
    no_escalation: Annotated[
        bool, typer.Option("--no-escalation", help="Drop the team's escalation steps.")
    ] = False,
) -> None:
    """Show the rules of the team, or set those that are named. Setting is for operators."""
    session.act_as("me")
    answer = await session.call("get_policy")
    if signatures is not None or allow or allow_all or escalate or no_escalation:
        rules = [_rule(text) for text in allow or ()]
        kept: list[Any] = [] if allow_all else answer["allow"]
        steps = [_step(text) for text in escalate or ()]
        steps_kept: list[Any] = [] if no_escalation else answer["escalation"]
        fields = {
            "signatures": signatures or answer["signatures"],
            "allow": rules or kept,
            "escalation": steps or steps_kept,
        }
        answer = await session.call("set_policy", fields)
    session.show(answer, lambda: _show_policy(answer))


def _rule(text: str) -> dict[str, str]:
    parts = text.split(":")
    if len(parts) != 3:  # noqa: PLR2004  # from, what, to
        problem = Problem(path="--allow", message=f"expected FROM:CAPABILITY:TO, not {text}")
        raise InvalidRequestError(problem.message, errors=(problem,))
    sender, capability, recipient = parts
    return {"from": sender, "capability": capability, "to": recipient}


def _step(text: str) -> dict[str, str]:
    parts = text.split(":")
    if len(parts) != 3:  # noqa: PLR2004  # when, after how long, whom
        problem = Problem(path="--escalate", message=f"expected WHEN:AFTER:WHO, not {text}")
        raise InvalidRequestError(problem.message, errors=(problem,))
    when, after, notify = parts
    return {"when": when, "after": after, "notify": notify}


def _show_policy(rules: dict[str, Any]) -> None:
    out = screen.console()
    out.print(line("signatures  ", (rules["signatures"], "bold")))
    if not rules["allow"]:
        out.print(line("allow       ", ("everybody may hand everything to everybody", "bold")))
    for rule in rules["allow"]:
        said = f"{rule['from']} may hand {rule['capability']} to {rule['to']}"
        out.print(line("allow       ", (said, "bold")))
    if not rules["escalation"]:
        out.print(line("escalation  ", ("nobody is told unless an offer says so", "bold")))
    for step in rules["escalation"]:
        said = f"{step['when']} after {step['after']}: {step['notify']} is told"
        out.print(line("escalation  ", (said, "bold")))

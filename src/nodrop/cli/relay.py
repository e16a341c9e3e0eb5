"""`nodrop up`: run a relay, and tell a person what to do with it."""

import shutil
import sys
import textwrap
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group
from rich.text import Text

from nodrop.cli import logs, screen, values
from nodrop.cli.screen import line, styled
from nodrop.cli.service import Manager, service
from nodrop.cli.session import Session
from nodrop.cli.verb import path, text
from nodrop.client.settings import (
    find_home,
    written_checkpoints,
    written_retention,
    written_triggers,
)
from nodrop.model.errors import InvalidRequestError, Problem, StoreInUseError
from nodrop.model.limits import SECOND
from nodrop.protocol.text import spell_duration

if TYPE_CHECKING:
    from nodrop.app import Served
    from nodrop.outbound.outlets.checkpoints import Checkpoints

_NEVER: Final = "never"


async def up(
    session: Session,
    *,
    store: Annotated[
        str | None,
        typer.Option(
            parser=text,
            metavar="ADDRESS",
            envvar="NODROP_STORE",
            help="A PostgreSQL database to serve, postgresql://…, beside other relays.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(parser=text, help="Address to listen on; 127.0.0.1 by default."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Port; 6377 by default, 0 is any free one."),
    ] = None,
    hostname: Annotated[
        list[str] | None,
        typer.Option(parser=text, help="Another name that the relay is reached by; repeatable."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(parser=path, help="Serve TLS with this certificate (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(parser=path, help="Its key (PEM), if not in the same file.")
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option(
            parser=text,
            metavar="DURATION|never",
            envvar="NODROP_RETENTION",
            help="How long to keep what is settled; 90d by default.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Another bound, as in docs/limits.md; repeatable."),
    ] = None,
    allow_address: Annotated[
        list[str] | None,
        typer.Option(
            parser=text,
            metavar="HOST[:PORT]",
            help="Let webhooks be called there although it is not a public address; repeatable.",
        ),
    ] = None,
    grpc: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Speak A2A over gRPC too, on this port; 0 is any."),
    ] = None,
    dashboard: Annotated[
        bool,
        typer.Option(envvar="NODROP_DASHBOARD", help="Serve the dashboard at /."),
    ] = True,
    watch: Annotated[
        bool,
        typer.Option(
            envvar="NODROP_WATCH", help="Tell you of loops, storms and work that nobody collects."
        ),
    ] = True,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            parser=text,
            metavar="FILE|URL",
            help="Send signed checkpoints of the log there, so that changes to it can be found.",
        ),
    ] = None,
    checkpoints_every: Annotated[
        str | None,
        typer.Option(parser=text, metavar="DURATION", help="How often; every hour by default."),
    ] = None,
    log_level: logs.Level = logs.LogLevel.INFO,
    log_format: logs.Format = logs.LogFormat.TEXT,
    log_file: logs.File = None,
    access_log: Annotated[
        bool,
        typer.Option("--access-log", help="Log every request too.", rich_help_panel="Log"),
    ] = False,
    as_service: Annotated[
        bool,
        typer.Option("--service", help="Write a service file for this user instead of running."),
    ] = False,
    manager: Annotated[
        Manager | None,
        typer.Option(help="With --service: for which manager; by default this system's."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --service: only print the file.")
    ] = False,
) -> None:
    """Start a relay: on 127.0.0.1:6377, with everything it needs in your home directory."""
    log = logs.Logs(level=log_level, form=log_format, file=log_file)
    if as_service:
        options = _spelled(
            {
                "--store": store,
                "--host": host,
                "--port": port,
                "--tls-cert": tls_cert and tls_cert.resolve(),
                "--tls-key": tls_key and tls_key.resolve(),
                "--retention": retention,
                "--grpc": grpc,
                "--checkpoints": checkpoints,
                "--checkpoints-every": checkpoints_every,
                "--hostname": hostname,
                "--limit": limit,
                "--allow-address": allow_address,
            }
        )
        if not dashboard:
            options.append("--no-dashboard")
        if not watch:
            options.append("--no-watch")
        if access_log:
            options.append("--access-log")
        options += log.options()
        _as_service(session, manager, options, dry_run=dry_run)
        return
    from nodrop import app  # noqa: PLC0415  # the relay itself: nothing else needs it loaded

    log.begin()
    home = session.settings.home
    kept = retention or written_retention() or app.RETENTION
    keep_ms = None if kept == _NEVER else values.duration_ms(kept, path="--retention")
    try:
        await app.serve(
            home,
            store=_checked(store),
            host=app.HOST if host is None else host,
            port=app.PORT if port is None else port,
            hosts=hostname or (),
            tls=app.TLS(certificate=tls_cert, key=tls_key or tls_cert) if tls_cert else None,
            limits=values.limits(limit or (), path="--limit"),
            allowed=allow_address or (),
            grpc_port=grpc,
            dashboard=dashboard,
            watch=watch,
            access_log=access_log,
            keep_ms=keep_ms,
            triggers=written_triggers(),
            checkpoints=_checkpoints(checkpoints, checkpoints_every),
            ready=lambda served: _tell(served, home, keep_ms, as_json=session.as_json),
        )
    except StoreInUseError as error:
        where = f"it is served at {error.address}" if error.address else error.detail
        raise StoreInUseError(f"{home / app.DATABASE}: {where}", address=error.address) from error
    if not session.as_json:
        screen.console().print(
            line(
                ("Stopped. ", "bold"), "What was answered is on disk; `nodrop up` goes on with it."
            )
        )


def _spelled(options: Mapping[str, str | int | Path | list[str] | None]) -> list[str]:
    """Return `options` as a command line has them: those that were given, each of a list by itself."""
    return [
        part
        for flag, value in options.items()
        if value is not None
        for each in (value if isinstance(value, list) else [value])
        for part in (flag, str(each))
    ]


def _checked(store: str | None) -> str | None:
    from nodrop import app  # noqa: PLC0415  # the same

    if store is not None and not app.is_address(store):
        problem = Problem(path="--store", message="expected postgresql://user@host/database")
        raise InvalidRequestError("no such store", errors=(problem,))
    return store


def _checkpoints(to: str | None, every: str | None) -> "Checkpoints | None":
    from nodrop.outbound.outlets.checkpoints import Checkpoints  # noqa: PLC0415  # the same

    written = written_checkpoints()
    to = to or (written.to if written else None)
    if to is None:
        return None
    if every is None:
        every = written.every if written else "1h"
    every_ms = values.duration_ms(every, path="--checkpoints-every")
    if every_ms < SECOND:
        problem = Problem(path="--checkpoints-every", message="at least a second")
        raise InvalidRequestError("too often", errors=(problem,))
    return Checkpoints(to=to, every_ms=every_ms)


def _tell(served: "Served", home: Path, keep_ms: int | None, *, as_json: bool) -> None:
    if as_json:
        screen.document(
            {
                "url": served.url,
                "others": served.others,
                "database": served.database,
                "credentials": str(served.credentials),
                "person": "me",
                "open": served.sign_in,
                "retention": _NEVER if keep_ms is None else spell_duration(keep_ms),
                "version": version("nodrop"),
                "warnings": list(served.warnings),
            }
        )
        return
    out = screen.console()
    out.print(_welcome(served, home, keep_ms), soft_wrap=True)
    for warning in served.warnings:
        out.print(line(("! ", "yellow"), (warning, "yellow")))


def _welcome(served: "Served", home: Path, keep_ms: int | None) -> Group:
    """Return the first screen: whole lines, which a terminal wraps and copies whole."""
    facts = [
        *([("open", f"{served.sign_in}   (one time, 15 min)")] if served.sign_in else []),
        *([("others", _for_others(served.others))] if served.others else []),
        ("database", _place(served.database)),
        ("retention", _kept(keep_ms)),
        ("credentials", f"{_short(served.credentials)}  (yours alone; your clients find it)"),
        ("you", "are me; what is escalated to you: nodrop inbox"),
    ]
    before = _activating()
    if home.resolve() != find_home(environment={}).resolve():
        before.append(f"export NODROP_HOME={home.resolve()}")
    first = (("In another terminal, first", "\n".join(before)),) if before else ()
    return Group(
        line(
            ("nodrop ", "bold"),
            f"{version('nodrop')} is up at ",
            (served.url, "bold green"),
            ("   Ctrl-C or `nodrop stop` ends it", "bright_black"),
        ),
        Text(),
        *(line((f"  {name:<11}  ", "bright_black"), fact) for name, fact in facts),
        *(
            Group(
                Text(), styled(f"  {title}", "bold"), styled(textwrap.indent(code, "    "), "cyan")
            )
            for title, code in (*first, *_FIRST_STEPS)
        ),
        Text(),
    )


_PYTHON: Final = """\
import nodrop
agent = nodrop.Agent("code_agent")

@agent.capability("bug_triage")
async def bug_triage(task: nodrop.Task, email_id: str) -> str: ...

agent.run()"""
_FIRST_STEPS: Final = (
    (
        "Make any command an agent",
        "nodrop work code_agent --exec 'echo I will look into it'",
    ),
    (
        "Hand it a piece of work",
        "nodrop send --to code_agent --title 'Login button not working' --wait 30s",
    ),
    (
        "Or connect an agent in Python",
        _PYTHON,
    ),
    (
        "Connect a coding agent, in its folder",
        "nodrop setup claude    # or codex, cursor, openclaw",
    ),
    ("See who owes the next move", "nodrop top    # or, in the browser: nodrop open"),
    ("Watch", "nodrop log --follow"),
)


def _kept(keep_ms: int | None) -> str:
    if keep_ms is None:
        return "everything is kept for ever"
    return f"what is settled is kept for {spell_duration(keep_ms)}  (--retention changes it)"


def _for_others(address: str) -> str:
    return f"{address}  (or any other address of this machine: it listens on all of them)"


def _activating() -> list[str]:
    """Return what makes `nodrop` this one in a shell, where it is not found or another."""
    own = Path(sys.prefix, "bin")
    if not (own / "activate").exists() or shutil.which("nodrop") == str(own / "nodrop"):
        return []
    return [f"source {own / 'activate'}"]


def _place(database: str) -> str:
    return database if "://" in database else _short(Path(database))


def _short(path: Path) -> str:
    """Return a path as a person writes it."""
    full = path.resolve()
    return f"~/{full.relative_to(Path.home())}" if full.is_relative_to(Path.home()) else str(full)


def _as_service(
    session: Session, manager: Manager | None, options: list[str], *, dry_run: bool
) -> None:
    home = ["--home", str(session.settings.home.resolve())]
    made = service(manager or Manager.of_this_system(), [*home, *options], user_home=Path.home())
    if not dry_run:
        made.write()
    if session.as_json:
        screen.document({"path": str(made.path), "unit": made.content, "written": not dry_run})
        return
    print(made.content, end="")
    out = screen.console(stderr=True)
    if dry_run:
        out.print(line(("→ ", "cyan"), f"Without --dry-run it is written to {_short(made.path)}"))
        return
    out.print(
        line(("✓ ", "green"), f"written to {_short(made.path)}. Start it, now and at every login:")
    )
    for command in made.start:
        out.print(styled(f"  {command}", "cyan"), soft_wrap=True)
    if made.stay:
        out.print(line("To keep it running while you are logged out:"))
    for command in made.stay:
        out.print(styled(f"  {command}", "cyan"))

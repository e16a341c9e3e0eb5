"""`nodrop doctor`: is everything as it should be, and if not, what to do about it."""

import shlex
import shutil
import stat
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import msgspec
import typer

from nodrop.audit import ledger
from nodrop.cli import screen
from nodrop.cli.screen import line
from nodrop.cli.session import Session
from nodrop.cli.setup import start
from nodrop.cli.setup.clients import server_in
from nodrop.cli.setup.files import Files
from nodrop.cli.values import given
from nodrop.cli.verb import text
from nodrop.client.auth.credentials import Credentials, CredentialsFile
from nodrop.client.auth.joined import joined
from nodrop.client.auth.private_file import FILE_MODE
from nodrop.client.settings import Settings, written_checkpoints
from nodrop.client.transports.address import Remote, parse
from nodrop.client.transports.connecting import open_client
from nodrop.model.errors import CheckpointMismatchError, NodropError, StoreCorruptError
from nodrop.model.limits import SECOND
from nodrop.protocol import openapi
from nodrop.protocol.entries import Head
from nodrop.protocol.errors import EXIT_FAILED
from nodrop.protocol.text import nouns, spell_duration
from nodrop.protocol.times import parse_time

if TYPE_CHECKING:
    from nodrop.log.sqlite.driver import Connection

DISK_BYTES_WARN: Final = 1 << 30
DISK_BYTES_FAIL: Final = 100 << 20
SKEW_MS_WARN: Final = 2 * SECOND
SKEW_MS_FAIL: Final = 60 * SECOND
LATE_MS_MAX: Final = 10 * SECOND
"""A due time that passed longer ago than this should have made the relay act."""
ENTRIES_CHECKED: Final = 500
DATABASE: Final = "nodrop.db"
PAGE: Final = 500
SECONDS_MAX: Final = 5

_OPEN: Final = ("offered", "delivered", "accepted", "blocked")


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    next: str | None = None
    """What to do about it."""


Checks = AsyncGenerator[Check]


async def doctor(
    session: Session,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            parser=text,
            metavar="FILE",
            help="Checkpoints of the relay; what nodrop.toml says by default.",
        ),
    ] = None,
) -> None:
    """Check home, credentials, disk, what `nodrop setup` wrote, relay, log, clock and handoffs; say what to do."""
    written = written_checkpoints()
    to = checkpoints or (written.to if written else None)
    checks: list[Check] = []
    async for check in _examine(session, _own_file(to)):
        checks.append(check)
        if not session.as_json:
            _show(check)
    well = not any(check.status == "fail" for check in checks)
    if session.as_json:
        screen.document({"ok": well, "checks": msgspec.to_builtins(checks)})
    if not well:
        raise typer.Exit(EXIT_FAILED)


def _own_file(to: str | None) -> Path | None:
    """Return where checkpoints can be read again; what was posted to an address cannot."""
    return None if to is None or "://" in to else Path(to).expanduser()


def _show(check: Check) -> None:
    mark = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}[check.status]
    out = screen.console()
    out.print(line(mark, f" {check.name:<12} ", check.detail), soft_wrap=True)
    if check.next is not None:
        out.print(line(("               → ", "cyan"), check.next), soft_wrap=True)


async def _examine(session: Session, checkpoints: Path | None) -> Checks:
    home = session.settings.home
    yield _home(home)
    yield _credentials(home)
    yield _disk(home)
    async for check in _configured(home):
        yield check
    before = session.now()
    try:
        point = await session.call("checkpoints")
    except NodropError as error:
        yield Check(name="relay", status="fail", detail=error.detail, next=error.next_step)
        if not isinstance(error, StoreCorruptError):  # a relay has said so
            at_rest = _database_at_rest(home)
            yield at_rest
            if checkpoints is not None and at_rest.status == "ok" and (home / DATABASE).exists():
                client = await open_client(str(home / DATABASE), agent="me")
                try:
                    yield await _own_checkpoints(checkpoints, client.call)
                finally:
                    await client.close()
        return
    after = session.now()
    yield await _relay(session.settings, took_ms=after - before)
    yield compare_clocks(parse_time(point["at"]), before=before, after=after)
    try:
        yield await _log(session, point)
        if checkpoints is not None:
            yield await _own_checkpoints(checkpoints, session.call)
        async for check in _handoffs(session):
            yield check
    except NodropError as error:
        yield Check(name="store", status="fail", detail=error.detail, next=error.next_step)


def _home(home: Path) -> Check:
    if not home.exists():
        advice = "`nodrop up` makes it; for a relay elsewhere it is not needed."
        return Check(name="home", status="warn", detail=f"{home} is not there", next=advice)
    try:
        with tempfile.NamedTemporaryFile(dir=home):
            return Check(name="home", status="ok", detail=f"{home} can be written to")
    except OSError as error:
        return Check(
            name="home",
            status="fail",
            detail=f"{home} cannot be written to: {error.strerror}",
            next="Choose another with --home or NODROP_HOME.",
        )


def _credentials(home: Path) -> Check:
    file = CredentialsFile(home)
    try:
        mode = stat.S_IMODE(file.path.stat().st_mode)
        known = file.read()
    except FileNotFoundError:
        return Check(
            name="credentials",
            status="warn",
            detail=f"there are none in {home}",
            next="`nodrop up` makes them; for a relay elsewhere set NODROP_URL and NODROP_TOKEN.",
        )
    except (OSError, ValueError) as error:
        return Check(
            name="credentials",
            status="fail",
            detail=str(error),
            next="Move the file away; `nodrop up` makes another.",
        )
    if mode & ~FILE_MODE:
        return Check(
            name="credentials",
            status="fail",
            detail=f"others can read {file.path} (mode {mode:04o})",
            next=f"chmod 600 {file.path}",
        )
    return Check(name="credentials", status="ok", detail=f"yours alone; {_held(home, known)}")


def _held(home: Path, known: Credentials) -> str:
    """Return whom the credentials of this home are for."""
    keys = [each.agent for each in joined(home)]
    held = ["the operator"] if known.operator is not None else []
    if count := len(known.agents.keys() - set(keys)):
        held.append(f"{count} {nouns(count, 'agents')}")
    held += [f"{agent} with a key" for agent in keys]
    return " and ".join(held) or "nobody: they only say where the relay is"


def _disk(home: Path) -> Check:
    there = next(path for path in (home, *home.resolve().parents) if path.exists())
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Check(name="disk", status="fail", detail=str(error.strerror))
    detail = f"{free / (1 << 30):.1f} GiB free"
    if free >= DISK_BYTES_WARN:
        return Check(name="disk", status="ok", detail=detail)
    return Check(
        name="disk",
        status="fail" if free < DISK_BYTES_FAIL else "warn",
        detail=detail,
        next="Make room: a full disk stops the relay from taking work; it loses none.",
    )


async def _configured(home: Path) -> Checks:
    """Start once what `nodrop setup` wrote, as the coding agent would."""
    for path in Files(home).paths():
        try:
            command = server_in(path)
        except (OSError, ValueError) as error:
            advice = "The coding agent cannot read it either: correct it."
            yield Check(name="setup", status="fail", detail=f"{path}: {error}", next=advice)
            continue
        if command is None:
            continue
        why = await start.why_not(command)
        yield Check(
            name="setup",
            status="ok" if why is None else "fail",
            detail=f"{path}: {'its MCP server starts and answers' if why is None else why}",
            **given(next=None if why is None else _start_again(command)),
        )


def _start_again(command: Sequence[str]) -> str:
    return f"See it fail: {shlex.join(command)}    # `nodrop setup` in that folder writes it anew"


async def _relay(settings: Settings, *, took_ms: int) -> Check:
    place = parse(settings.address)
    if not isinstance(place, Remote):
        return Check(name="relay", status="ok", detail=f"in this process, on {settings.address}")
    theirs = await _version_at(place.base, settings.ca)
    detail = f"{place.base} answers in {took_ms} ms, API {theirs or 'unknown'}"
    if theirs == openapi.VERSION:
        return Check(name="relay", status="ok", detail=detail)
    advice = f"This client speaks {openapi.VERSION}; use the same release on both sides."
    return Check(name="relay", status="warn", detail=detail, next=advice)


async def _version_at(base: str, ca: Path | None) -> str | None:
    import aiohttp  # noqa: PLC0415  # a third of a second that no other verb should pay for

    from nodrop.client.transports import trust  # noqa: PLC0415  # the same

    try:
        timeout = aiohttp.ClientTimeout(total=SECONDS_MAX)
        async with (
            aiohttp.ClientSession(timeout=timeout) as web,
            web.get(f"{base}/openapi.json", ssl=trust.context(ca)) as response,
        ):
            return (await response.json())["info"]["version"]
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError):
        return None


def compare_clocks(theirs: int, *, before: int, after: int) -> Check:
    """Return whether the clocks agree; the relay told its time between `before` and `after`."""
    skew = theirs - (before + after) // 2
    uncertain = (after - before) // 2
    off = max(abs(skew) - uncertain, 0)
    if off < SKEW_MS_WARN:
        return Check(name="clock", status="ok", detail="agrees with the relay's")
    ahead = "behind" if skew > 0 else "ahead of"
    return Check(
        name="clock",
        status="fail" if off >= SKEW_MS_FAIL else "warn",
        detail=f"this machine is {spell_duration(off)} {ahead} the relay",
        next="Synchronise the clocks: times are the relay's, and you would misread them.",
    )


async def _log(session: Session, point: dict[str, Any]) -> Check:
    """Hash the end of the log anew, up to the head that the relay has signed."""
    begin = max(point["size"] - ENTRIES_CHECKED, 0)
    answer = await session.call("log", {"after": begin, "limit": PAGE})
    entries = [entry for entry in answer["entries"] if entry["seq"] <= point["size"]]
    first = entries[0] if entries else None
    after = Head(seq=first["seq"] - 1, hash=first["prev_hash"]) if first else None
    books = ledger.count(entries, team=point["team"], after=after)
    if books.broken:
        found = books.broken[0]
        detail = f"entry {found.seq} {found.what}"
    elif entries and books.head.hash != point["head"]:
        detail = "its end is not the one that the relay has signed"
    else:
        checked = f"the last {len(entries)} hashed anew" if begin else "all hashed anew"
        detail = f"{point['size']} {nouns(point['size'], 'entries')}, {checked}"
        return Check(name="log", status="ok", detail=detail)
    advice = "Stop the relay and keep the file as it is: somebody or something changed it."
    return Check(name="log", status="fail", detail=detail, next=advice)


async def _own_checkpoints(path: Path, call: Callable[..., Awaitable[dict[str, Any]]]) -> Check:
    """Compare the log with the last checkpoint that the relay has written into a file."""
    from nodrop.app import checkpointed  # noqa: PLC0415  # the relay itself: other verbs need not load it

    team = (await call("checkpoints", {}))["team"]
    try:
        last = checkpointed.last_in(path, team)
        if last is None:
            return Check(name="checkpoints", status="ok", detail=f"none of {team} in {path}")
        head = Head(seq=last.size, hash=last.head)
        why = await checkpointed.difference(call, head, last.at)
    except CheckpointMismatchError as error:
        return Check(name="checkpoints", status="warn", detail=error.detail)
    if why is None:
        detail = f"the log goes on from entry {last.size}, the last in {path}"
        return Check(name="checkpoints", status="ok", detail=detail)
    advice = CheckpointMismatchError.next
    return Check(name="checkpoints", status="fail", detail=f"{why} ({path})", next=advice)


async def _handoffs(session: Session) -> Checks:
    shown: list[dict[str, Any]] = []
    for state in _OPEN:
        shown += (await session.call("list_handoffs", {"state": state, "limit": PAGE}))["handoffs"]
    now = session.now()
    late = [h for h in shown if h["due_at"] and parse_time(h["due_at"]) < now - LATE_MS_MAX]
    count = f"{len(shown)} open" if len(shown) < PAGE else f"at least {len(shown)} open"
    yield Check(
        name="handoffs",
        status="fail" if late else "ok",
        detail=f"{count}, {len(late)} of them overdue without the relay acting",
        **given(next=f"See `nodrop track {late[0]['ref']}` and the relay's log." if late else None),
    )
    dead = (await session.call("dead_letters", {"limit": PAGE}))["handoffs"]
    yield Check(
        name="dead letters",
        status="warn" if dead else "ok",
        detail=f"{len(dead)} {'waits' if len(dead) == 1 else 'wait'} for a decision"
        if dead
        else "none",
        **given(next="nodrop dlq list" if dead else None),
    )


def _database_at_rest(home: Path) -> Check:
    """Look into the file itself, which nobody serves."""
    path = home / DATABASE
    if not path.exists():
        return Check(name="database", status="ok", detail="none yet; `nodrop up` makes it")
    import apsw  # noqa: PLC0415  # needed here only

    try:
        return _look_into(path)
    except apsw.BusyError:
        detail = f"{path} is in use by a relay that does not answer"
        return Check(name="database", status="fail", detail=detail, next="Look at that process.")
    except apsw.Error as error:
        return Check(name="database", status="fail", detail=f"{path}: {error}", next=_RESTORE)


def _look_into(path: Path) -> Check:
    import apsw  # noqa: PLC0415  # needed here only

    flags = apsw.SQLITE_OPEN_READWRITE
    connection = cast("Connection", apsw.Connection(str(path), flags=flags))
    try:
        # As the relay opens it, so that it and we cannot both have the file.
        connection.pragma("locking_mode", "exclusive")
        found = str(connection.pragma("integrity_check"))
        journal = str(connection.pragma("journal_mode"))
    finally:
        connection.close()
    if found != "ok":
        return Check(name="database", status="fail", detail=f"{path}: {found}", next=_RESTORE)
    return Check(name="database", status="ok", detail=f"{path} is sound (journal {journal})")


_RESTORE: Final = (
    "Keep a copy of the file and of its -wal, then restore a backup: nodrop restore FILE"
)

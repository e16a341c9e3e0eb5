"""The story of the demo: who does what, who is killed when, and what the log says in the end."""

import asyncio
import os
import shutil
import signal
import tempfile
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from nodrop.audit import ledger
from nodrop.audit.ledger import Ledger
from nodrop.cli import picture, screen
from nodrop.cli.demo.stage import Stage
from nodrop.cli.entries import Lines
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.client.client import Client
from nodrop.client.transports.connecting import connect
from nodrop.model.errors import NotInstalledError, UnavailableError
from nodrop.protocol import text
from nodrop.protocol.errors import EXIT_FAILED
from nodrop.protocol.times import parse_time

AGENTS: Final = ("code_agent", "inbox_monitor", "support_agent")
SCENE_SECONDS_MAX: Final = 20.0
"""How long one scene may take before the demo gives up."""
DOWN_SECONDS: Final = 1.0
"""How long the relay stays dead, so that one can see the work go on without it."""

BLOCK: Final = """\
HANDOFF: inbox_monitor → code_agent
TRIGGER: Bug report detected
PRIORITY: medium
PAYLOAD: {
"email_id": "msg_123",
"customer": "jane@company.com",
"issue": "Login button not working on mobile",
"reproduction_steps": [...],
"expected_outcome": "Investigate and provide timeline"
}
DEADLINE: 4 hours
ESCALATION: If no response in 1 hour, notify me
THEN: inbox_monitor (Customer-ready response) → support_agent (Final review)
KEY: bug_123
"""
"""What inbox_monitor sends: the contract, the fallback, and the chain that follows."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    ok: bool
    dropped: int
    duplicated: int
    broken: int
    entries: int
    handoffs: int
    attempts: int
    """Of the leg whose worker was killed."""
    tickets: int
    """Opened outside the relay; one, although two attempts came that way."""
    seconds: float
    home: str | None


async def demo(
    session: Session,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the database and logs.")] = False,
    opened: Annotated[
        bool, typer.Option("--open", help="Watch it in the dashboard; Ctrl-C ends the demo.")
    ] = False,
) -> None:
    """Watch a bug report pass through three agents while a worker and the relay get kill -9."""
    home = Path(tempfile.mkdtemp(prefix="nodrop-demo-"))
    playing = asyncio.current_task()
    assert playing is not None, "a verb runs in a task"
    # As on Ctrl-C: whatever was started is ended first.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    try:
        async with Stage(home) as stage:
            story = _Story(stage, quiet=session.as_json, opened=opened)
            figures = await story.play(kept=home if keep else None)
            if session.as_json:
                screen.document(msgspec.to_builtins(figures))
            if opened:
                await story.stay_open()
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    if not figures.ok:
        raise typer.Exit(EXIT_FAILED)


class _Story:
    def __init__(
        self,
        stage: Stage,
        *,
        quiet: bool,
        opened: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage = stage
        self._quiet = quiet
        self._opened = opened
        self._now = now
        self._entries: list[dict[str, Any]] = []
        self._heard = asyncio.Condition()
        self._lines = Lines()

    async def play(self, *, kept: Path | None) -> Figures:
        """Play all of it."""
        began = self._now()
        await self._raise_curtain()
        self._move_in()
        async with connect(agent="me") as me, connect(agent="inbox_monitor") as requester:
            listening = asyncio.ensure_future(self._listen(me))
            try:
                await self._until("every agent has joined", _all_joined)
                ended = await self._hand_over(requester)
                await self._until("the log has all of it", _settled(ended["id"]))
                books = await self._count(me, answered=[ended["chain"]["done"][0]["id"]])
                first = await me.call("get_handoff", handoff="inbox_monitor/bug_123")
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
        figures = self._figures(books, first["handoff"]["attempt"], self._now() - began, kept)
        self._show_end(first["handoff"], ended, figures)
        return figures

    def _move_in(self) -> None:
        """Let our own clients find this relay, and no settings of the person who watches."""
        environment = self._stage.environment()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(self._stage.home)

    # --- scenes ---------------------------------------------------------------------------------

    async def _raise_curtain(self) -> None:
        self._say("A relay and three agents, each a process of its own")
        pid = await self._stage.start_relay()
        self._tell("relay", pid, self._stage.url)
        if self._opened:
            self._open_dashboard()
        for name in AGENTS:
            self._tell(name, await self._stage.start_agent(name))

    def _open_dashboard(self) -> None:
        link = self._stage.sign_in
        if not link:
            raise NotInstalledError(
                "this installation has no dashboard", next_step="Build its page with `make page`."
            )
        webbrowser.open(link)
        self._tell_more(f"dashboard     {link}")

    async def stay_open(self) -> None:
        """Serve the dashboard until Ctrl-C or a SIGTERM ends the demo."""
        over = asyncio.Event()
        for each in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(each, over.set)
        self._tell_more("The dashboard stays open. Ctrl-C ends the demo.")
        await over.wait()

    async def _hand_over(self, requester: Client) -> dict[str, Any]:
        """Hand the report off, kill who works on it, then the relay; return the last leg."""
        self._say("inbox_monitor hands a bug report to code_agent")
        if not self._quiet:
            screen.console().print(styled(f"\n{BLOCK}", "cyan"))
        await requester.call("offer", text.parse(BLOCK))

        await self._until("the ticket is recorded", _is("step_recorded"))
        await self._until("attempt 1 goes on", _is("updated", attempt=1))
        pid = await self._stage.kill("code_agent")
        self._say(f"kill -9 {pid}: code_agent dies in the middle of its work", "red")
        self._tell("code_agent", await self._stage.start_agent("code_agent"), "started again")
        await self._until("attempt 2 goes on", _is("updated", attempt=2))

        pid = await self._stage.kill("relay")
        self._say(f"kill -9 {pid}: the relay dies; code_agent works on", "red")
        await asyncio.sleep(DOWN_SECONDS)
        self._tell("relay", await self._stage.start_relay(), "started again")

        fields = {"wait": SCENE_SECONDS_MAX, "until": "finished", "of": "chain"}
        async with asyncio.timeout(2 * SCENE_SECONDS_MAX):
            answer = await requester.call("get_handoff", fields, handoff="inbox_monitor/bug_123")
            ended = answer["handoff"]
            if answer.get("wait_elapsed"):
                raise UnavailableError(f"the chain did not end: {ended['ref']} is {ended['state']}")
            return (await requester.call("settle", handoff=ended["id"]))["handoff"]

    async def _count(self, me: Client, *, answered: list[str]) -> Ledger:
        shown = (await me.call("list_handoffs", {"limit": 500}))["handoffs"]
        return ledger.count(self._entries, answered=answered, shown=shown)

    def _figures(self, books: Ledger, attempts: int, seconds: float, kept: Path | None) -> Figures:
        tickets = len(self._stage.tickets.read_text(encoding="utf-8").splitlines())
        return Figures(
            ok=books.holds and tickets == 1,
            dropped=len(books.dropped),
            duplicated=len(books.duplicated),
            broken=len(books.broken),
            entries=books.entries,
            handoffs=books.stored,
            attempts=attempts,
            tickets=tickets,
            seconds=round(seconds, 1),
            home=None if kept is None else str(kept),
        )

    # --- the log, as it comes -------------------------------------------------------------------

    async def _listen(self, me: Client) -> None:
        after = 0
        while True:
            answer = await me.call("log", {"after": after, "wait": 30})
            async with self._heard:
                for entry in answer["entries"]:
                    self._entries.append(entry)
                    if not self._quiet:
                        screen.console().print(self._lines.of(entry), soft_wrap=True)
                self._heard.notify_all()
            after = answer["after"]

    async def _until(self, what: str, seen: Callable[[list[dict[str, Any]]], bool]) -> None:
        try:
            async with asyncio.timeout(SCENE_SECONDS_MAX), self._heard:
                await self._heard.wait_for(lambda: seen(self._entries))
        except TimeoutError as error:
            raise UnavailableError(f"waited in vain until {what}") from error

    # --- what one sees --------------------------------------------------------------------------

    def _say(self, words: str, style: str = "magenta") -> None:
        if not self._quiet:
            out = screen.console()
            out.print()
            out.print(line((f"▌ {words}", f"bold {style}")), soft_wrap=True)

    def _tell(self, name: str, pid: int, more: str = "") -> None:
        if not self._quiet:
            told = line("  ", (f"{name:<14}", "bold"), f"process {pid}  ", (more, "green"))
            screen.console().print(told, soft_wrap=True)

    def _tell_more(self, words: str) -> None:
        if not self._quiet:
            screen.console().print(line(f"  {words}"), soft_wrap=True)

    def _show_end(self, first: dict[str, Any], last: dict[str, Any], figures: Figures) -> None:
        if self._quiet:
            return
        now = parse_time(last["settled_at"])
        self._say("The leg whose worker was killed")
        picture.track(first, now=now, contract=False)
        self._say("The last leg, and the chain")
        picture.track(last, now=now, contract=False)
        self._say("Counted from the log")
        out = screen.console()
        holds = "green" if figures.ok else "red"
        out.print(
            line(
                "  ",
                (f"dropped {figures.dropped}, duplicated {figures.duplicated}", f"bold {holds}"),
                f"   {figures.handoffs} handoffs, {figures.entries} entries, "
                f"{'hash chain intact' if not figures.broken else 'HASH CHAIN BROKEN'}",
            )
        )
        out.print(
            line(
                f"  {figures.attempts} attempts at the first leg, {figures.tickets} ticket opened; "
                f"{figures.seconds} s in all"
            )
        )
        if figures.home is not None:
            out.print(line(f"  kept: {figures.home}"))


def _all_joined(entries: list[dict[str, Any]]) -> bool:
    joined = {e["actor"] for e in entries if e["type"] == "agent.registered.v1"}
    return joined >= set(AGENTS)


def _is(name: str, **data: Any) -> Callable[[list[dict[str, Any]]], bool]:
    def seen(entries: list[dict[str, Any]]) -> bool:
        return any(
            e["type"] == f"handoff.{name}.v1" and data.items() <= e["data"].items() for e in entries
        )

    return seen


def _settled(handoff_id: str) -> Callable[[list[dict[str, Any]]], bool]:
    def seen(entries: list[dict[str, Any]]) -> bool:
        return any(
            e["type"] == "handoff.settled.v1" and e["handoff_id"] == handoff_id for e in entries
        )

    return seen

"""`nodrop top`: the first screen, live, driven by keys against a real relay."""

import asyncio
import builtins
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from nodrop import app as relays
from nodrop.cli.top.app import Details, Keys, Rows, Top
from nodrop.cli.top.board import Board
from nodrop.cli.top.feed import Feed
from nodrop.model.errors import UnauthenticatedError, UnreachableError
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

PATIENCE_SECONDS = 20
MINUTE = 60_000
Run = Callable[..., Any]


class Team:
    """A relay in this process, and everyone's way to it."""

    def __init__(self, relay: Relay, clock: FakeClock) -> None:
        self.relay = relay
        self.clock = clock

    async def at(self, agent: str, role: str = "agent") -> InProcessTransport:
        secret = f"token-{agent}-{role}"
        await self.relay.ensure_token("default", agent=agent, role=role, secret=secret)
        return InProcessTransport(self.relay, await self.relay.authenticate(secret))

    async def ask(self, agent: str, operation: str, about: str | None = None, **said: Any) -> Any:
        role = "operator" if agent == "me" else "agent"
        return await (await self.at(agent, role)).call(operation, said, handoff=about)

    async def offer(self, key: str, to: str = "coder", **said: Any) -> str:
        made = await self.ask("me", "offer", to=to, idempotency_key=key, title=f"T {key}", **said)
        return made["handoff"]["id"]


@pytest.fixture
async def team(tmp_path: Path) -> AsyncGenerator[Team]:
    clock = FakeClock()
    async with relays.open_relay(tmp_path / "team.db", home=tmp_path, clock=clock) as relay:
        yield Team(relay, clock)


@asynccontextmanager
async def screen_of(
    team: Team, *, size: tuple[int, int] = (80, 24), call: Any = None
) -> AsyncGenerator[Pilot[Any]]:
    me = await team.at("me", "operator")

    async def ask(operation: str, fields: Any = None, **about: Any) -> Any:
        return await me.call(operation, fields or {}, **about)

    board = Board("me")
    top = Top(board, Feed(call or ask, board), place="· default", now=team.clock.now)
    async with top.run_test(size=size) as pilot:
        yield pilot
    await me.close()


def lines(pilot: Pilot[Any]) -> list[str]:
    """Return what is on the screen, row by row."""
    # As a terminal would show it: every strip of the compositor as plain text.
    strips = pilot.app.screen._compositor.render_strips()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # what a terminal is sent
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


async def until(pilot: Pilot[Any], seen: Callable[[list[str]], object]) -> list[str]:
    """Return the screen once it is as expected."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not seen(found := lines(pilot)):
            await pilot.pause()
    return found


async def over(pilot: Pilot[Any]) -> None:
    """Return once the screen was left."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while pilot.app.return_code is None:
            await pilot.pause()


def says(*words: str) -> Callable[[list[str]], bool]:
    return lambda found: all(any(word in row for row in found) for word in words)


async def test_the_first_screen_is_by_who_owes_the_next_move_and_by_when(team: Team) -> None:
    await team.offer("late", accept_within="5m", deadline="4h")
    await team.offer("later", deadline="4h", accept_within="3h")
    await team.offer("next", deadline="4h", accept_within="2h")
    asked = await team.offer("asked", deadline="4h")
    await team.ask("coder", "ack", asked)
    await team.ask("coder", "block", asked, attempt=1, question="Which version?")
    working = await team.offer("working", to="writer", deadline="4h", update_every="1h")
    await team.ask("writer", "ack", working)
    dead = await team.offer("dead")
    await team.ask("coder", "reject", dead, reason="no")
    await team.ask("coder", "offer", to="me", title="Review this", idempotency_key="r")
    team.clock.advance(17 * MINUTE)
    async with screen_of(team) as pilot:
        found = await until(pilot, says("6 open", "NEXT"))
    assert "6 open   2 late   2 waiting for you   1 working   1 dead" in found[0]
    assert max(map(len, found)) <= 80
    rows = [re.sub(r"  +", "  ", row).strip() for row in found[1:-1] if row.strip()]
    assert rows == [
        "LATE  past due, or dead and undecided",
        "● me/late  coder owes an ack  12 min late  T late",
        "● coder/r  you owe an ack  2 min late  Review this",
        "● me/dead  coder: rejected  dead  T dead",
        "YOU  what you owe",
        "◆ me/asked  you owe an answer  in 3 h  Which version?",
        "NEXT  what others owe",
        "○ me/working  writer owes an update  in 43 min  T working",
        "○ me/next  coder owes an ack  in 1 h  T next",
        "○ me/later  coder owes an ack  in 2 h  T later",
    ]


async def test_what_is_queued_says_its_place_and_when_the_next_word_is_due(team: Team) -> None:
    first, second = [await team.offer(key, deadline="4h") for key in ("first", "second")]
    await team.ask("coder", "ack", first, next_update="1h")
    await team.ask("coder", "ack", second, queued=True, next_update="20m")
    async with screen_of(team) as pilot:
        found = await until(pilot, says("2 open", "me/second"))
    [row] = [re.sub(r"  +", "  ", row).strip() for row in found if "me/second" in row]
    assert row == "○ me/second  coder: queued 2 of 2  in 20 min  T second"


async def test_a_row_is_one_line_also_where_the_list_is_longer_than_the_screen(
    team: Team,
) -> None:
    for number in range(30):
        await team.offer(f"long_{number:02}", deadline="4h", expected_outcome="x")
    async with screen_of(team, size=(60, 12)) as pilot:
        await until(pilot, says("30 open", "me/long_00"))
        await pilot.press("G")
        found = await until(pilot, says("me/long_29"))
        await pilot.resize_terminal(80, 24)
        wide = await until(pilot, lambda rows: len(rows) == 24 and says("T long_29")(rows))
    assert [row[1:13] for row in found[1:-1]] == [f"○ me/long_{n}" for n in range(20, 30)]
    assert [row[1:13] for row in wide[-12:-1]] == [f"○ me/long_{n}" for n in range(19, 30)]


async def test_it_follows_the_log_and_nothing_moves_under_a_moved_selection(team: Team) -> None:
    first = await team.offer("a", deadline="4h", accept_within="1h")
    second = await team.offer("b", deadline="4h", accept_within="2h")
    async with screen_of(team) as pilot:
        await until(pilot, says("me/a", "me/b", "2 open"))
        await team.offer("c", deadline="4h", accept_within="3h")
        await until(pilot, says("me/c", "3 open"))  # live while the first row is selected
        await pilot.press("j")
        rows = pilot.app.query_one(Rows)
        assert rows.selected == second
        await team.offer("before", deadline="4h", accept_within="10m")
        await team.offer("behind", deadline="4h", accept_within="4h")
        await team.ask("coder", "ack", first)
        found = await until(pilot, says("5 open", "2 new", "me/a               coder owes an up"))
        assert not any("me/before" in row for row in found)
        await team.ask("coder", "complete", first, attempt=1, result=1)
        found = await until(pilot, says("4 open", "done"))
        assert rows.selected == second
        await pilot.press("n")
        found = await until(pilot, says("me/before", "me/behind"))
        assert not says("2 new")(found)
        assert not any("me/a" in row for row in found)
        assert rows.selected == second
        await pilot.press("g")
        await team.offer("last", deadline="4h", accept_within="4h")
        await until(pilot, says("me/last"))


async def test_enter_opens_the_handoff_with_ladder_clocks_and_payload(team: Team) -> None:
    offered = await team.offer("a", deadline="4h", payload={"email_id": "msg_1"})
    async with screen_of(team) as pilot:
        await until(pilot, says("me/a"))
        await pilot.press("enter")
        found = await until(pilot, says("● stored", "○ acknowledged", "msg_1", "deadline"))
        assert says("coder owes an acknowledgement by", "(in 4 hours)", "Esc Back")(found)
        assert not says("Filter")(found)
        await team.ask("coder", "ack", offered, status="on it")
        await until(pilot, says("● acknowledged"))
        await team.ask("coder", "complete", offered, attempt=1, result={"ok": True})
        await until(pilot, says("● finished", "completed by coder"))
        receipts = (await team.ask("coder", "get_handoff", offered))["handoff"]["receipts"]
        # Watching does not tell the relay that the requester has the outcome.
        assert "outcome_delivered" not in [receipt["rung"] for receipt in receipts]
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, Details)
        await until(pilot, says("0 open", "Nothing is open"))


async def test_a_filter_keys_and_quitting(team: Team) -> None:
    for key in ("apple", "pear"):
        await team.offer(key, deadline="4h")
    async with screen_of(team) as pilot:
        await until(pilot, says("me/apple", "me/pear"))
        await pilot.press("slash", *"PEA")
        found = await until(pilot, lambda rows: not says("me/apple")(rows))
        assert says("me/pear", "2 open")(found)
        await pilot.press("enter", "escape")
        await until(pilot, says("me/apple", "me/pear"))
        await pilot.press("question_mark")
        await until(pilot, says("open the handoff", "show new rows"))
        assert isinstance(pilot.app.screen, Keys)
        await pilot.press("escape", "q")
        await over(pilot)


async def test_hostile_words_are_shown_as_words(team: Team) -> None:
    title = "[red]x[/red] \x1b[31mred\x1b[0m \u202eevil\nnew line " + "w" * 5_000
    await team.ask("me", "offer", to="coder", title=title, payload={"a": "\x1b]0;t\x07[b]" * 500})
    async with screen_of(team) as pilot:
        found = await until(pilot, says("[red]x[/red]"))
        await pilot.press("enter")
        opened = await until(pilot, says("TITLE"))
    shown = "".join(found + opened)
    assert not any(mark in shown for mark in ("\x1b", "\x07", "\u202e"))
    assert max(map(len, found)) <= 80


async def test_it_says_that_the_relay_is_away_and_goes_on_from_its_cursor(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodrop.cli.top.app._RETRY_SECONDS", 0.01)
    me = await team.at("me", "operator")
    away, asked = asyncio.Event(), list[Any]()

    async def ask(operation: str, fields: Any = None) -> Any:
        if away.is_set():
            raise UnreachableError("no relay")
        asked.append((operation, fields and fields.get("after")))
        return await me.call(operation, fields or {})

    await team.offer("a", deadline="4h")
    async with screen_of(team, call=ask) as pilot:
        await until(pilot, says("me/a"))
        away.set()
        await team.offer("wakes the request that waits", deadline="4h")
        await until(pilot, says("trying again"))
        await team.offer("b", deadline="4h")
        before = len(asked)
        away.clear()
        await until(pilot, says("me/b", "3 open"))
    operation, after = asked[before]
    assert (operation, after is not None) == ("log", True)


async def test_it_reads_everything_again_where_an_older_copy_was_put_back(team: Team) -> None:
    me = await team.at("me", "operator")
    restored, asked = asyncio.Event(), list[Any]()

    async def ask(operation: str, fields: Any = None) -> Any:
        fields = dict(fields or {})
        asked.append(operation)
        if operation == "log" and restored.is_set():
            restored.clear()
            assert fields["after_hash"], "it says what it has read"
            fields["after_hash"] = "0" * 64  # what the relay has there is another entry
        return await me.call(operation, fields)

    await team.offer("a", deadline="4h")
    async with screen_of(team, call=ask) as pilot:
        await until(pilot, says("me/a"))
        restored.set()
        await team.offer("wakes the request that waits", deadline="4h")
        await until(pilot, says("2 open"))
        await team.offer("b", deadline="4h")
        await until(pilot, says("me/b", "3 open"))
    assert asked.count("checkpoints") == 2, "and no more than once"


async def test_what_cannot_be_waited_out_ends_it(team: Team) -> None:
    async def ask(*_: Any) -> Any:
        raise UnauthenticatedError

    async with screen_of(team, call=ask) as pilot:
        await over(pilot)
        assert isinstance(pilot.app.return_value, UnauthenticatedError)


async def test_a_viewer_without_payloads_is_told_that_words_are_withheld(team: Team) -> None:
    await team.offer("a", deadline="4h", payload={"a": "secret"})
    link = await team.ask("me", "create_link", kind="view")
    token = (await team.ask("me", "redeem_link", code=link["code"]))["token"]
    viewer = InProcessTransport(team.relay, await team.relay.authenticate(token))

    async def ask(operation: str, fields: Any = None) -> Any:
        return await viewer.call(operation, fields or {})

    async with screen_of(team, call=ask) as pilot:
        await until(pilot, says("me/a", "(not shown to you)"))


# --- the verb ------------------------------------------------------------------------------------


def test_where_there_is_no_terminal_the_screen_is_printed_once(nodrop: Run, send: Any) -> None:
    ref = send(to="printer")
    printed = nodrop("top")
    assert printed.code == 0
    assert " open   " in printed.out
    assert "printer owes an ack" in printed.out
    told = nodrop("top", "--json").json
    assert ref in [row["ref"] for row in told["rows"]]
    assert told["counts"]["open"] >= 1


def test_without_the_extra_it_says_what_to_install(
    nodrop: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name == "nodrop.cli.top.app":
            raise ModuleNotFoundError(name)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("nodrop.cli.top.command._is_terminal", lambda: True)
    refused = nodrop("top")
    assert refused.code == 1
    assert "pip install 'nodrop[top]'" in refused.err

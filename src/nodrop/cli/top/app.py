"""The screens of `nodrop top`: the list, one handoff, the keys. Keyboard only.

While the first row is selected the list is live. Once the reader has moved the selection, nothing
moves under it: rows change in place, and new ones gather behind a count until asked for.
"""

import asyncio
from collections.abc import Callable
from typing import ClassVar, Final

from msgspec.structs import replace
from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from nodrop.cli import picture
from nodrop.cli.screen import line
from nodrop.cli.top.board import SECTIONS, Board, Handoff, Row
from nodrop.cli.top.feed import Feed
from nodrop.model.errors import NodropError

TICK_SECONDS: Final = 1.0
_COALESCE_SECONDS: Final = 0.25
"""How long changes gather before the list is drawn again."""
_MARGIN: Final = 3
"""Cells beside a row: a blank on each side, and the scroll bar."""
_RETRY_SECONDS: Final = 2.0
_CONTRACT_CHARS_MAX: Final = 20_000
"""Of one handoff's contract and payload; `nodrop track` shows all of it."""
_HEADINGS: Final = {
    "LATE": "past due, or dead and undecided",
    "YOU": "what you owe",
    "NEXT": "what others owe",
}
_KEYS: Final = (
    ("j  ↓", "next row"),
    ("k  ↑", "previous row"),
    ("g  Home", "first row: the list is live again"),
    ("G  End", "last row"),
    ("Enter", "open the handoff"),
    ("n", "show new rows"),
    ("/", "filter by reference, agent or title; Esc clears"),
    ("Esc", "back"),
    ("?", "these keys"),
    ("q", "quit"),
)


class Rows(OptionList):
    """The list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("g", "first", "First", show=False),
        Binding("G", "last", "Last", show=False),
        Binding("enter", "select", "Open"),
    ]

    def show(self, wanted: list[Option], selected: str | None) -> None:
        """Show these options; rows that are there already change in place."""
        if [option.id for option in self.options] == [option.id for option in wanted]:
            for index, option in enumerate(wanted):
                if self.get_option_at_index(index).prompt != option.prompt:
                    self.replace_option_prompt_at_index(index, option.prompt)
            return
        before = self.scroll_offset.y
        self.set_options(wanted)
        places = {option.id: index for index, option in enumerate(wanted) if not option.disabled}
        self.highlighted = places.get(selected, next(iter(places.values()), None))
        if selected in places:
            self.scroll_to(y=before, animate=False)

    @property
    def selected(self) -> str | None:
        """The id of the selected row."""
        option = self.highlighted_option
        return None if option is None else option.id

    @property
    def moved(self) -> bool:
        """Whether another row than the first is selected."""
        first = next((i for i, option in enumerate(self.options) if not option.disabled), None)
        return self.highlighted is not None and self.highlighted != first


class Top(App[NodropError]):
    """The first screen. It ends with the error that cannot be waited out, if there is one."""

    CSS = """
    Screen { background: $background; }
    #counts { height: 1; padding: 0 1; background: $panel; }
    #new { height: 1; padding: 0 1; background: $warning; color: $background; display: none; }
    #new.some { display: block; }
    #rows {
        height: 1fr; border: none; padding: 0; background: $background;
        scrollbar-size-vertical: 1; scrollbar-gutter: stable;
    }
    #rows:focus { border: none; background-tint: $foreground 0%; }
    #rows > .option-list--option { padding: 0 1; }
    #rows > .option-list--option-disabled { color: $foreground; }
    #filter { height: 1; border: none; padding: 0 1; display: none; }
    #filter.asked { display: block; }
    #handoff { padding: 1 2; }
    Keys { align: center middle; }
    Keys Static { width: auto; height: auto; padding: 1 3; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("n", "renew", "New"),
        Binding("question_mark", "keys", "Keys", key_display="?"),
        Binding("escape", "clear", "Clear", show=False),
        Binding("q", "quit", "Quit"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, board: Board, feed: Feed, *, place: str, now: Callable[[], int]) -> None:
        super().__init__()
        self.board = board
        self._feed = feed
        self._place = place
        self._now = now
        self._order: list[Row] = []
        """The rows as they stand on the screen."""
        self._trouble = "connecting"

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield Static(id="counts")
        yield Static(id="new")
        yield Rows(id="rows", markup=False)
        yield Input(id="filter", placeholder="reference, agent or title", compact=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to follow the log."""
        self.query_one(Rows).focus()
        self.set_interval(TICK_SECONDS, self.draw)
        self.run_worker(self._follow(), exit_on_error=True)

    async def _follow(self) -> None:
        while True:
            try:
                await self._feed.follow()
            except NodropError as error:
                if not error.retryable:
                    self.exit(error)
                    return
                self._trouble = f"{error.title}; trying again"
                self.draw()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._trouble = ""
            self.draw()
            await asyncio.sleep(_COALESCE_SECONDS)

    # --- drawing ---

    @on(Resize)
    def draw(self) -> None:
        """Show the board as it is now."""
        if not self.screen_stack or not self.screen_stack[0].query(Rows):
            return  # before the widgets are there, or after they went
        now = self._now()
        self._draw_list(now)
        if isinstance(self.screen, Details):
            self.screen.draw(now)

    def _draw_list(self, now: int) -> None:
        main = self.screen_stack[0]
        rows = main.query_one(Rows)
        found = self.board.rows(now=now, text=main.query_one("#filter", Input).value)
        new = 0
        if rows.moved:
            found, new = self._held(found)
        self._order = found
        rows.show(self._options(now), rows.selected)
        pill = main.query_one("#new", Static)
        pill.update(f"{new} new   n shows them")
        pill.set_class(new > 0, "some")
        head = line((f"nodrop {self._place}", "bold cyan"), "   ")
        head.append_text(self.board.counts(now=now).text())
        if self._trouble:
            head = line((f"nodrop {self._place}", "bold cyan"), "   ", (self._trouble, "yellow"))
        main.query_one("#counts", Static).update(head)

    def _options(self, now: int) -> list[Option]:
        """Return the rows as they stand, each within one line beside the scroll bar."""
        return _options(self._order, width=max(self.size.width - _MARGIN, 0), now=now)

    def _held(self, found: list[Row]) -> tuple[list[Row], int]:
        """Return the rows where they stand, and how many more there are."""
        now_there = {row.id: row for row in found}
        stay = [
            replace(now_there[row.id], section=row.section)
            if row.id in now_there
            else replace(row, gone=row.gone or self._ending(row.id))
            for row in self._order
        ]
        return stay, len(now_there.keys() - {row.id for row in self._order})

    def _ending(self, handoff_id: str) -> str:
        handoff = self.board.get(handoff_id)
        return "done" if handoff is None else handoff["state"]

    # --- keys ---

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the keys of the list only where the list is."""
        if action in {"filter", "renew", "clear"}:
            return len(self.screen_stack) == 1
        return super().check_action(action, parameters)

    def action_renew(self) -> None:
        """Let the new rows in."""
        rows = self.screen_stack[0].query_one(Rows)
        now = self._now()
        self._order = self.board.rows(now=now, text=self.query_one("#filter", Input).value)
        rows.show(self._options(now), rows.selected)
        self.draw()

    def action_filter(self) -> None:
        """Ask for what to look for."""
        asked = self.query_one("#filter", Input)
        asked.add_class("asked")
        asked.focus()

    def action_clear(self) -> None:
        """Look for nothing in particular."""
        asked = self.query_one("#filter", Input)
        asked.value = ""
        asked.remove_class("asked")
        self.query_one(Rows).focus()
        self.action_renew()

    def action_keys(self) -> None:
        """Show the keys."""
        self.push_screen(Keys())

    @on(Input.Changed)
    def look_for(self) -> None:
        """Filter as the reader types."""
        self.action_renew()

    @on(Input.Submitted)
    def back_to_rows(self) -> None:
        """Keep the filter, and go on with the list."""
        self.query_one(Rows).focus()

    @on(OptionList.OptionSelected)
    def open_row(self, chosen: OptionList.OptionSelected) -> None:
        """Open a handoff."""
        handoff = self.board.get(chosen.option.id or "")
        if handoff is not None:
            self.board.watched = handoff["id"]
            self.push_screen(Details(self.board, handoff, now=self._now))


class Details(Screen[None]):
    """One handoff: its contract, its ladder of receipts, its clocks."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Back", key_display="Esc"),
        Binding("j,down", "scroll(1)", "Down", show=False),
        Binding("k,up", "scroll(-1)", "Up", show=False),
        Binding("question_mark", "app.keys", "Keys", key_display="?"),
    ]

    def __init__(self, board: Board, handoff: Handoff, *, now: Callable[[], int]) -> None:
        super().__init__()
        self._board = board
        self._handoff = handoff
        self._now = now

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        with VerticalScroll():
            yield Static(id="handoff", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Show it at once."""
        self.draw(self._now())

    def draw(self, now: int) -> None:
        """Show the handoff as it is now."""
        self._handoff = self._board.get(self._handoff["id"]) or self._handoff
        shown = self.query("#handoff").results(Static)
        for widget in shown:
            widget.update(details(self._handoff, now=now))

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_leave(self) -> None:
        """Go back to the list."""
        self._board.watched = None
        self.dismiss()


class Keys(ModalScreen[None]):
    """What the keys do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "Back", key_display="Esc")
    ]

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        table = Table.grid(padding=(0, 3))
        for key, does in _KEYS:
            table.add_row(Text(key, "bold"), does)
        yield Static(Group(Text("Keys\n", "bold"), table))


def details(handoff: Handoff, *, now: int) -> Group:
    """Return all there is to know about a handoff, within bounds; where it stands comes first."""
    shown = picture.parts(handoff, now=now, chars_max=_CONTRACT_CHARS_MAX)
    next_step = line((f"  nodrop track {handoff['ref']}", "bright_black"))
    return Group(shown.heading, shown.facts, Text(), shown.ladder, *shown.contract, next_step)


def _options(rows: list[Row], *, width: int, now: int) -> list[Option]:
    """Return headings and rows, section by section."""
    made: list[Option] = []
    for section in SECTIONS:
        mine = [row for row in rows if row.section == section]
        if not mine:
            continue
        if made:
            made.append(Option(Text(), id=f"above {section}", disabled=True))
        heading = line((f"{section:<5}", "bold"), (f"  {_HEADINGS[section]}", "dim"))
        made.append(Option(heading, id=f"section {section}", disabled=True))
        made += [Option(row.text(width=width, now=now), id=row.id) for row in mine]
    if not made:
        nothing = line(("Nothing is open. ", "bold"), "Hand something off: nodrop send --to AGENT")
        made.append(Option(nothing, id="nothing", disabled=True))
    return made

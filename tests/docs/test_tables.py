"""Every table of the pages has as many cells in each row as in its head: others are not shown whole."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_CODE = re.compile(r"(`+).*?\1")
_BAR = re.compile(r"(?<!\\)\|")


def uneven(text: str) -> list[str]:
    """Return the rows of tables that have other cells than the row before them."""
    found: list[str] = []
    width, fenced = 0, False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if fenced or not line.startswith("|"):
            width = 0
            continue
        cells = len(_BAR.findall(_CODE.sub("", line)))
        if width and cells != width:
            found.append(line)
        width = width or cells
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_rows_are_as_wide_as_their_head(page: Path) -> None:
    assert uneven(page.read_text(encoding="utf-8")) == []


def test_a_row_that_is_too_wide_is_found() -> None:
    assert uneven("| a | b |\n|---|---|\n| 1 | 2 |\n| 1 | `x|y` | 3 |\n") == ["| 1 | `x|y` | 3 |"]

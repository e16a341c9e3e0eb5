"""Every Python block of the README and the docs runs.

The blocks of a page run in order, in one namespace, in a process of their own. A block that begins
with `# no-run: <reason>` must compile but is not run.
"""

import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [p for p in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))] if p.exists()]

FENCE = re.compile(
    r"^(?P<indent> *)```python\b[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)
NO_RUN = re.compile(r"# no-run: \S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    first_line: int
    code: str

    @property
    def runs(self) -> bool:
        return not NO_RUN.match(self.code)


def blocks(page: str) -> Iterator[Block]:
    for fence in FENCE.finditer(page):
        first_line = page.count("\n", 0, fence.start("code")) + 1
        yield Block(first_line=first_line, code=textwrap.dedent(fence["code"]))


def script(found: Sequence[Block]) -> str:
    """The blocks at the lines they have on the page, so that tracebacks point there."""
    text = ""
    for block in found:
        text += "\n" * (block.first_line - 1 - text.count("\n")) + block.code
    return text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_python_blocks_of_a_page_run(
    page: Path, tmp_path: Path, run_alone: Callable[[Sequence[str | Path]], str]
) -> None:
    found = list(blocks(page.read_text(encoding="utf-8")))
    for block in found:
        compile(script([block]), page.name, "exec")
    runnable = [block for block in found if block.runs]
    if runnable:
        copy = tmp_path / page.name
        copy.write_text(script(runnable), encoding="utf-8")
        run_alone([sys.executable, copy])


def test_a_script_keeps_the_lines_of_its_page() -> None:
    page = "# Page\n\n```python\nx = 1\n```\n\n- item\n\n  ```python\n  # no-run: slow\n  y = x\n  ```\n"
    first, second = blocks(page)
    assert (first.code, first.runs) == ("x = 1\n", True)
    assert (second.code, second.runs) == ("# no-run: slow\ny = x\n", False)
    assert script([first, second]).splitlines() == [
        *["", "", "", "x = 1"],
        *["", "", "", "", "", "# no-run: slow", "y = x"],
    ]

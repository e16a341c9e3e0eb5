"""Every example runs, as a user would run it, and prints what its `.out` twin says."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

DIRECTORY = Path(__file__).parents[2] / "examples"
INTERPRETERS = {".py": sys.executable, ".sh": "bash"}
EXAMPLES = sorted(file for file in DIRECTORY.glob("*") if file.suffix in INTERPRETERS)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_prints_what_it_promises(
    example: Path, run_alone: Callable[[Sequence[str | Path]], str]
) -> None:
    promised = example.with_suffix(".out")
    assert promised.exists(), f"{example.name} promises nothing: write {promised.name}"
    printed = run_alone([INTERPRETERS[example.suffix], example])
    assert printed == promised.read_text(encoding="utf-8")


def test_every_promise_belongs_to_an_example() -> None:
    stems = {example.stem for example in EXAMPLES}
    assert [file.name for file in DIRECTORY.glob("*.out") if file.stem not in stems] == []

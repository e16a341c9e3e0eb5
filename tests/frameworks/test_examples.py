"""A newcomer's path for three frameworks: short, offline, and it prints what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DIRECTORY = Path(__file__).parents[2] / "examples" / "frameworks"
EXAMPLES = sorted(DIRECTORY.glob("*.py"))
LINES_MAX = 39
RUN_SECONDS_MAX = 120


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_short_and_prints_what_it_promises(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) <= LINES_MAX
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NODROP_")}
    done = subprocess.run(
        [sys.executable, example],
        env=inherited | {"NODROP_HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == example.with_suffix(".out").read_text(encoding="utf-8")

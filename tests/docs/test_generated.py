"""Generated pages and schemas say what the code says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_generated_is_stale() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.stdout == "stale: nothing\n", check.stdout + check.stderr

"""The shell lines of the README work, in their order, in the environment of the tests.

`make first-hour` runs all of them in an environment that has nothing but the wheel with `[relay]`.
"""

import sys
from pathlib import Path

import pytest

from install import readme

ELSEWHERE = (
    "nodrop demo",  # tests/cli/test_demo.py
    "nodrop open",  # needs the page, which needs Node: `make test-browser`
    "nodrop prove",  # tests/proof, and `make prove`
    "pip install ./proof",  # it is installed
)


@pytest.mark.timeout(300)
def test_every_line_works(tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    ran = [line.split("  ")[0] for line, _ in readme.follow(programs, tmp_path, without=ELSEWHERE)]
    assert {"nodrop up", "nodrop send bug.txt", "nodrop setup claude"} <= set(ran)


def test_a_line_that_fails_is_noticed(tmp_path: Path) -> None:
    with readme.Newcomer(Path(sys.executable).parent, tmp_path) as newcomer:
        assert newcomer.run("echo hello  # as people write") == "hello\n"
        with pytest.raises(AssertionError, match="exit 3"):
            newcomer.run("exit 3")


def test_lines_are_read_with_what_follows_them() -> None:
    page = "```console\n$ cat <<END\na\nEND\n$ b \\\n    c\n```\n\n```python\nx\n```\n"
    assert list(readme.lines(page)) == ["cat <<END\na\nEND", "b \\\n    c"]
    assert list(readme.blocks("python", page)) == ["x\n"]

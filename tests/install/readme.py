"""Runs every line of the README as a newcomer types it: its Python blocks, and its shell lines in their order.

`python tests/install/readme.py --bin DIR` runs them with the `nodrop` and `python` of an environment. One folder, one
empty home, one relay. Lines that set up the work tree (`make ...`) are left out: they made the environment.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
LINE_SECONDS_MAX = 900
READY_SECONDS_MAX = 60
ADDRESS = "127.0.0.1:6377"
SETTING_UP = ("make ", "source ", "pip install nodrop", "pip install 'nodrop[")
"""Lines that make the environment in which the others run."""
LASTING = {"nodrop up": "is up at", "nodrop work": "works for", "nodrop log --follow": "offered"}
"""Lines that go on until they are ended, and what they print once they are at work."""


def blocks(language: str, page: str) -> Iterator[str]:
    """Yield the fenced blocks of a page in one language."""
    for fence in re.finditer(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        yield fence[1]


def lines(page: str) -> Iterator[str]:
    """Yield the commands of a page: each from its `$` to before the next, without prompts."""
    for block in blocks("console", page):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            yield command.strip()


class Newcomer:
    """Somebody with an empty folder, an empty home and an environment."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._url = f"http://{ADDRESS}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("NODROP_")}
        self._environment = inherited | {
            "HOME": str(folder),
            "NODROP_HOME": str(folder / "home"),
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "BROWSER": "true %s",
            "NO_COLOR": "1",
            "COLUMNS": "120",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def run(self, command: str) -> str:
        """Type a line; return what was printed. One that lasts goes on until the end."""
        command = command.replace("./proof", f"{ROOT}/proof")
        command = command.replace("curl ", "curl --fail-with-body -sS ")
        command = command.replace(f"http://{ADDRESS}", self._url)
        for words, ready in LASTING.items():
            if command.startswith(words):
                return self._start(command.replace("nodrop up", "nodrop up --port 0"), ready)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LINE_SECONDS_MAX,
        )
        if done.returncode:
            raise AssertionError(f"exit {done.returncode}: {command}\n{done.stdout}")
        return done.stdout

    def _start(self, command: str, ready: str) -> str:
        log = self._folder / f"{len(list(self._folder.iterdir()))}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self._folder,
                env=self._environment | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._stack.callback(_end, process)
        give_up_at = time.monotonic() + READY_SECONDS_MAX
        while ready not in (told := log.read_text(encoding="utf-8")):
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise AssertionError(f"{ready!r} does not come: {command}\n{told}")
            time.sleep(0.05)  # a file that grows tells nobody; the loop is bounded
        found = re.search(r"is up at (http://\S+)", told)
        self._url = found[1] if found else self._url
        return told


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(READY_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def follow(
    programs: Path, folder: Path, *, without: Sequence[str] = ()
) -> Iterator[tuple[str, float]]:
    """Do all that the README says; yields each line, and how many seconds it took."""
    page = README.read_text(encoding="utf-8")
    with Newcomer(programs, folder) as newcomer:
        for number, block in enumerate(blocks("python", page)):
            (folder / f"{number}.py").write_text(block, encoding="utf-8")
            began = time.monotonic()
            newcomer.run(f"python {number}.py")
            yield f"python block {number + 1}", time.monotonic() - began
        for line in lines(page):
            first = line.splitlines()[0]
            if line.startswith((*SETTING_UP, *without)):
                continue
            began = time.monotonic()
            newcomer.run(line)
            yield first, time.monotonic() - began


def main() -> None:
    """Run it all with the programs of one environment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, default=Path(sys.executable).parent)
    parser.add_argument("--without", action="append", default=[], help="lines that begin so")
    said = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nodrop-readme-"))
    try:
        for line, seconds in follow(said.bin.resolve(), folder, without=said.without):
            print(f"✓ {seconds:6.1f} s  {line}", flush=True)
    except AssertionError as error:
        sys.exit(f"✗ {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

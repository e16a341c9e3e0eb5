"""The first hour of a newcomer, measured: from `pip install` to the first answered handoff, then the whole README.

`python tests/install/first_hour.py dist` is run by `make first-hour`. Both environments are empty at first.

1. The base wheel, twice: the second time its packages are in pip's cache. From `pip install` to the result of
   the README's example it may take as many seconds as `--within` says.
2. The wheel with `[relay]`: every line of the README must work (`tests/install/readme.py`).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"


def environment(folder: Path) -> Path:
    """Make an empty environment; return the folder of its programs."""
    venv.create(folder, with_pip=True)
    return folder / "bin"


def install(programs: Path, wanted: str) -> float:
    """Install with pip; return how many seconds that took."""
    began = time.monotonic()
    command = [programs / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*command, wanted], check=True)
    return time.monotonic() - began


def answered(programs: Path, folder: Path) -> float:
    """Run the README's example in an empty folder; return the seconds until it ended well."""
    folder.mkdir()
    page = README.read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert example is not None, "the README has an example"
    (folder / "first.py").write_text(example[1], encoding="utf-8")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NODROP_")}
    began = time.monotonic()
    done = subprocess.run(
        [programs / "python", "first.py"],
        cwd=folder,
        env=inherited | {"NODROP_HOME": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    took = time.monotonic() - began
    if "ticket for msg_123" not in done.stdout:
        sys.exit(f"the example printed something else: {done.stdout}")
    return took


def main() -> None:
    """Measure it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("wheels", type=Path)
    parser.add_argument("--within", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--base", action="store_true", help="only the base wheel")
    parser.add_argument("--without", action="append", default=[], help="for readme.py")
    said = parser.parse_args()
    [wheel] = said.wheels.resolve().glob("nodrop-*.whl")
    work = Path(tempfile.mkdtemp(prefix="nodrop-first-hour-"))
    try:
        install(environment(work / "cache"), str(wheel))  # so that its packages are in pip's cache
        base = environment(work / "base")
        installing = install(base, str(wheel))
        answering = answered(base, work / "first")
        total = installing + answering
        print(
            f"base wheel: {installing:.1f} s pip install + {answering:.1f} s to the first answered "
            f"handoff = {total:.1f} s (at most {said.within:g})",
            flush=True,
        )
        if total > said.within:
            sys.exit("✗ too slow")
        subprocess.run([base / "nodrop", "--version"], check=True)
        [proofs] = said.wheels.resolve().glob("nodrop_proof-*.whl")
        install(base, str(proofs))
        simulated = [base / "nodrop", "prove", "simulate", "--seed", "1", "--hours", "1"]
        subprocess.run(simulated, check=True, stdout=subprocess.DEVNULL)
        print(f"{proofs.name}: nodrop prove simulates an hour", flush=True)
        if said.base:
            return
        relay = environment(work / "relay")
        print(f"nodrop[relay]: {install(relay, f'{wheel}[relay]'):.1f} s pip install", flush=True)
        without = [part for line in said.without for part in ("--without", line)]
        command = [sys.executable, HERE / "readme.py", "--bin", relay, *without]
        sys.exit(subprocess.run(command, check=False).returncode)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()

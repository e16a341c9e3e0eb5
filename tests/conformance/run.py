"""Runs a copy of the A2A TCK against a relay, and holds it to `expected.toml`.

The copy, and a Python that has what it needs, are the caller's.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from standing import HERE, standing

SECONDS_MAX = 1_800
SUITE = "tests/compatibility"
"""Where the TCK of 1.0 keeps its tests. That of 0.3 has categories, each run by itself:"""
CATEGORIES = {
    "mandatory": ["tests/mandatory", "-m", "mandatory_jsonrpc or mandatory_protocol"],
    "capabilities": ["tests/optional/capabilities"],
    "quality": ["tests/optional/quality"],
    "features": ["tests/optional/features"],
}

Expected = dict[str, Any]


def main() -> int:
    """Return 0 if everything was as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tck", type=Path, required=True, help="the folder of the TCK")
    parser.add_argument("--python", type=Path, required=True, help="a Python that can run it")
    asked = parser.parse_args()
    is_v1 = (asked.tck / SUITE).is_dir()
    if not is_v1 and not (asked.tck / CATEGORIES["mandatory"][0]).is_dir():
        sys.stderr.write(f"there is no TCK at {asked.tck}: make conformance TCK=<folder>\n")
        return 2
    if not asked.python.is_file():
        sys.stderr.write(
            f"there is no Python at {asked.python}: TCK_PYTHON=<one that can run it>\n"
        )
        return 2
    expected = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(asked.tck, asked.python.absolute(), Path(folder))
        if is_v1:
            return told(copy.v1(), expected["v1"])
        v03 = expected["v03"]
        return max(
            told(outcomes, {**v03[name], "failed": v03["failed"]}, name)
            for name, outcomes in copy.v03()
        )


class Copy:
    """Somebody's copy of the TCK."""

    def __init__(self, folder: Path, python: Path, reports: Path) -> None:
        """Run it with `python`; its reports go to `reports`."""
        self._folder = folder
        self._python = python
        self._reports = reports

    def v1(self) -> dict[str, str]:
        """Return how each test of 1.0 ended: JSON-RPC, REST and gRPC."""
        with standing() as address:
            where = [f"--sut-host={address}", "--webhook-host=127.0.0.1"]
            return self._ran("v1", SUITE, *where)

    def v03(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield how the tests of 0.3 ended, category by category: JSON-RPC."""
        with standing("--v03") as address:
            where = [f"--sut-url={address}", "--test-scope=all", "--transports=jsonrpc"]
            for name, which in CATEGORIES.items():
                yield name, self._ran(name, *which, *where)

    def _ran(self, name: str, *arguments: str) -> dict[str, str]:
        report = self._reports / f"{name}.xml"
        command = [str(self._python), "-m", "pytest", "-q", *arguments]
        command += [f"--junitxml={report}", "--tb=line"]
        subprocess.run(command, cwd=self._folder, check=False, timeout=SECONDS_MAX)
        if not report.is_file():
            raise SystemExit("the TCK did not run: is it installed for that Python?")
        outcomes: dict[str, str] = {}
        for case in ET.parse(report).iter("testcase"):  # noqa: S314  # our own file
            ended = (c.tag for c in case if c.tag in {"failure", "error", "skipped"})
            outcomes[named(case)] = next(ended, "passed")
        return outcomes


def told(outcomes: dict[str, str], expected: Expected, category: str = "") -> int:
    """Say how what happened differs from what was expected."""
    failed = {name for name, outcome in outcomes.items() if outcome in {"failure", "error"}}
    known = {name for name in outcomes if _is_known(name, expected["failed"])}
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    wanted = expected["passed"] + expected.get("xpassed", 0)
    for name in sorted(failed - known):
        sys.stdout.write(f"FAILED, and should not: {name}\n")
    for name in sorted(known - failed):
        sys.stdout.write(f"did not fail, though it was expected to: {name}\n")
    sys.stdout.write(
        f"{f'{category}: ' if category else ''}{passed} passed (expected {wanted}),"
        f" {len(failed)} failed, as expected: {len(failed & known)},"
        f" {len(outcomes) - passed - len(failed)} skipped\n"
    )
    sys.stdout.flush()
    return 0 if failed <= known and passed >= wanted else 1


def _is_known(name: str, failed: Expected) -> bool:
    """Whether a test is among those that fail: by all of its name, or by what it is called."""
    return name in failed or name.rpartition("::")[2] in failed


def named(case: ET.Element) -> str:
    """Return a test's name below the suite, as pytest writes it."""
    module, _, kind = (
        case.get("classname", "").removeprefix("tests.compatibility.").partition(".Test")
    )
    path = module.replace(".", "/") + ".py"
    return "::".join([path, *([f"Test{kind}"] if kind else []), case.get("name", "")])


if __name__ == "__main__":
    sys.exit(main())

"""Runs a copy of the A2A TCK against a relay, and holds it to `expected.toml`.

The copy, and a Python that has what it needs, are the caller's.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

from standing import HERE, standing

SECONDS_MAX = 1_800
SUITE = "tests/compatibility"


def main() -> int:
    """Return 0 if everything was as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tck", type=Path, required=True, help="the folder of the TCK")
    parser.add_argument("--python", type=Path, required=True, help="a Python that can run it")
    asked = parser.parse_args()
    if not (asked.tck / SUITE).is_dir():
        sys.stderr.write(f"there is no TCK at {asked.tck}: make conformance TCK=<folder>\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        with standing() as address:
            command = [str(asked.python.absolute()), "-m", "pytest", "-q", SUITE]
            command += [f"--sut-host={address}", "--webhook-host=127.0.0.1"]
            command += [f"--junitxml={report}", "--tb=line"]
            subprocess.run(command, cwd=asked.tck, check=False, timeout=SECONDS_MAX)
        return told(report)


def told(report: Path) -> int:
    """Say how what happened differs from what was expected."""
    expected = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))["v1"]
    outcomes: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  # our own file
        child = next((c.tag for c in case if c.tag in {"failure", "error", "skipped"}), "passed")
        outcomes[named(case)] = child
    failed = {name for name, outcome in outcomes.items() if outcome in {"failure", "error"}}
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    for name in sorted(failed - expected["failed"].keys()):
        sys.stdout.write(f"FAILED, and should not: {name}\n")
    for name in sorted(expected["failed"].keys() - failed):
        sys.stdout.write(f"did not fail, though it was expected to: {name}\n")
    sys.stdout.write(
        f"{passed} passed (expected {expected['passed']}), {len(failed)} failed, as expected: "
        f"{len(failed & expected['failed'].keys())}, {len(outcomes) - passed - len(failed)} skipped\n"
    )
    return 0 if failed <= expected["failed"].keys() and passed >= expected["passed"] else 1


def named(case: ET.Element) -> str:
    """Return a test's name below the suite, as pytest writes it."""
    module, _, kind = (
        case.get("classname", "").removeprefix("tests.compatibility.").partition(".Test")
    )
    path = module.replace(".", "/") + ".py"
    return "::".join([path, *([f"Test{kind}"] if kind else []), case.get("name", "")])


if __name__ == "__main__":
    sys.exit(main())

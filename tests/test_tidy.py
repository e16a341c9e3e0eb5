"""What keeps the tree readable and no linter checks."""

import ast
import re
import statistics
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "src" / "nodrop", ROOT / "proof" / "src" / "nodrop_proof")
SOURCES = sorted(module for package in PACKAGES for module in package.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MODULE_LINES_MAX = 800
MODULE_LINES_MEDIAN_MAX = 170

BUCKETS = {"utils", "common", "helpers", "misc", "shared"}
AGES = {"new", "old", "legacy"}

# In two parts, so that this file does not contain what it forbids.
PACKAGE_HOSTS = [
    ".".join(parts).encode()
    for parts in [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("debian", "org")]
]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def name_parts(path: Path) -> list[str]:
    return [part.strip("_") for part in path.relative_to(ROOT).with_suffix("").parts]


def repository_files() -> list[Path]:
    """Every file that is or would be committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    files = [ROOT / entry for entry in listed.split("\0") if entry]
    return [file for file in files if file.is_file()]


def test_no_module_is_longer_than_800_lines() -> None:
    assert [name(m) for m in [*SOURCES, *TESTS] if line_count(m) > MODULE_LINES_MAX] == []


def test_the_median_source_module_is_shorter_than_170_lines() -> None:
    assert statistics.median(map(line_count, SOURCES)) < MODULE_LINES_MEDIAN_MAX


def test_every_source_module_begins_by_saying_what_it_is() -> None:
    silent = [m for m in SOURCES if not ast.get_docstring(ast.parse(m.read_bytes()))]
    assert [name(m) for m in silent] == []


def test_no_source_module_is_named_as_a_bucket_or_by_its_age() -> None:
    def is_vague(part: str) -> bool:
        words = set(part.split("_"))
        # `wire/v1.py` is a wire format's version; `machine_v2.py` is an age.
        return bool(words & (BUCKETS | AGES)) or bool(re.search(r"_v\d+$", part))

    assert [name(m) for m in SOURCES if any(map(is_vague, name_parts(m)))] == []


def test_no_test_module_is_a_bucket() -> None:
    # Whole names only: a test may well be about a common case or an old client.
    assert [name(m) for m in TESTS if BUCKETS & set(name_parts(m))] == []


def test_nothing_in_the_source_is_left_to_do() -> None:
    mark = re.compile(rb"\b(TODO|FIXME)\b")
    found = (f for package in PACKAGES for f in package.rglob("*"))
    files = [f for f in found if f.is_file() and "__pycache__" not in f.parts]
    assert [name(f) for f in files if mark.search(f.read_bytes())] == []


def test_no_file_names_a_package_host() -> None:
    # Where packages come from is the installer's choice; a host in a file would overrule it.
    def names_a_host(file: Path) -> bool:
        content = file.read_bytes().lower()
        return any(host in content for host in PACKAGE_HOSTS)

    assert [name(f) for f in repository_files() if names_a_host(f)] == []


def test_the_constraints_are_pins_and_nothing_else() -> None:
    pin = re.compile(r"#.*|[\w.-]+==[\w.+]+")
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not pin.fullmatch(line)] == []

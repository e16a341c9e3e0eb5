"""`nodrop prove`: found when it is installed, named when it is not, and never looked for otherwise."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from nodrop.cli import prove
from nodrop.cli.tree import app

VERBS = [
    *("chaos", "simulate", "bench", "fuzz", "emergence", "sync-order", "backup", "adversary"),
    "soak",
    *("storm", "tampering"),
]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100"}, prog_name="nodrop")


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No distribution adds verbs."""

    def nothing(**_: str) -> list[Any]:
        return []

    monkeypatch.setattr(prove, "entry_points", nothing)
    prove.added.cache_clear()
    yield
    prove.added.cache_clear()


def test_the_proofs_are_listed_and_explain_themselves() -> None:
    shown = invoke("prove", "--help")
    assert shown.exit_code == 0
    assert [verb for verb in VERBS if f"│ {verb} " in shown.stdout] == VERBS
    for verb in VERBS:
        assert invoke("prove", verb, "--help").exit_code == 0


@pytest.mark.parametrize("verb", ["chaos", "simulate", "bench"])
def test_a_proof_speaks_json_and_needs_no_relay(verb: str) -> None:
    shown = invoke("prove", verb, "--help").stdout
    assert "--json" in shown
    assert "--home" not in shown
    assert "--url" not in shown


@pytest.mark.parametrize("arguments", [["prove"], ["prove", "--help"], ["prove", "chaos", "mix"]])
@pytest.mark.usefixtures("not_installed")
def test_where_they_are_not_installed_it_says_what_brings_them(arguments: list[str]) -> None:
    refused = invoke(*arguments)
    assert refused.exit_code == 1
    assert "not_installed" in refused.stderr
    assert "pip install nodrop-proof" in refused.stderr


@pytest.mark.usefixtures("not_installed")
def test_all_other_help_works_without_them() -> None:
    shown = invoke("--help")
    assert shown.exit_code == 0
    assert "│ prove " in shown.stdout


@pytest.mark.parametrize("verb", ["chaos", "simulate", "bench"])
def test_a_proof_is_no_verb_of_its_own(verb: str) -> None:
    assert invoke(verb, "--help").exit_code == 2


@pytest.mark.parametrize("arguments", [["--help"], ["inbox", "--help"]])
def test_other_verbs_do_not_load_them(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from nodrop.cli import main\n"
        "try: main()\n"
        "finally: sys.stderr.write(str('nodrop_proof' in sys.modules))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert ran.stderr == "False"

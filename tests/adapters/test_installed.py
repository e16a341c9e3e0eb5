"""A framework that is missing or too old: one clear error that names the extra."""

import ast
import importlib
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from nodrop.adapters.port.installed import needs
from nodrop.model.errors import NotInstalledError

ROOT = Path(__file__).parents[2]
LINES_MAX = 160
"""Of a module of an adapter: it translates, and nothing else."""
ADAPTERS = sorted((ROOT / "src" / "nodrop" / "adapters").rglob("*.py"))


def found(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Have every distribution be there, in this version."""

    def version_of(_: str) -> str:
        return version

    monkeypatch.setattr(metadata, "version", version_of)


def test_what_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(NotInstalledError) as refused, needs("no-such-thing", "1", extra="nothing"):
        pass
    assert refused.value.code == "not_installed"
    assert str(refused.value) == "no-such-thing is not installed: nodrop[nothing] brings it"
    assert refused.value.next_step == "Install it: pip install 'nodrop[nothing]'."


def test_what_is_too_old_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, "1.9.9rc1")
    said = r"1\.9\.9rc1 is too old: it takes 1\.10 or later, nodrop\[thing\]"
    with pytest.raises(NotInstalledError, match=said):  # noqa: SIM117  # the error is that of entering
        with needs("thing", "1.10", extra="thing"):
            pass


def test_what_is_recent_enough_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, "1.10.0")
    with needs("thing", "1.10", extra="thing"):
        entered = True
    assert entered


def test_a_part_that_moved_is_no_bare_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, "9")
    with pytest.raises(NotInstalledError, match="does not have what this takes"):  # noqa: SIM117  # same
        with needs("thing", "1", extra="thing"):
            raise ImportError("cannot import name 'Part'")


def demands() -> list[tuple[str, str, str, str]]:
    """Return what every adapter demands: its module, distribution, least version and extra."""
    found: list[tuple[str, str, str, str]] = []
    for module in ADAPTERS:
        for node in ast.walk(ast.parse(module.read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "needs":
                said = [ast.literal_eval(value) for value in node.args]
                extra = ast.literal_eval(node.keywords[0].value)
                found.append((module.name, said[0], said[1], extra))
    return found


@pytest.mark.parametrize(("module", "distribution", "least", "extra"), demands())
def test_the_extra_that_an_adapter_names_brings_what_it_demands(
    module: str, distribution: str, least: str, extra: str
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = project["optional-dependencies"][extra]
    wanted = [
        bound for bound in bounds if bound.partition(">=")[0].partition("[")[0] == distribution
    ]
    assert wanted, f"{module}: nodrop[{extra}] does not bring {distribution}"
    lower, _, upper = wanted[0].partition(">=")[2].partition(",<")
    assert lower == least
    assert upper, "an extra without an upper bound breaks by itself one day"


def test_every_framework_is_in_the_set_that_is_tested_together() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (together,) = project["optional-dependencies"]["frameworks"]
    for extra in {extra for *_, extra in demands()}:
        assert extra in together


def test_the_package_itself_loads_no_framework() -> None:
    with pytest.raises(NotInstalledError, match="smolagents"):
        importlib.import_module("nodrop.adapters.smolagents")


EXTRAS = {
    "a2a": "a2a",
    "agent_framework": "agent-framework",
    "autogen": "autogen",
    "crewai": "crewai",
    "google_adk": "google-adk",
    "langgraph": "langgraph",
    "llama_index": "llama-index",
    "openai_agents": "openai-agents",
    "pydantic_ai": "pydantic-ai",
    "smolagents": "smolagents",
}
"""By adapter: what a newcomer has to install for it."""


def test_no_adapter_is_left_out_here() -> None:
    packages = {module.relative_to(ADAPTERS[0].parent).parts[0] for module in ADAPTERS}
    ours = {name.removesuffix(".py") for name in packages} - {"__init__", "port"}
    assert ours - EXTRAS.keys() == {"openclaw"}, "which takes nothing but the SDK"


@pytest.mark.parametrize(("adapter", "extra"), EXTRAS.items())
@pytest.mark.parametrize("version", [None, "0.0.1"])
def test_a_newcomer_without_the_framework_reads_what_to_install(
    monkeypatch: pytest.MonkeyPatch, adapter: str, extra: str, version: str | None
) -> None:
    def version_of(distribution: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(distribution)
        return version

    monkeypatch.setattr(metadata, "version", version_of)
    name = f"nodrop.adapters.{adapter}"
    for loaded in [module for module in sys.modules if f"{module}.".startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(NotInstalledError) as refused:
        importlib.import_module(name)
    said = "is not installed" if version is None else "0.0.1 is too old"
    assert said in str(refused.value)
    assert str(refused.value).endswith(f"nodrop[{extra}] brings it")
    assert refused.value.next_step == f"Install it: pip install 'nodrop[{extra}]'."


def imported(module: Path) -> list[str]:
    """Return everything a module imports, with its path."""
    names: list[str] = []
    for node in ast.walk(ast.parse(module.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("module", ADAPTERS, ids=lambda module: module.name)
def test_no_adapter_imports_what_a_framework_keeps_to_itself(module: Path) -> None:
    private = [name for name in imported(module) if any(p.startswith("_") for p in name.split("."))]
    assert private == []


@pytest.mark.parametrize(
    "module", [m for m in ADAPTERS if m.parent.name != "port"], ids=lambda module: module.name
)
def test_an_adapter_is_small(module: Path) -> None:
    assert len(module.read_text(encoding="utf-8").splitlines()) <= LINES_MAX

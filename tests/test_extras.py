"""Extras: the packages of each, and the error where one is missing."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nodrop.app import open_relay
from nodrop.model.errors import NodropError, NotInstalledError
from nodrop.protocol import extras
from nodrop.relay.relay import operator_of
from nodrop.servers.inprocess import InProcessTransport

ROOT = Path(__file__).parents[1]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_extra_of_a_relay_has_everything_that_one_serves() -> None:
    [whole] = project()["optional-dependencies"]["relay"]
    parts = set(whole.removeprefix("nodrop[").removesuffix("]").split(","))
    assert parts == {"mcp", "a2a", "triggers", "notify", "webhooks", "otel", "postgres", "top"}


def test_what_is_missing_here_is_said_with_the_command_that_installs_it() -> None:
    error = extras.missing_here("Textual", "top")
    assert sys.prefix in error.detail
    assert error.next_step == f"Run: {sys.executable} -m pip install 'nodrop[top]'"


def test_what_is_missing_at_a_relay_is_not_said_to_be_missing_here() -> None:
    error = extras.missing_at_relay("Apprise")
    assert error.detail == "Apprise is not installed in the environment of the relay"
    assert sys.prefix not in f"{error.detail} {error.next_step}"
    assert "Where the relay runs: pip install 'nodrop[relay]'" in error.next_step


@pytest.mark.parametrize(
    ("module", "operation", "fields"),
    [
        ("apprise", "put_outlet", {"url": "json://ana.example", "kind": "notify"}),
        ("standardwebhooks", "put_outlet", {"url": "https://ana.example", "kind": "webhook"}),
        (
            "cel",
            "put_trigger",
            {"on": "mail", "when": "event.data.x == 1", "offer": {"to": "ana", "title": "t"}},
        ),
    ],
)
async def test_a_relay_refuses_what_it_could_never_do_and_names_its_own_environment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    operation: str,
    fields: dict[str, Any],
) -> None:
    async with open_relay(":memory:", home=tmp_path) as relay:
        me = InProcessTransport(relay, operator_of("default"))
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            with pytest.raises(NotInstalledError) as refused:
                await me.call(operation, fields, name="x")
        assert "in the environment of the relay" in refused.value.detail
        assert "nodrop[relay]" in refused.value.next_step
        listed = "outlets" if operation == "put_outlet" else "triggers"
        assert (await me.call(listed, {}))[listed] == []
        await me.call(operation, fields, name="x")  # as it is where the part is there


async def test_a_database_without_its_driver_is_said_with_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.startswith("nodrop.log.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(NodropError) as refused:
        async with open_relay("postgresql://x@127.0.0.1:1/x", home=tmp_path):
            pass
    assert refused.value.code == "not_installed"
    assert sys.prefix in refused.value.detail


def test_a_relay_that_lacks_parts_says_which_when_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert extras.not_served() == ()
    monkeypatch.setitem(sys.modules, "a2a", None)
    monkeypatch.setitem(sys.modules, "mcp", None)
    [told] = extras.not_served()
    assert told.startswith("Not installed here, and therefore not served: MCP, A2A. Run: ")
    assert told.endswith("-m pip install 'nodrop[relay]'")

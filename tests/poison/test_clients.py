"""The same poisons from a terminal and from Python: refused where they are, with the same codes."""

import asyncio
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import nodrop
from nodrop.cli.tree import app as cli
from nodrop.model.errors import NodropError

if TYPE_CHECKING:
    from conftest import Poison, Served, Victim

SECONDS_MAX = 20.0
TRANSPORTS = ("http", "websocket")


def test_from_a_file_of_the_terminal(served: "Served", filed: "Poison", tmp_path: Path) -> None:
    file = tmp_path / "poison.json"
    file.write_bytes(filed.body)
    environment = {"NODROP_HOME": str(served.home), "NO_COLOR": "1"}
    ran = CliRunner().invoke(cli, ["send", str(file)], env=environment, prog_name="nodrop")
    assert not ran.exception or isinstance(ran.exception, SystemExit)
    assert ran.exit_code == filed.exit, ran.output
    assert "Traceback" not in ran.output
    assert ran.stderr.strip(), "it says why"


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


VALUES: dict[str, tuple[Any, str]] = {
    "NaN": (math.nan, "invalid_request"),
    "infinity within": ({"a": [-math.inf]}, "invalid_request"),
    "an integer over 64 bits": (2**64, "invalid_request"),
    "an integer of a thousand digits": (10**1_000, "invalid_request"),
    "a lone surrogate": ("\ud800", "invalid_request"),
    "a lone surrogate as a key": ({"\udfff": 1}, "invalid_request"),
    "a hundred levels": (nested(100), "too_large"),
    "levels without end": (endless(), "too_large"),
    "a payload over its bound": ("x" * 1_048_577, "too_large"),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("value", "code"), VALUES.values(), ids=VALUES)
async def test_from_python(victim: "Victim", transport: Any, value: Any, code: str) -> None:
    before = await victim.head()
    async with (
        asyncio.timeout(SECONDS_MAX),
        nodrop.connect(victim.url, token="nd_poisoner", transport=transport) as me,
    ):
        with pytest.raises(NodropError) as refused:
            await me.hand_off("b", payload=value)
        assert refused.value.code == code
        assert await victim.head() == before
        assert (await me.hand_off("b", payload=1)).state == "offered"


@pytest.mark.parametrize(
    "value", [object(), len, {"a": [1j]}], ids=["an object", "a function", "a complex number"]
)
async def test_what_has_no_json_form_is_a_wrong_call(victim: "Victim", value: Any) -> None:
    before = await victim.head()
    async with nodrop.connect(victim.url, token="nd_poisoner") as me:
        with pytest.raises(TypeError, match="has no JSON form"):
            await me.hand_off("b", payload=value)
    assert await victim.head() == before


async def test_a_value_that_is_sound_is_not_refused(victim: "Victim") -> None:
    sound = {"zero": -0.0, "text": "\u202e\u200b\U0010ffff\x00", "deep": nested(60), "n": 2**63 - 1}
    async with nodrop.connect(victim.url, token="nd_poisoner") as me:
        handoff = await me.hand_off("b", payload=sound)
    assert handoff.state == "offered"

"""The example that verifies a log with the standard library alone, held to logs of a real relay."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "verify_log.py"


@pytest.fixture(scope="module")
def by_the_book() -> Any:
    spec = importlib.util.spec_from_file_location("verify_log", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def log_of(team: Any) -> list[dict[str, Any]]:
    await team.worked(title="Größe \N{ROCKET}")
    return (await team.saved()).entries


async def test_a_log_verifies_with_the_standard_library(
    team: Any, by_the_book: Any, tmp_path: Path
) -> None:
    saved = await log_of(team)
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(e) + "\n" for e in saved), encoding="utf-8")
    said = by_the_book.main(str(log))
    assert said.startswith(f"{len(saved)} entries hold, ")
    assert by_the_book.first_bad("another", saved) == (1, HASH)


HASH = "its hash is not the hash of what it says"
Tamper = Callable[[list[dict[str, Any]]], Any]


def forged(log: list[dict[str, Any]]) -> None:
    log[4]["actor"] = "mallory"


def removed(log: list[dict[str, Any]]) -> None:
    del log[4]


def cut_off(log: list[dict[str, Any]]) -> None:
    log[4]["prev_hash"] = "0" * 64


@pytest.mark.parametrize(
    ("tamper", "why"),
    [
        (forged, HASH),
        (removed, "it is missing"),
        (cut_off, "it does not follow the entry before it"),
    ],
)
async def test_it_names_the_entry_that_does_not_hold(
    team: Any, by_the_book: Any, tamper: Tamper, why: str
) -> None:
    entries = await log_of(team)
    tamper(entries)
    assert by_the_book.first_bad("default", entries) == (5, why)


async def test_it_names_the_body_that_is_another(team: Any, by_the_book: Any) -> None:
    entries = await log_of(team)
    entry = next(
        e for e in entries if e["body"] is not None and e["type"] not in by_the_book.AS_SENT
    )
    entry["body"] = {"forged": True}
    found = by_the_book.first_bad("default", entries)
    assert found == (entry["seq"], "its body is not the one it was written with")

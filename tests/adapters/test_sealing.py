"""Sealed state: read by its agent, for its handoff, unchanged; else not at all."""

import base64
import stat
from pathlib import Path
from typing import Any

import pytest

from nodrop.adapters.port.sealing import SEALED, Seal, is_sealed
from nodrop.client.endings import Fail
from nodrop.client.shown import HandoffShown

STATE = {"approved": False, "history": ["pay"]}
KEY = bytes(range(32))


def handoff(**changed: Any) -> HandoffShown:
    view = {
        "id": "h1",
        "to": "payer",
        "capability": "pay",
        "correlation_id": "case-7",
        "payload": {"amount": 5},
    }
    return HandoffShown({**view, **changed})


def sealed() -> Any:
    return Seal(KEY).close(STATE, framework="script", handoff=handoff())


def test_what_was_sealed_is_read_again() -> None:
    assert Seal(KEY).open(sealed(), framework="script", handoff=handoff()) == STATE


def test_a_redriven_handoff_has_another_id_and_the_same_state() -> None:
    assert Seal(KEY).open(sealed(), framework="script", handoff=handoff(id="h2")) == STATE


def test_the_same_state_is_never_sealed_the_same() -> None:
    assert sealed() != sealed()


@pytest.mark.parametrize(
    "other",
    [
        {"to": "thief"},
        {"capability": "steal"},
        {"correlation_id": "case-8"},
        {"payload": {"amount": 5_000}},
    ],
)
def test_it_cannot_be_moved_to_another_handoff(other: dict[str, Any]) -> None:
    with pytest.raises(Fail) as refused:
        Seal(KEY).open(sealed(), framework="script", handoff=handoff(**other))
    assert refused.value.code == "parked_state_unreadable"


def test_it_cannot_be_read_by_another_framework() -> None:
    with pytest.raises(Fail):
        Seal(KEY).open(sealed(), framework="another", handoff=handoff())


@pytest.mark.parametrize("position", [0, 11, 12, 40, -1])
def test_no_byte_of_it_can_be_changed(position: int) -> None:
    data = bytearray(base64.b64decode(sealed()[SEALED]))
    data[position] ^= 1
    changed = {SEALED: base64.b64encode(data).decode()}
    with pytest.raises(Fail):
        Seal(KEY).open(changed, framework="script", handoff=handoff())


@pytest.mark.parametrize("rubbish", ["", "!", "AAAA", 5, None])
def test_rubbish_is_refused_and_not_a_crash(rubbish: Any) -> None:
    with pytest.raises(Fail):
        Seal(KEY).open({SEALED: rubbish}, framework="script", handoff=handoff())


@pytest.mark.parametrize("foreign", [None, 5, "text", [], {"mine": 1}])
def test_a_checkpoint_of_somebody_else_is_none_of_ours(foreign: Any) -> None:
    assert not is_sealed(foreign)


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "default" / "payer.seal"
    one, other = Seal.from_file(path), Seal.from_file(path)
    closed = one.close(STATE, framework="script", handoff=handoff())
    assert other.open(closed, framework="script", handoff=handoff()) == STATE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Seal(b"short")

import json
import stat
import threading
from pathlib import Path
from typing import Any

from nodrop.cli.handoffs.attempts import HANDOFFS_PER_AGENT_MAX, Attempts


def handoff(handoff_id: str, state: str, *, attempt: int = 1, to: str = "b") -> dict[str, Any]:
    return {"id": handoff_id, "state": state, "attempt": attempt, "to": to}


def test_the_last_attempt_is_remembered_for_the_next_command(tmp_path: Path) -> None:
    Attempts(tmp_path, "b").remember(handoff("h1", "delivered"))
    Attempts(tmp_path, "b").remember(handoff("h1", "accepted", attempt=2))
    assert Attempts(tmp_path, "b").of("h1") == 2
    assert Attempts(tmp_path, "c").of("h1") is None


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    Attempts(home, "b").remember(handoff("h1", "accepted"))
    assert json.loads((home / "attempts.json").read_text()) == {"b": {"h1": 1}}
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()}
    assert modes == {"attempts.json": 0o600, "attempts.lock": 0o600}


def test_what_ended_or_went_back_is_forgotten(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path, "b")
    for state in ("offered", "completed", "failed", "rejected", "expired", "cancelled"):
        attempts.remember(handoff("h1", "accepted"))
        attempts.remember(handoff("h1", state))
        assert attempts.of("h1") is None, state
    assert json.loads((tmp_path / "attempts.json").read_text()) == {}


def test_somebody_elses_delivery_is_not_remembered(tmp_path: Path) -> None:
    Attempts(tmp_path, "b").remember(handoff("h1", "accepted", to="c"))
    assert Attempts(tmp_path, "b").of("h1") is None


def test_a_damaged_file_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "attempts.json").write_text("{")
    attempts = Attempts(tmp_path, "b")
    assert attempts.of("h1") is None
    attempts.remember(handoff("h1", "accepted"))
    assert attempts.of("h1") == 1


def test_the_oldest_are_forgotten_first(tmp_path: Path) -> None:
    known = {f"h{n}": 1 for n in range(HANDOFFS_PER_AGENT_MAX)}
    (tmp_path / "attempts.json").write_text(json.dumps({"b": known}))
    attempts = Attempts(tmp_path, "b")
    attempts.remember(handoff("last", "accepted"))
    assert attempts.of("last") == 1
    assert attempts.of("h0") is None
    assert attempts.of("h1") == 1


def test_commands_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    def remember(n: int) -> None:
        Attempts(tmp_path, f"agent{n}").remember(handoff("h1", "accepted", to=f"agent{n}"))

    threads = [threading.Thread(target=remember, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert [Attempts(tmp_path, f"agent{n}").of("h1") for n in range(16)] == [1] * 16

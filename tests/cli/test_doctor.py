import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli import doctor
from nodrop.model.errors import UnreachableError

Run = Callable[..., Any]
Found = dict[str, tuple[str, str, str | None]]


def found(ran: Any) -> Found:
    checks = ran.json["checks"]
    return {
        check["name"]: (check["status"], check["detail"], check.get("next")) for check in checks
    }


def test_a_healthy_relay_is_all_well(nodrop: Run) -> None:
    nodrop("send", "--to", "b")
    ran = nodrop("doctor", "--json")
    assert (ran.code, ran.json["ok"]) == (0, True)
    checks = found(ran)
    assert list(checks) == [
        "home",
        "credentials",
        "disk",
        "relay",
        "clock",
        "log",
        "handoffs",
        "dead letters",
    ]
    assert {status for status, _, _ in checks.values()} == {"ok"}
    assert checks["log"][1].endswith("entries, all hashed anew")
    assert checks["handoffs"][1] == "1 open, 0 of them overdue without the relay acting"


def test_each_check_is_a_line(nodrop: Run) -> None:
    lines = nodrop("doctor").out.splitlines()
    assert all(line.startswith("✓ ") for line in lines)
    assert len(lines) == 8


def test_credentials_that_others_can_read_are_a_failure(nodrop: Run, home: Path) -> None:
    file = home / "credentials"
    file.chmod(0o644)
    try:
        ran = nodrop("doctor", "--json")
    finally:
        file.chmod(0o600)
    assert ran.code == 1
    status, _, advice = found(ran)["credentials"]
    assert (status, advice) == ("fail", f"chmod 600 {file}")


def test_dead_letters_are_a_warning(nodrop: Run) -> None:
    nodrop("send", "--to", "b", "--key", "doomed")
    nodrop("reject", "me/doomed", "no", "--agent", "b")
    ran = nodrop("doctor", "--json")
    assert ran.code == 0
    assert found(ran)["dead letters"] == ("warn", "1 waits for a decision", "nodrop dlq list")
    nodrop("dlq", "discard", "me/doomed")


def test_little_room_is_told(nodrop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_BYTES_WARN", 1 << 60)
    assert found(nodrop("doctor", "--json"))["disk"][0] == "warn"
    monkeypatch.setattr(doctor, "DISK_BYTES_FAIL", 1 << 60)
    assert nodrop("doctor").code == 1


def test_a_relay_that_is_not_there_is_a_failure_and_its_file_is_looked_into(
    nodrop: Run, tmp_path: Path
) -> None:
    ran = nodrop("doctor", "--json", "--url", "http://127.0.0.1:9", "--home", tmp_path)
    checks = found(ran)
    assert ran.code == 1
    assert (checks["relay"][0], checks["relay"][2]) == ("fail", UnreachableError.next)
    assert checks["database"] == ("ok", "none yet; `nodrop up` makes it", None)


def test_a_home_that_is_not_there_is_not_made(nodrop: Run, tmp_path: Path) -> None:
    home = tmp_path / "nowhere"
    ran = nodrop("doctor", "--json", "--url", "http://127.0.0.1:9", "--home", home)
    assert found(ran)["home"][:2] == ("warn", f"{home} is not there")
    assert found(ran)["credentials"][0] == "warn"
    assert not home.exists()


def test_a_sound_database_at_rest_is_told_from_a_damaged_one(nodrop: Run, tmp_path: Path) -> None:
    make = [sys.executable, "-m", "nodrop.cli", "up", "--port", "0", "--json", "--home", tmp_path]
    with subprocess.Popen(make, stdout=subprocess.PIPE) as relay:
        assert relay.stdout is not None
        assert json.loads(relay.stdout.readline())
        relay.kill()  # it may leave its write-ahead log behind
    look = ["doctor", "--json", "--url", "http://127.0.0.1:9", "--home", tmp_path]
    file = tmp_path / "nodrop.db"
    status, detail, _ = found(nodrop(*look))["database"]
    assert (status, detail) == ("ok", f"{file} is sound (journal wal)")
    content = bytearray(file.read_bytes())
    content[4_096:] = b"\xff" * (len(content) - 4_096)
    file.write_bytes(content)
    assert found(nodrop(*look))["database"][0] == "fail"


def test_a_database_whose_relay_does_not_answer_is_told(nodrop: Run, home: Path) -> None:
    checks = found(nodrop("doctor", "--json", "--url", "http://127.0.0.1:9"))
    detail = f"{home / 'nodrop.db'} is in use by a relay that does not answer"
    assert checks["database"][:2] == ("fail", detail)


@pytest.mark.parametrize(
    ("theirs", "status", "detail"),
    [
        (1_000, "ok", "agrees with the relay's"),
        (6_050, "warn", "this machine is 5 seconds behind the relay"),
        (-119_050, "fail", "this machine is 2 minutes ahead of the relay"),
    ],
)
def test_clocks_are_compared(theirs: int, status: str, detail: str) -> None:
    check = doctor.compare_clocks(theirs, before=950, after=1_150)
    assert (check.status, check.detail) == (status, detail)

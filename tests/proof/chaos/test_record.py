import subprocess
import sys
from pathlib import Path

from nodrop_proof.chaos import record
from nodrop_proof.chaos.record import Asked, Record, Stored

KILLED = """
import os, signal, sys
from pathlib import Path
from nodrop_proof.chaos.record import Asked, Record
kept = Record(Path(sys.argv[1]))
kept.write(Asked(ask=sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_lines_come_back_as_they_were_written(tmp_path: Path) -> None:
    lines = [Asked(ask="ask-1", legs=2), Stored(ask="ask-1", handoff_id="h1")]
    with Record(tmp_path / "records") as kept:
        for line in lines:
            kept.write(line)
    assert list(record.read(tmp_path / "records")) == lines


def test_what_was_written_survives_the_kill_of_its_writer(tmp_path: Path) -> None:
    for ask in ("ask-1", "ask-2"):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "records"), ask]
        assert subprocess.run(command, check=False, timeout=30).returncode == -9
    assert list(record.read(tmp_path / "records")) == [Asked(ask="ask-1"), Asked(ask="ask-2")]


def test_a_line_that_was_cut_off_was_never_said(tmp_path: Path) -> None:
    with Record(tmp_path / "records") as kept:
        kept.write(Asked(ask="ask-1"))
        kept.write(Asked(ask="ask-2"))
    whole = (tmp_path / "records").read_bytes()
    (tmp_path / "records").write_bytes(whole[:-5])
    assert list(record.read(tmp_path / "records")) == [Asked(ask="ask-1")]

"""`nodrop emit`, `nodrop triggers`, and the rules in `nodrop.toml`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too

SECONDS_MAX = 60
RULE = """\
on = "email.received"
when = "event.data.subject.contains('bug')"
[offer]
to = "coder"
title = "Bug: ${event.data.subject}"
"""


def test_rules_are_set_tried_and_fired_from_the_terminal(nodrop: Run, tmp_path: Path) -> None:
    rule = tmp_path / "rule.toml"
    rule.write_text(RULE)
    bug, lunch = '{"subject": "a bug"}', '{"subject": "lunch"}'
    nodrop("emit", "email.received", bug, "--id", "e1")
    assert "1 of 1 event would have been handed off" in nodrop("triggers", "test", rule).err
    assert nodrop("triggers", "set", "bugs", rule).code == 0
    assert "bugs" in nodrop("triggers", "list").out
    fired = nodrop("emit", "email.received", bug, "--id", "e2", "--json").json["fired"]
    assert [f["rule"] for f in fired] == ["bugs"]
    again = nodrop("emit", "email.received", bug, "--id", "e2").out
    assert again == f"→ bugs handed off {fired[0]['handoff_id']} (it had before)\n"
    assert nodrop("emit", "email.received", lunch, "--json").json["fired"] == []
    assert "Bug: a bug" in nodrop("inbox", "--agent", "coder").out
    tried = nodrop("triggers", "test", "bugs", "--json").json["trials"]
    assert [t["met"] for t in tried] == [True, True, False]
    assert nodrop("triggers", "remove", "bugs").code == 0
    assert nodrop("triggers", "test", "bugs").code == 3


def test_the_rules_of_a_file_are_tried_before_a_relay_knows_them(
    nodrop: Run, tmp_path: Path
) -> None:
    written = tmp_path / "nodrop.toml"
    rules = [f'[[triggers]]\nname = "{name}"\n{RULE}' for name in ("bugs", "more")]
    written.write_text("\n".join(rules).replace("[offer]", "[triggers.offer]"))
    bug = '{"subject": "a bug"}'
    seq = nodrop("emit", "email.received", bug, "--id", "e9", "--json").json["seq"]
    last = ("--after", str(seq - 1))
    tried = nodrop("triggers", "test", written, *last, "--json").json["rules"]
    assert {name: [t["met"] for t in of["trials"]] for name, of in tried.items()} == {
        "bugs": [True],
        "more": [True],
    }
    shown = nodrop("triggers", "test", written, *last)
    assert shown.out.splitlines()[0] == "bugs"
    assert nodrop("triggers", "list", "--json").json["triggers"] == []


def test_a_bad_rule_is_refused_with_its_place(nodrop: Run, tmp_path: Path) -> None:
    rule = tmp_path / "rule.toml"
    rule.write_text(RULE.replace("contains('bug')", "contains("))
    refused = nodrop("triggers", "set", "bugs", rule)
    assert refused.code == 2
    assert "when: line 1, column 29" in refused.err
    rule.write_text("not toml")
    assert nodrop("triggers", "set", "bugs", rule).code == 2


def _up(folder: Path, written: str) -> subprocess.Popen[str]:
    (folder / "nodrop.toml").write_text(written)
    clean = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    return subprocess.Popen(
        [sys.executable, "-m", "nodrop.cli", "up", "--port", "0", "--json"],
        env=clean | {"NODROP_HOME": str(folder / "home")},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _listed(folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "nodrop.cli", "triggers", "list", "--json"],
        env={**os.environ, "NODROP_HOME": str(folder / "home")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    )
    return [rule["name"] for rule in json.loads(done.stdout)["triggers"]]


def test_a_relay_follows_the_rules_of_its_file(tmp_path: Path) -> None:
    indented = RULE.replace("[offer]", "[triggers.offer]")
    for name in ("bugs", "more"):
        with _up(tmp_path, f'[[triggers]]\nname = "{name}"\n{indented}') as relay:
            assert relay.stdout is not None
            assert relay.stdout.readline()
            assert _listed(tmp_path) == [name], "what the file no longer holds is gone"
            relay.terminate()
    wrong = indented.replace("contains('bug')", "contains(")
    with _up(tmp_path, f'[[triggers]]\nname = "bugs"\n{wrong}') as relay:
        said, _ = relay.communicate(timeout=SECONDS_MAX)
        assert relay.returncode == 2
        assert json.loads(said)["errors"][0]["path"] == "triggers[0].when"

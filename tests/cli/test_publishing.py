import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

Run = Callable[..., Any]

WRITTEN = """{
  "agent_id": "shell-agent",
  "capabilities": [ { "name": "tidy_up",   "timeout_seconds": 60 } ]
}
"""


def published(home: Path, agent: str, token: str) -> bytes:
    url = json.loads((home / "credentials").read_text(encoding="utf-8"))["url"]
    asked = Request(  # noqa: S310  # the relay of this test
        f"{url}/agents/{agent}", headers={"Authorization": f"Bearer {token}"}
    )
    with urlopen(asked) as answer:  # noqa: S310  # same
        return answer.read()


def test_a_manifest_is_published_byte_for_byte(nodrop: Run, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(WRITTEN, encoding="utf-8")
    said = nodrop("agents", "publish", file)
    assert "shell-agent offers tidy_up" in said.err
    token = nodrop("token", "shell-agent").out.strip()
    assert published(home, "shell-agent", token) == WRITTEN.encode()
    assert nodrop("find", "tidy_up", "--json").json["agents"][0]["agent_id"] == "shell-agent"


def test_a_manifest_comes_from_a_pipe_too(nodrop: Run) -> None:
    answer = nodrop("agents", "publish", "-", "--json", stdin='{"agent_id": "piped"}').json
    assert answer["agent"]["agent_id"] == "piped"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "expected the name of the agent"),
        ('{"agent_id": 7}', "expected the name of the agent"),
        ('{"agent_id": "a", "mood": "fine"}', "mood"),
    ],
)
def test_what_is_no_manifest_is_refused(nodrop: Run, written: str, said: str) -> None:
    refused = nodrop("agents", "publish", "-", stdin=written)
    assert refused.code == 2
    assert said in refused.err


def test_a_file_that_is_not_there_is_named(nodrop: Run) -> None:
    refused = nodrop("agents", "publish", "nowhere.json")
    assert refused.code == 3
    assert "nowhere.json" in refused.err

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

MANIFEST = {
    "agent_id": "research-agent-001",
    "capabilities": [
        {
            "name": "web_research",
            "input_schema": {"query": "string", "depth": "int"},
            "output_schema": {"sources": "array", "summary": "string"},
            "timeout_seconds": 300,
            "reliability_sla": 0.95,
            "tags": ["eu"],
        }
    ],
}


@pytest.fixture
def researcher(home: Path) -> str:
    """The name of an agent that has published what it can do."""
    import nodrop  # noqa: PLC0415  # the relay's address is known by now

    url = json.loads((home / "credentials").read_text(encoding="utf-8"))["url"]
    with nodrop.connect_sync(url, agent="research-agent-001", home=home) as me:
        me.register(MANIFEST)
    return "research-agent-001"


def test_find_shows_what_is_claimed_beside_what_was_observed(nodrop: Run, researcher: str) -> None:
    found = nodrop("find", "web_research", "--output", '{"summary": "string"}')
    row = next(line for line in found.out.splitlines() if researcher in line)
    assert "asleep" in row
    assert "not enough data (n = 0)" in row
    assert "95%, within 300 s" in row
    assert "output fits" in row


def test_find_filters(nodrop: Run, researcher: str) -> None:
    def names(*arguments: str) -> list[str]:
        listed = nodrop("find", *arguments, "--json").json["agents"]
        return [agent["agent_id"] for agent in listed]

    assert names("web_research", "--tag", "eu", "--timeout", "5m") == [researcher]
    assert names("--input", '{"query": "string", "depth": "int"}') == [researcher]
    for nobody in (
        ["web_research", "--tag", "us"],
        ["web_research", "--timeout", "1m"],
        ["web_research", "--reliability", "0.5"],
        ["web_research", "--available"],
        ["web_research", "--input", '{"query": "string"}'],
        ["juggling"],
    ):
        assert names(*nobody) == []
    assert "Nobody" in nodrop("find", "juggling").out
    assert researcher in nodrop("find").out


def test_a_shape_that_is_no_json_is_refused(nodrop: Run) -> None:
    refused = nodrop("find", "--input", "{nonsense")
    assert (refused.code, "--input" in refused.err) == (2, True)


def test_terms_are_negotiated_countered_and_agreed_on(nodrop: Run, researcher: str) -> None:
    payload = '{"query": "css", "depth": 1}'
    offer = ["--to", researcher, "--payload", payload, "--timeout", "2m", "--agent", "editor"]
    sent = nodrop("send", *offer, "--key", "terms", "--json").handoff
    assert sent["timeout"] == "2m"
    nodrop("counter", "editor/terms", "--timeout", "4m", "--reason", "deep", "--agent", researcher)
    assert "proposes timeout 4m: deep" in nodrop("track", "editor/terms").out
    agreed = nodrop("agree", "editor/terms", "--agent", "editor", "--json").handoff
    assert (agreed["state"], agreed["timeout"]) == ("accepted", "4m")
    assert "timeout   4m" in " ".join(nodrop("track", "editor/terms").out.split("\n"))
    wrong = nodrop("send", *offer, "--contract", "sha256:" + "0" * 64)
    assert (wrong.code, "contract_mismatch" in wrong.err) == (4, True)

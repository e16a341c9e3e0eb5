"""After `nodrop join`, a home without an operator is the agent that joined from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def url(nodrop: Run) -> str:
    checks = {check["name"]: check for check in nodrop("doctor", "--json").json["checks"]}
    return checks["relay"]["detail"].split()[0]


@pytest.fixture
def there(nodrop: Run, tmp_path: Path) -> Run:
    """Commands on the machine where agents joined."""

    def run(*arguments: str, **variables: str) -> Any:
        return nodrop(*arguments, NODROP_HOME=str(tmp_path / "there"), **variables)

    return run


def join(nodrop: Run, there: Run, url: str, name: str, *options: str) -> None:
    invitation = nodrop("invite", name, *options, "--json").json["invitation"]
    done = there("join", invitation, "--url", url)
    assert done.code == 0, done.err


@pytest.mark.parametrize("verb", ["inbox", "agents", "log", "messages", "debrief", "find x"])
def test_every_verb_is_asked_by_the_only_agent_there(
    nodrop: Run, there: Run, url: str, verb: str
) -> None:
    name = f"bob_{verb[:3]}"
    join(nodrop, there, url, name)
    asked = there(*verb.split())
    assert asked.code == 0, asked.err


def test_what_it_sends_comes_from_it(nodrop: Run, there: Run, url: str) -> None:
    join(nodrop, there, url, "sender_bob")
    sent = there("send", "--to", "b", "--json")
    assert sent.handoff["from"] == "sender_bob"


def test_an_operators_verb_is_asked_by_it_too(nodrop: Run, there: Run, url: str) -> None:
    join(nodrop, there, url, "boss", "--role", "operator")
    assert there("token", "made_by_boss").code == 0
    assert there("verify").code == 0


def test_doctor_tells_the_truth_about_it(nodrop: Run, there: Run, url: str) -> None:
    join(nodrop, there, url, "looked_at")
    examined = there("doctor", "--json").json
    checks = {check["name"]: check for check in examined["checks"]}
    assert checks["credentials"]["detail"] == "yours alone; looked_at with a key"
    assert checks["relay"]["status"] == "ok"


def test_of_two_agents_one_has_to_be_named(nodrop: Run, there: Run, url: str) -> None:
    join(nodrop, there, url, "first_bob")
    join(nodrop, there, url, "second_bob")
    asked = there("inbox")
    assert asked.code == 1
    assert "→ Name the agent that you are here: --agent first_bob|second_bob" in asked.err
    assert there("inbox", "--agent", "first_bob").code == 0


def test_at_another_relay_it_is_nobody(nodrop: Run, there: Run, url: str, tmp_path: Path) -> None:
    join(nodrop, there, url, "only_here")
    # A database that is opened here has a person and an operator of its own.
    made = there("send", "--to", "b", "--url", str(tmp_path / "mine.db"), "--json")
    assert made.handoff["from"] == "me"


def test_the_users_own_relay_still_means_the_person(nodrop: Run, home: Path) -> None:
    assert nodrop("keys", "rotate", "--agent", "keyed", "--json").code == 0
    assert (home / "keys" / "default" / "keyed.pem").exists()
    assert nodrop("send", "--to", "b", "--json").handoff["from"] == "me"


def test_a_home_without_credentials_is_told_how_to_get_in(
    nodrop: Run, url: str, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    refused = nodrop("agents", "--url", url, "--home", empty)
    assert refused.code == 1
    assert f"→ {empty} has no credentials for {url}: name the relay's --home" in refused.err
    assert "Authorization" not in refused.err

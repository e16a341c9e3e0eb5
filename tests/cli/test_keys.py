"""Joining, signing and verifying as a user types it."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def joined(nodrop: Run, agent: str) -> None:
    invitation = nodrop("invite", agent).out.strip()
    done = nodrop("join", invitation)
    assert done.code == 0, done.err


def test_an_agent_is_invited_joins_and_signs(nodrop: Run, home: Path) -> None:
    for agent in ("asker", "doer"):
        joined(nodrop, agent)
    kept = home / "keys" / "default" / "asker.pem"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    sent = nodrop("send", "--to", "doer", "--key", "signed", "--agent", "asker", "--json").handoff
    assert sent["verified"] is True
    nodrop("ack", "asker/signed", "--agent", "doer")
    nodrop("done", "asker/signed", "--agent", "doer")
    ended = nodrop("wait", "asker/signed", "--agent", "asker", "--json")
    assert ended.handoff["outcome"]["verified"] is True
    verdict = nodrop("verify", "--json")
    assert verdict.code == 0
    assert verdict.json["checked"]["signatures"] >= 2
    assert "the log holds" in nodrop("verify").out


def test_a_saved_log_is_verified_against_a_kept_checkpoint(nodrop: Run, tmp_path: Path) -> None:
    nodrop("note", "worth keeping")
    kept, log = tmp_path / "checkpoint.json", tmp_path / "log.jsonl"
    assert nodrop("verify", "--save-checkpoint", kept).code == 0
    log.write_text(nodrop("log", "--json").out, encoding="utf-8")
    assert nodrop("verify", "--log", log, "--checkpoint", kept).code == 0
    lines = log.read_text(encoding="utf-8").splitlines()
    forged = json.loads(lines[-1]) | {"actor": "somebody"}
    log.write_text("\n".join([*lines[:-1], json.dumps(forged)]), encoding="utf-8")
    found = nodrop("verify", "--log", log, "--checkpoint", kept)
    assert found.code == 1
    assert f"entry {forged['seq']} does not hold" in found.out
    log.write_text("\n".join(lines[:-1]), encoding="utf-8")
    assert nodrop("verify", "--log", log, "--checkpoint", kept, "--json").code == 1


def test_an_invitation_is_good_once(nodrop: Run) -> None:
    invitation = nodrop("invite", "once").out.strip()
    assert nodrop("join", invitation).code == 0
    again = nodrop("join", invitation, "--json")
    assert (again.code, again.json["code"]) == (4, "invitation_used")
    # Whoever was refused keeps what it had.
    assert nodrop("inbox", "--agent", "once").code == 0


def test_an_invitation_for_anybody_needs_a_name(nodrop: Run) -> None:
    invitation = nodrop("invite").out.strip()
    assert nodrop("join", invitation).code == 2
    assert nodrop("join", invitation, "--agent", "somebody").code == 0
    assert nodrop("join", "ndi_nonsense").code == 2


def test_a_key_is_rotated_and_revoked(nodrop: Run) -> None:
    joined(nodrop, "rotating")
    old = nodrop("keys", "list", "--of", "rotating", "--json").json["keys"][0]
    assert nodrop("keys", "rotate", "--agent", "rotating", "--overlap", "1h").code == 0
    listed = nodrop("keys", "list", "--of", "rotating", "--json").json["keys"]
    assert [key["expires_at"] is None for key in listed] == [False, True]
    assert nodrop("inbox", "--agent", "rotating").code == 0
    assert nodrop("keys", "revoke", listed[1]["key_id"]).code == 0
    assert nodrop("inbox", "--agent", "rotating", "--json").json["code"] == "unauthenticated"
    assert "expires in" in nodrop("keys", "list", "--of", "rotating").out
    assert nodrop("keys", "revoke", old["key_id"], "--json").json["key"]["revoked_at"]
    assert nodrop("keys", "list", "--of", "rotating").out.count("revoked") == 2


def test_the_person_gets_a_key_too(nodrop: Run) -> None:
    assert nodrop("keys", "rotate").code == 0
    sent = nodrop("send", "--to", "b", "--key", "by-me", "--json").handoff
    assert sent["verified"] is True


def test_the_rules_are_shown_and_set(nodrop: Run) -> None:
    assert "everybody may hand everything" in nodrop("policy").out
    try:
        rules = nodrop("policy", "--signatures", "required", "--allow", "a:*:b", "--json")
        allowed = [{"from": "a", "capability": "*", "to": "b"}]
        assert (rules.json["signatures"], rules.json["allow"]) == ("required", allowed)
        assert "a may hand * to b" in nodrop("policy").out
        plain = nodrop("token", "plain").out.strip()
        refused = nodrop("send", "--to", "b", "--token", plain, "--json")
        assert refused.json["code"] in {"signature_required", "forbidden"}
        assert nodrop("policy", "--allow", "nonsense").code == 2
    finally:
        rules = nodrop("policy", "--signatures", "optional", "--allow-all", "--json")
    assert (rules.json["signatures"], rules.json["allow"]) == ("optional", [])


def test_the_teams_escalation_steps_are_shown_and_set(nodrop: Run) -> None:
    default = nodrop("policy", "--json").json["escalation"]
    assert "escalation  dead after 0s: me is told" in nodrop("policy").out
    try:
        steps = ["--escalate", "dead:0s:boss", "--escalate", "silent:2h:me"]
        rules = nodrop("policy", *steps, "--json").json
        assert rules["escalation"] == [
            {"when": "dead", "after": "0s", "notify": "boss"},
            {"when": "silent", "after": "2h", "notify": "me"},
        ]
        assert nodrop("policy", "--allow-all", "--json").json == rules, "the others stay"
        assert nodrop("policy", "--escalate", "dead").code == 2
        assert nodrop("policy", "--no-escalation", "--json").json["escalation"] == []
        assert "nobody is told" in nodrop("policy").out
    finally:
        again = [f"--escalate={s['when']}:{s['after']}:{s['notify']}" for s in default]
        rules = nodrop("policy", *again, "--json").json
    assert rules["escalation"] == default


def test_an_id_that_begins_as_an_option_does_is_taken_for_what_it_is(nodrop: Run) -> None:
    unknown = "-h" + "v" * 41
    for arguments in ((unknown, "--json"), ("--json", unknown), ("--json", "--", unknown)):
        assert nodrop("keys", "revoke", *arguments).json["code"] == "not_found"

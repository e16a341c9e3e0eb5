import pytest

from nodrop.model.policy import DEFAULT_POLICY, Allow, Policy

TRIAGE = Allow(from_="inbox_monitor", to="code_agent", capability="bug_triage")


def test_a_team_that_says_nothing_allows_everything() -> None:
    assert DEFAULT_POLICY.allows("anybody", "anybody_else", None)


@pytest.mark.parametrize(
    ("sender", "recipient", "capability", "allowed"),
    [
        ("inbox_monitor", "code_agent", "bug_triage", True),
        ("support_agent", "code_agent", "bug_triage", False),
        ("inbox_monitor", "support_agent", "bug_triage", False),
        ("inbox_monitor", "code_agent", "deploy", False),
        ("inbox_monitor", "code_agent", None, False),
    ],
)
def test_with_rules_only_what_a_rule_covers_is_allowed(
    sender: str, recipient: str, capability: str | None, *, allowed: bool
) -> None:
    assert Policy(allow=(TRIAGE,)).allows(sender, recipient, capability) is allowed


def test_a_star_covers_everything_in_its_place() -> None:
    policy = Policy(allow=(TRIAGE, Allow(from_="planner")))
    assert policy.allows("planner", "anybody", None)
    assert not policy.allows("reviewer", "anybody", None)

"""Bad input: a coded problem with the exact path and what to do next, and nothing stored."""

from typing import Any

import pytest

from nodrop.model.errors import (
    AmbiguousReferenceError,
    ForbiddenError,
    InvalidRequestError,
    NodropError,
    NotFoundError,
    TooLargeError,
    UnsupportedFieldError,
)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD_OFFERS: list[tuple[dict[str, Any], type[NodropError], str]] = [
    ({}, InvalidRequestError, "to"),
    ({"to": "no spaces"}, InvalidRequestError, "to"),
    ({"to": "x", "priority_level": "high"}, InvalidRequestError, "priority_level"),
    ({"to": "x", "priority": "asap"}, InvalidRequestError, "priority"),
    ({"to": "x", "priority": 3}, InvalidRequestError, "priority"),
    ({"to": "x", "deadline": "whenever"}, InvalidRequestError, "deadline"),
    ({"to": "x", "deadline": -1}, InvalidRequestError, "deadline"),
    ({"to": "x", "deadline": "2020-01-01T00:00:00Z"}, InvalidRequestError, "deadline"),
    ({"to": "x", "accept_within": "0s"}, InvalidRequestError, "accept_within"),
    ({"to": "x", "attempts_max": 0}, InvalidRequestError, "attempts_max"),
    ({"to": "x", "backoff": {"factor": 0.5}}, InvalidRequestError, "backoff.factor"),
    ({"to": "x", "backoff": {"fist": "1s"}}, InvalidRequestError, "backoff.fist"),
    ({"to": "x", "escalation": [{"when": "bored"}]}, InvalidRequestError, "escalation[0].when"),
    ({"to": "x", "escalation": [{"when": "dead"}]}, InvalidRequestError, "escalation[0].notify"),
    ({"to": "x", "then": [{}]}, InvalidRequestError, "then[0].to"),
    ({"to": "x", "then": [{"to": "y"}] * 33}, InvalidRequestError, "then"),
    ({"to": "x", "watchers": ["a", "b c"]}, InvalidRequestError, "watchers[1]"),
    ({"to": "x", "traceparent": "nonsense"}, InvalidRequestError, "traceparent"),
    ({"to": "x", "idempotency_key": ""}, InvalidRequestError, "idempotency_key"),
    ({"to": "x", "idempotency_key": "k" * 257}, InvalidRequestError, "idempotency_key"),
    ({"to": "x", "title": "x" * 10_001}, InvalidRequestError, "title"),
    ({"to": "x", "group": "g"}, InvalidRequestError, "group"),
    ({"to": "x", "supersedes": "h"}, UnsupportedFieldError, "supersedes"),
    ({"to": "x", "contract_digest": "d"}, InvalidRequestError, "contract_digest"),
    ({"capability": "c", "contract_digest": "sha256:" + "0" * 64}, InvalidRequestError, "to"),
    ({"to": "x", "timeout": 0}, InvalidRequestError, "timeout"),
    ({"to": "x", "timeout": "soon"}, InvalidRequestError, "timeout"),
    (
        {"to": "x", "escalation": [{"when": "overdue", "reassign": {"to": "y z"}}]},
        InvalidRequestError,
        "escalation[0].reassign.to",
    ),
    ({"to": "x", "then": [{"to": "y", "on": "never"}]}, InvalidRequestError, "then[0].on"),
]


@pytest.mark.parametrize(("offer", "kind", "path"), BAD_OFFERS, ids=[p for _, _, p in BAD_OFFERS])
async def test_a_bad_offer_is_told_where_it_is_wrong(
    inbox_monitor: Any, offer: dict[str, Any], kind: type[NodropError], path: str
) -> None:
    before = (await inbox_monitor("log"))["after"]
    with pytest.raises(kind) as refused:
        await inbox_monitor("offer", **offer)
    assert type(refused.value) is kind
    assert path in [problem.path for problem in refused.value.errors]
    assert refused.value.next_step
    assert (await inbox_monitor("list_handoffs"))["handoffs"] == []
    assert (await inbox_monitor("log"))["after"] == before


async def test_everything_wrong_is_told_at_once(inbox_monitor: Any) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await inbox_monitor("offer", to="x", priority="asap", deadline="whenever")
    assert {p.path for p in refused.value.errors} == {"priority", "deadline"}


async def test_what_is_too_large_or_too_deep_is_refused(inbox_monitor: Any) -> None:
    for payload in ("x" * 1_100_000, nested(100)):
        with pytest.raises(TooLargeError):
            await inbox_monitor("offer", to="x", payload=payload)
    await inbox_monitor("offer", to="x", payload=nested(60))
    assert len((await inbox_monitor("list_handoffs"))["handoffs"]) == 1


async def test_unknown_and_foreign_ids_cannot_be_told_apart(
    office: Any, inbox_monitor: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="secret"))["handoff"]
    bystander = await office.join("bystander")
    foreigner = await office.join("me", role="operator", team="elsewhere")
    unknown = "01a00000-0000-7000-8000-000000000000"
    told: set[tuple[str, str, str]] = set()
    for who in (bystander, foreigner):
        for target in (offered["id"], unknown):
            for operation in ("get_handoff", "cancel", "ack", "redrive", "settle"):
                with pytest.raises(NotFoundError) as refused:
                    await who(operation, target)
                error = refused.value
                told.add((error.code, error.detail, error.next_step))
    assert len(told) == 1


async def test_a_prefix_or_a_reference_stands_for_an_id(office: Any, inbox_monitor: Any) -> None:
    made = [
        (await inbox_monitor("offer", to="x", idempotency_key=f"k {n}%"))["handoff"]
        for n in range(2)
    ]
    prefix = made[0]["id"][:-1]
    if not made[1]["id"].startswith(prefix):
        assert (await inbox_monitor("get_handoff", prefix))["handoff"]["id"] == made[0]["id"]
    by_ref = (await inbox_monitor("get_handoff", "inbox_monitor/k 1%"))["handoff"]
    assert by_ref["id"] == made[1]["id"]
    with pytest.raises(AmbiguousReferenceError):
        await inbox_monitor("get_handoff", made[0]["id"][:4])
    with pytest.raises(NotFoundError):
        await (await office.join("bystander"))("get_handoff", made[0]["id"][:4])
    with pytest.raises(NotFoundError):
        await inbox_monitor("get_handoff", "inbox_monitor/k _%")


async def test_nobody_hands_off_in_another_name_but_an_operator(
    office: Any, inbox_monitor: Any
) -> None:
    with pytest.raises(ForbiddenError):
        await inbox_monitor("offer", **{"from": "me", "to": "x"})
    me = await office.person()
    sent = (await me("offer", **{"from": "inbox_monitor", "to": "x"}))["handoff"]
    assert sent["from"] == "inbox_monitor"
    [entry] = (await me("log", handoff_id=sent["id"]))["entries"]
    assert entry["actor"] == "me"


async def test_an_agent_publishes_for_itself_and_mints_for_itself_only(
    inbox_monitor: Any,
) -> None:
    with pytest.raises(ForbiddenError):
        await inbox_monitor("register", named="code_agent", manifest={"agent_id": "code_agent"})
    with pytest.raises(ForbiddenError):
        await inbox_monitor("create_token", agent="code_agent")
    with pytest.raises(ForbiddenError):
        await inbox_monitor("create_token", agent="inbox_monitor", role="operator")
    own = await inbox_monitor("create_token", agent="inbox_monitor")
    assert own["token"].startswith("nd_")


BAD_MANIFESTS: list[tuple[dict[str, Any], str]] = [
    ({"agent_id": "other"}, "agent_id"),
    ({"capabilities": [{"name": ""}]}, "capabilities[0].name"),
    ({"capabilities": [{"name": "a"}, {"name": "a"}]}, "capabilities[1].name"),
    (
        {"capabilities": [{"name": "a", "input_schema": {"type": "nonsense"}}]},
        "capabilities[0].input_schema",
    ),
    (
        {"capabilities": [{"name": "a", "input_schema": {"$ref": "http://127.0.0.1/x"}}]},
        "capabilities[0].input_schema",
    ),
    (
        {"capabilities": [{"name": "a", "timeout_seconds": -1}]},
        "capabilities[0].timeout_seconds",
    ),
    (
        {"capabilities": [{"name": "a", "reliability_sla": 2}]},
        "capabilities[0].reliability_sla",
    ),
    ({"capabilities": [{"name": "a", "colour": "red"}]}, "capabilities[0].colour"),
]


@pytest.mark.parametrize(("manifest", "path"), BAD_MANIFESTS, ids=[p for _, p in BAD_MANIFESTS])
async def test_a_bad_manifest_is_told_where_it_is_wrong(
    code_agent: Any, manifest: dict[str, Any], path: str
) -> None:
    whole = {"agent_id": "code_agent", **manifest}
    with pytest.raises(InvalidRequestError) as refused:
        await code_agent("register", named="code_agent", manifest=whole)
    assert [p.path for p in refused.value.errors] == [path]


async def test_a_list_of_what_no_handoff_can_be_is_refused(inbox_monitor: Any) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await inbox_monitor("list_handoffs", state="finished")
    (problem,) = refused.value.errors
    assert problem.path == "state"
    assert "completed" in problem.message

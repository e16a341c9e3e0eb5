"""Triggers: an event that meets a rule is handed off, once for each rule and event id."""

import sys
from typing import Any

import pytest

from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    NotInstalledError,
)

RULE = {
    "on": "email.received",
    "when": "event.data.subject.contains('bug')",
    "offer": {
        "to": "code_agent",
        "title": "Bug: ${event.data.subject}",
        "payload": {"email_id": "${event.id}", "all": "${event.data}"},
        "deadline": "4h",
    },
}
EVENT = {"type": "email.received", "event_id": "msg_1", "data": {"subject": "a bug"}}


@pytest.fixture
async def me(office: Any) -> Any:
    person = await office.person()
    await person("put_trigger", named="bug_reports", **RULE)
    return person


async def test_a_rule_without_a_condition_needs_no_cel(
    office: Any, inbox_monitor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cel", None)  # as where the extra is not installed
    person = await office.person()
    always = {name: value for name, value in RULE.items() if name != "when"}
    await person("put_trigger", named="always", **always)
    [fired] = (await inbox_monitor("emit", **EVENT))["fired"]
    assert fired["rule"] == "always"
    with pytest.raises(NotInstalledError):  # the control: a condition does
        await person("put_trigger", named="bugs", **RULE)


async def test_an_event_that_meets_a_rule_is_handed_off(
    me: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    answer = await inbox_monitor("emit", **EVENT)
    [fired] = answer["fired"]
    [delivery] = (await code_agent("take"))["deliveries"]
    handoff = delivery["handoff"]
    assert (handoff["id"], handoff["from"]) == (fired["handoff_id"], "inbox_monitor")
    assert (handoff["title"], handoff["trigger"]) == (
        "Bug: a bug", "email.received (bug_reports)",
    )  # fmt: skip
    assert handoff["payload"] == {"email_id": "msg_1", "all": {"subject": "a bug"}}
    [entry] = (await me("log", type="event.emitted.v1"))["entries"]
    assert entry["data"] == {"id": "msg_1", "type": "email.received", "fired": ["bug_reports"]}
    assert entry["body"] == {"data": {"subject": "a bug"}}


async def test_an_event_that_meets_none_is_only_in_the_log(me: Any, inbox_monitor: Any) -> None:
    for event in (
        {"type": "email.received", "data": {"subject": "lunch"}},
        {"type": "email.sent", "data": {"subject": "a bug"}},
    ):
        assert (await inbox_monitor("emit", **event))["fired"] == []
    assert len((await me("log", type="event.emitted.v1"))["entries"]) == 2
    assert (await me("list_handoffs"))["handoffs"] == []


async def test_the_same_event_told_again_by_anybody_brings_nothing_new_about(
    office: Any, me: Any, inbox_monitor: Any
) -> None:
    other = await office.join("other")
    first = await inbox_monitor("emit", **EVENT)
    assert (await inbox_monitor("emit", **EVENT))["seq"] == first["seq"]
    [again] = (await other("emit", **EVENT))["fired"]
    assert (again["before"], again["handoff_id"]) == (True, first["fired"][0]["handoff_id"])
    await office.restart()
    inbox_monitor, me = await office.join("inbox_monitor"), await office.person()
    [fired] = (await inbox_monitor("emit", **EVENT))["fired"]
    assert fired["before"]
    assert len((await me("list_handoffs"))["handoffs"]) == 1


async def test_each_rule_fires_for_itself(me: Any, inbox_monitor: Any) -> None:
    offer = {"to": "archive", "title": "Keep"}
    await me("put_trigger", named="keep_all", on="email.*", offer=offer)
    fired = (await inbox_monitor("emit", **EVENT))["fired"]
    assert [f["rule"] for f in fired] == ["bug_reports", "keep_all"]
    await me("remove_trigger", named="keep_all")
    fired = (await inbox_monitor("emit", **{**EVENT, "event_id": "msg_2"}))["fired"]
    assert [f["rule"] for f in fired] == ["bug_reports"]
    with pytest.raises(NotFoundError):
        await me("remove_trigger", named="keep_all")


async def test_an_event_that_lacks_what_a_condition_asks_for_does_not_meet_it(
    me: Any, inbox_monitor: Any
) -> None:
    [told] = (await inbox_monitor("emit", type="email.received", data={}))["fired"]
    assert (told["rule"], told["unmet"]) == ("bug_reports", "the event has no subject")
    assert (await me("list_handoffs"))["handoffs"] == []


@pytest.mark.parametrize(
    ("offer", "code"),
    [
        ({"to": "code_agent", "title": "${event.data.nothing}"}, "payload_invalid"),
        ({"capability": "nobody_can", "title": "x"}, "no_match"),
    ],
)
async def test_what_cannot_be_handed_off_is_a_dead_letter_with_its_reason(
    me: Any, inbox_monitor: Any, offer: dict[str, Any], code: str
) -> None:
    await me("put_trigger", named="bug_reports", on="email.received", offer=offer)
    await inbox_monitor("emit", **EVENT)
    [dead] = (await inbox_monitor("dead_letters"))["handoffs"]
    assert (dead["state"], dead["outcome"]["code"]) == ("rejected", code)


@pytest.mark.parametrize(
    ("changed", "path", "place"),
    [
        ({"when": "event.data.n >"}, "when", "line 1, column 15"),
        ({"when": "evnt.type == 'x'"}, "when", "column 1"),
        ({"when": "lower(event.type) == 'x'"}, "when", "column 1"),
        ({"when": "event.a.all(x, event.b.all(y, x == y))"}, "when", "column 23"),
        ({"when": "event.a.all(x, x == y)"}, "when", "column 21"),
        ({"when": "event.a.map(x, x).size() > 0"}, "when", "column 8"),
        ({"when": "event.s.matches(event.p)"}, "when", "column 8"),
        ({"when": "true || " * 200 + "true"}, "when", "at most 1000"),
        ({"on": "a*b"}, "on", "expected an event type"),
        ({"offer": {"to": "b", "title": "${evnt.x}"}}, "offer.title", "begins with none of"),
        ({"offer": {"to": "b", "deadline": "soon"}}, "offer.deadline", ""),
        ({"offer": {"title": "x"}}, "offer.to", "name a recipient"),
        ({"offer": {"to": "b", "idempotency_key": "k"}}, "offer.idempotency_key", "the same"),
        ({"offer": {"to": "b", "command_id": ""}}, "offer.command_id", "the same"),
        ({"offer": {"to": "b", "signature": ""}}, "offer.signature", "the same"),
        ({"offer": {"to": "b", "turn_based": True}}, "offer.turn_based", "the same"),
    ],
)
async def test_a_bad_rule_is_refused_with_the_place_in_it_that_is_wrong(
    me: Any, changed: dict[str, Any], path: str, place: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await me("put_trigger", named="bad", **{**RULE, **changed})
    assert refused.value.errors[0].path == path
    assert place in refused.value.errors[0].message
    assert [t["name"] for t in (await me("triggers"))["triggers"]] == ["bug_reports"]


async def test_a_rule_is_tried_on_past_events_without_handing_anything_off(
    me: Any, inbox_monitor: Any
) -> None:
    await inbox_monitor("emit", type="email.received", event_id="a", data={"subject": "lunch"})
    await inbox_monitor("emit", type="email.received", event_id="b", data={"subject": "dinner"})
    await inbox_monitor("emit", type="email.received", event_id="c", data={})
    tried = await me("test_trigger", trigger="bug_reports")
    assert [t["met"] for t in tried["trials"]] == [False, False, False]
    rule = {**RULE, "when": "event.data.subject == 'lunch'"}
    tried = await me("test_trigger", rule=rule)
    assert [(t["event_id"], t["met"], "unmet" in t) for t in tried["trials"]] == [
        ("a", True, False), ("b", False, False), ("c", False, True),
    ]  # fmt: skip
    assert tried["trials"][0]["offer"]["title"] == "Bug: lunch"
    assert (await me("list_handoffs"))["handoffs"] == []


async def test_rules_are_an_operators_to_set_and_everybodys_to_see(
    me: Any, inbox_monitor: Any
) -> None:
    with pytest.raises(ForbiddenError):
        await inbox_monitor("put_trigger", named="mine", **RULE)
    [rule] = (await inbox_monitor("triggers"))["triggers"]
    assert (rule["name"], rule["when"], rule["offer"]["to"]) == (
        "bug_reports", RULE["when"], "code_agent",
    )  # fmt: skip
    await me("put_trigger", named="bug_reports", **RULE)
    assert len((await me("log", type="trigger.set.v1"))["entries"]) == 1, "it was the same"


@pytest.mark.parametrize(
    ("when", "data"),
    [
        ("event.data.all.all(x, x in event.data.all)", {"all": [0] * 20_000}),
        ("event.data.all.filter(x, x > 0).size() == 0", {"all": [0] * 20_000}),
        ("event.data.all.exists(x, x.matches('b'))", {"all": ["a"] * 20_000}),
        ("event.data.all.exists(x, x == event.data.b)", {"all": [0] * 200, "b": "b" * 100_000}),
        ("event.data.s.matches('(a{10}){10}z')", {"s": "a" * 900_000}),
    ],
)
async def test_an_event_that_would_take_too_long_to_judge_is_not_judged(
    me: Any, inbox_monitor: Any, when: str, data: Any
) -> None:
    await me("put_trigger", named="costly", **{**RULE, "on": "counted", "when": when})
    answer = await inbox_monitor("emit", type="counted", data=data)
    [told] = answer["fired"]
    assert (told["rule"], told["unmet"]) == ("costly", "the event is too large for this condition")


@pytest.mark.parametrize(
    ("when", "data"),
    [
        ("event.data.labels.exists(x, x == 'bug')", {"labels": ["a"] * 20_000 + ["bug"]}),
        ("event.data.labels.filter(x, x.startsWith('b')).size() == 1", {"labels": ["a", "bug"]}),
        ("event.data.labels.exists(x, x in event.data.wanted)", {"labels": ["a"], "wanted": ["a"]}),
        ("event.data.text.matches('(?i)bug|crash')", {"text": "x" * 90_000 + "Bug"}),
        ("event.data.text == 'all(x, all(y' && \"it's\" != ''", {"text": "all(x, all(y"}),
        ("type(event.data.text) == string", {"text": ""}),
    ],
)
async def test_what_a_rule_asks_of_an_ordinary_event_is_answered(
    me: Any, inbox_monitor: Any, when: str, data: Any
) -> None:
    offer = {"to": "code_agent", "title": "labelled"}
    await me("put_trigger", named="labels", on="labelled", when=when, offer=offer)
    answer = await inbox_monitor("emit", type="labelled", data=data)
    [told] = answer["fired"]
    assert told["handoff_id"], told


async def test_an_element_that_is_not_there_is_a_condition_unmet(
    me: Any, inbox_monitor: Any
) -> None:
    when = "event.data.steps[0] == 'open'"
    await me("put_trigger", named="first", **{**RULE, "on": "reported", "when": when})
    [told] = (await inbox_monitor("emit", type="reported", data={"steps": []}))["fired"]
    assert "index out of bounds" in told["unmet"]

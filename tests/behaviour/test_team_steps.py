"""The team's escalation steps: what nobody acts on reaches a person, unless an offer opts out."""

from typing import Any

import pytest

from nodrop.model.errors import ForbiddenError, InvalidRequestError

MINUTE = 60_000
HOUR = 60 * MINUTE
DEFAULT = [
    {"when": "unacknowledged", "after": "1h", "notify": "me"},
    {"when": "blocked", "after": "1h", "notify": "me"},
    {"when": "dead", "after": "0s", "notify": "me"},
]


async def offer(agent: Any, **fields: Any) -> dict[str, Any]:
    said = {"to": "code_agent", "title": "bug", "payload": {"n": 1}, **fields}
    return (await agent("offer", **said))["handoff"]


async def fail(agent: Any, handoff: dict[str, Any]) -> None:
    await agent("ack", handoff["id"])
    await agent("fail", handoff["id"], attempt=1, reason="no access")


async def escalations(me: Any) -> list[tuple[str, str, str | None]]:
    page = await me("log", type="handoff.escalated.v1", limit=500)
    told = [(entry["handoff_id"], entry["data"]) for entry in page["entries"]]
    return [(handoff_id, data["when"], data.get("notify")) for handoff_id, data in told]


async def test_a_dead_letter_reaches_the_person_without_a_step_in_the_offer(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    offered = await offer(inbox_monitor)
    assert (offered["escalation"], offered["team_steps"]) == (None, DEFAULT)
    await fail(code_agent, offered)
    [item] = (await me("inbox"))["items"]
    assert (item["kind"], item["handoff_id"]) == ("notice", offered["id"])
    assert await escalations(me) == [(offered["id"], "dead", "me")]


async def test_what_is_not_acknowledged_and_what_waits_for_an_answer_reach_the_person(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    ignored = await offer(inbox_monitor, title="ignored")
    asked = await offer(inbox_monitor, title="asked")
    await code_agent("ack", asked["id"])
    await code_agent("block", asked["id"], attempt=1, question="Which version?")
    office.clock.advance(59 * MINUTE)
    await office.settled()
    assert await escalations(me) == []
    office.clock.advance(2 * MINUTE)
    after = 0
    while len(await escalations(me)) < 2:
        after = (await me("log", after=after, wait="60s"))["after"]
    assert sorted(await escalations(me)) == sorted(
        [(ignored["id"], "unacknowledged", "me"), (asked["id"], "blocked", "me")]
    )


async def test_an_offer_with_no_steps_opts_out(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    offered = await offer(inbox_monitor, escalation=[])
    assert (offered["escalation"], offered["team_steps"]) == ([], [])
    await fail(code_agent, offered)
    await office.settled()
    assert await escalations(me) == []
    assert (await me("inbox"))["items"] == []
    redriven = (await inbox_monitor("redrive", offered["id"]))["handoff"]
    successor = (await me("get_handoff", redriven["successor"]))["handoff"]
    assert (successor["escalation"], successor["team_steps"]) == ([], []), "it stays opted out"


async def test_a_step_of_the_offer_takes_the_place_of_the_teams_of_its_kind(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    own = [{"when": "dead", "after": "0s", "notify": "boss"}]
    offered = await offer(inbox_monitor, escalation=own)
    assert (offered["escalation"], offered["team_steps"]) == (own, DEFAULT[:2])
    await fail(code_agent, offered)
    await office.settled()
    assert await escalations(me) == [(offered["id"], "dead", "boss")]


async def test_legs_and_redriven_dead_letters_have_them_too(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me, support = await office.person(), await office.join("support_agent")
    offered = await offer(inbox_monitor, then=[{"to": "support_agent"}])
    await code_agent("ack", offered["id"])
    await code_agent("complete", offered["id"], attempt=1, result="found")
    [delivery] = (await support("take"))["deliveries"]
    leg = delivery["handoff"]
    assert leg["team_steps"] == DEFAULT
    await support("ack", leg["id"], attempt=1)
    await support("fail", leg["id"], attempt=1, reason="no access")
    redriven = (await inbox_monitor("redrive", leg["id"]))["handoff"]
    [delivery] = (await support("take"))["deliveries"]
    assert delivery["handoff"]["id"] == redriven["successor"]
    assert delivery["handoff"]["team_steps"] == DEFAULT
    await support("ack", redriven["successor"], attempt=1)
    await support("fail", redriven["successor"], attempt=1, reason="no access")
    await office.settled()
    assert [(i, when) for i, when, _ in await escalations(me)] == [
        (leg["id"], "dead"),
        (redriven["successor"], "dead"),
    ]


async def test_what_a_step_redrove_has_the_teams_step_in_the_place_of_that_one(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me, second = await office.person(), await office.join("second_coder")
    step = {"when": "dead", "reassign": {"to": "second_coder"}}
    await fail(code_agent, await offer(inbox_monitor, escalation=[step]))
    [delivery] = (await second("take"))["deliveries"]
    successor = delivery["handoff"]
    assert (successor["escalation"], successor["team_steps"]) == (None, DEFAULT)
    await second("ack", successor["id"], attempt=1)
    await second("fail", successor["id"], attempt=1, reason="no access")
    await office.settled()
    assert (await escalations(me))[-1] == (successor["id"], "dead", "me")


async def test_a_group_and_its_members_have_them_and_opt_out_together(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    offers: dict[str, dict[str, Any]] = {"x": {"to": "code_agent", "title": "x"}}
    group = (await inbox_monitor("offer_group", offers=offers))["group"]
    member = group["members"]["x"]["id"]
    await fail(code_agent, {"id": member})
    await office.settled()
    assert [i for i, _, _ in await escalations(me)] == [member, group["id"]]
    [item] = (await me("inbox"))["items"]
    assert item["handoff_id"] == group["id"], "the group took what there was of its member"

    offers["x"] |= {"escalation": []}
    quiet = (await inbox_monitor("offer_group", offers=offers))["group"]
    assert quiet["handoff"]["team_steps"] == []
    await fail(code_agent, {"id": quiet["members"]["x"]["id"]})
    await office.settled()
    assert len(await escalations(me)) == 2


async def test_what_a_trigger_hands_off_has_them_unless_its_rule_opts_out(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    rule: dict[str, Any] = {"on": "email.received", "offer": {"to": "code_agent", "title": "bug"}}
    await me("put_trigger", named="loud", **rule)
    rule["offer"] = {**rule["offer"], "escalation": []}
    await me("put_trigger", named="quiet", **rule)
    fired = (await inbox_monitor("emit", type="email.received", event_id="msg_1"))["fired"]
    for made in fired:
        await fail(code_agent, {"id": made["handoff_id"]})
    await office.settled()
    ids = {made["rule"]: made["handoff_id"] for made in fired}
    assert await escalations(me) == [(ids["loud"], "dead", "me")]


async def test_the_teams_steps_are_its_policy_and_hold_for_what_is_offered_from_then_on(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    assert (await inbox_monitor("get_policy"))["escalation"] == DEFAULT
    before = await offer(inbox_monitor)
    steps = [{"when": "dead", "after": "0s", "notify": "boss"}]
    assert (await me("set_policy", escalation=steps))["escalation"] == steps
    after = await offer(inbox_monitor, title="later")
    assert after["team_steps"] == steps
    await office.restart()
    me, inbox_monitor = await office.person(), await office.join("inbox_monitor")
    code_agent = await office.join("code_agent")
    assert (await me("get_policy"))["escalation"] == steps
    assert (await me("get_handoff", before["id"]))["handoff"]["team_steps"] == DEFAULT
    await fail(code_agent, before)
    await fail(code_agent, after)
    await office.settled()
    assert await escalations(me) == [
        (before["id"], "dead", "me"),
        (after["id"], "dead", "boss"),
    ]
    assert (await me("set_policy", escalation=[]))["escalation"] == []
    assert (await offer(inbox_monitor, title="last"))["team_steps"] == []
    assert (await me("set_policy"))["escalation"] == DEFAULT, "as for the other rules"


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ({"when": "never"}, "escalation[0].when"),
        ({"when": "dead", "after": "soon"}, "escalation[0].after"),
        ({"when": "dead", "notify": "no/name"}, "escalation[0].notify"),
        ({"when": "dead", "reassign": {"to": "x"}}, "escalation[0].reassign"),
    ],
)
async def test_a_team_step_that_makes_no_sense_is_refused_with_its_place(
    office: Any, step: dict[str, Any], path: str
) -> None:
    me = await office.person()
    with pytest.raises(InvalidRequestError) as refused:
        await me("set_policy", escalation=[step])
    assert [problem.path for problem in refused.value.errors] == [path]


async def test_only_an_operator_sets_the_teams_steps(inbox_monitor: Any) -> None:
    with pytest.raises(ForbiddenError):
        await inbox_monitor("set_policy", escalation=[])

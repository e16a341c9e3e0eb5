"""Notices: what the relay tells a person by itself. They say what happened, why, since when and which
commands answer it, are gathered by cause, and can be dismissed; the log keeps every one.
"""

from typing import Any
from unittest import mock

import pytest

from nodrop.model import mail
from nodrop.model.errors import ForbiddenError, InvalidRequestError, NotFoundError
from nodrop.protocol.views import ItemView
from nodrop.relay import notices

MINUTE = 60_000
HOUR = 60 * MINUTE


async def offer(agent: Any, **fields: Any) -> dict[str, Any]:
    said = {"to": "code_agent", "title": "bug", "payload": {"n": 1}, **fields}
    return (await agent("offer", **said))["handoff"]


async def dead_letter(requester: Any, worker: Any, **fields: Any) -> dict[str, Any]:
    offered = await offer(requester, **fields)
    await worker("ack", offered["id"])
    await worker("fail", offered["id"], attempt=1, reason="no access")
    return offered


async def waiting(agent: Any) -> list[tuple[str, str]]:
    items = (await agent("inbox"))["items"]
    return [(item["kind"], item["handoff_id"]) for item in items]


async def entries(me: Any, kind: str) -> list[dict[str, Any]]:
    return (await me("log", type=f"handoff.{kind}.v1", limit=500))["entries"]


async def until(me: Any, kind: str, count: int) -> None:
    """Wait until the log has so many entries of a kind."""
    after = 0
    while len(await entries(me, kind)) < count:
        after = (await me("log", after=after, wait="60s"))["after"]


async def test_a_dismissed_notice_leaves_the_inbox_and_stays_in_the_log(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    dead = await dead_letter(inbox_monitor, code_agent)
    await office.settled()
    assert await waiting(me) == [("notice", dead["id"])]
    shown = (await me("dismiss", dead["id"]))["handoff"]
    assert (shown["id"], shown["state"], shown["settled_at"]) == (dead["id"], "failed", None)
    assert await waiting(me) == []
    assert [item["open"] for item in (await me("inbox", all=True))["items"]] == [False]
    assert len(await entries(me, "escalated")) == 1
    [entry] = await entries(me, "dismissed")
    assert (entry["actor"], entry["data"]) == ("me", {"reader": "me"})
    letters = (await me("dead_letters"))["handoffs"]
    assert [letter["id"] for letter in letters] == [dead["id"]], "it still waits for a decision"
    assert await waiting(inbox_monitor) == [("outcome", dead["id"])], "what others wait for stays"


async def test_a_dismissal_without_effect_is_noticed(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    """The control of the story before."""
    me = await office.person()
    dead = await dead_letter(inbox_monitor, code_agent)
    await office.settled()
    with mock.patch.object(mail, "_dismissed", return_value=False):
        await me("dismiss", dead["id"])
        assert await waiting(me) == [("notice", dead["id"])]


async def test_a_later_escalation_of_the_same_handoff_is_shown_again(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    offered = await offer(inbox_monitor)
    office.clock.advance(61 * MINUTE)
    assert (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]
    assert await waiting(me) == [("notice", offered["id"])]
    await me("dismiss", offered["id"])
    assert await waiting(me) == []
    await code_agent("ack", offered["id"])
    await code_agent("fail", offered["id"], attempt=1, reason="no access")
    await office.settled()
    assert await waiting(me) == [("notice", offered["id"])]
    await me("dismiss", offered["id"])
    assert await waiting(me) == []
    assert len(await entries(me, "dismissed")) == 2


async def test_a_repeat_writes_nothing_and_neither_does_a_dismissal_of_nothing_new(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    dead = await dead_letter(inbox_monitor, code_agent)
    await office.settled()
    first = await me("dismiss", dead["id"], command_id="d1")
    assert await me("dismiss", dead["id"], command_id="d1") == first
    await me("dismiss", dead["id"], command_id="d2")
    await me("dismiss", dead["id"])
    assert len(await entries(me, "dismissed")) == 1


async def test_an_operator_dismisses_for_another_and_nobody_else_does(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me, boss = await office.person(), await office.join("boss")
    step = {"when": "dead", "after": "0s", "notify": "boss"}
    dead = await dead_letter(inbox_monitor, code_agent, escalation=[step])
    await office.settled()
    for other in (inbox_monitor, code_agent):
        with pytest.raises(ForbiddenError):
            await other("dismiss", dead["id"], inbox="boss")
    assert await waiting(boss) == [("notice", dead["id"])]
    await me("dismiss", dead["id"], inbox="boss")
    assert await waiting(boss) == []
    [entry] = await entries(me, "dismissed")
    assert (entry["actor"], entry["data"]) == ("me", {"reader": "boss"})


async def test_who_was_told_nothing_has_nothing_to_dismiss(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me, stranger = await office.person(), await office.join("stranger")
    step = {"when": "dead", "after": "0s", "notify": "boss"}
    dead = await dead_letter(inbox_monitor, code_agent, escalation=[step])
    await office.settled()
    for agent, inbox in ((stranger, None), (me, "stranger"), (me, None)):
        with pytest.raises(NotFoundError):
            await agent("dismiss", dead["id"], **({"inbox": inbox} if inbox else {}))
    with pytest.raises(InvalidRequestError) as refused:
        await me("dismiss", dead["id"], inbox="no/name")
    assert [problem.path for problem in refused.value.errors] == ["inbox"]
    assert await entries(me, "dismissed") == []


async def test_a_reminder_of_what_a_worker_owes_is_dismissed_until_the_next_one(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = await offer(inbox_monitor, escalation=[])
    office.clock.advance(16 * MINUTE)
    assert (await inbox_monitor("log", type="handoff.nudged.v1", wait="60s"))["entries"]
    assert await waiting(code_agent) == [("handoff", offered["id"]), ("notice", offered["id"])]
    await code_agent("dismiss", offered["id"])
    assert await waiting(code_agent) == [("handoff", offered["id"])], "the work itself stays"
    office.clock.advance(31 * MINUTE)
    await until(inbox_monitor, "nudged", 2)
    assert ("notice", offered["id"]) in await waiting(code_agent)


async def test_what_was_dismissed_stays_so_across_a_restart(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    dead = await dead_letter(inbox_monitor, code_agent)
    await office.settled()
    await me("dismiss", dead["id"])
    await office.restart()
    me = await office.person()
    assert await waiting(me) == []


# --- in words -----------------------------------------------------------------------------------


async def notice(agent: Any) -> dict[str, Any]:
    [item] = [item for item in (await agent("inbox"))["items"] if item["kind"] == "notice"]
    return item["notice"]


async def test_a_dead_letter_says_what_happened_why_since_when_and_what_answers_it(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    office.clock.advance(MINUTE)
    dead = await dead_letter(inbox_monitor, code_agent, idempotency_key="msg 1; reboot")
    await office.settled()
    told = await notice(me)
    ref = "inbox_monitor/msg 1; reboot"
    quoted = "'inbox_monitor/msg 1; reboot'"
    assert told == {
        "about": "failed",
        "agent": "code_agent",
        "code": None,
        "what": "it failed with code_agent",
        "reason": "no access",
        "why": 'the team\'s step "dead"',
        "since": "2026-01-01T00:01:00.000Z",
        "commands": [
            f"nodrop dlq redrive {quoted}",
            f"nodrop track {quoted}",
            f"nodrop dismiss {quoted}",
        ],
        "count": 1,
        "handoffs": [{"id": dead["id"], "ref": ref, "title": "bug"}],
    }


async def test_a_step_of_the_offer_is_called_the_requesters_own(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me, boss = await office.person(), await office.join("boss")
    steps = [
        {"when": "unacknowledged", "after": "1h", "notify": "inbox_monitor"},
        {"when": "unacknowledged", "after": "1h", "notify": "boss"},
        {"when": "blocked", "after": "30m", "notify": "boss"},
    ]
    offered = await offer(inbox_monitor, escalation=steps)
    office.clock.advance(61 * MINUTE)
    await until(me, "escalated", 2)
    mine, other = await notice(inbox_monitor), await notice(boss)
    assert mine["what"] == other["what"] == "code_agent has not acknowledged it"
    assert mine["since"] == other["since"] == "2026-01-01T00:00:00.000Z"
    assert mine["why"] == 'your step "unacknowledged after 1h"'
    assert other["why"] == 'inbox_monitor\'s step "unacknowledged after 1h"'
    assert other["commands"] == [
        f"nodrop reassign {offered['id']} --to NAME",
        f"nodrop track {offered['id']}",
        f"nodrop dismiss {offered['id']}",
    ]
    await code_agent("ack", offered["id"])
    await code_agent("block", offered["id"], attempt=1, question="Which version?", to="boss")
    office.clock.advance(31 * MINUTE)
    await until(me, "escalated", 3)
    asked = await notice(boss)
    assert asked["what"] == "you have not answered a question about it"
    assert (asked["why"], asked["since"]) == (
        'inbox_monitor\'s step "blocked after 30m"',
        "2026-01-01T01:01:00.000Z",
    )
    assert asked["commands"][0] == f"nodrop answer {offered['id']} TEXT"


async def test_the_reason_of_an_erased_dead_letter_is_told_no_more(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    dead = await dead_letter(inbox_monitor, code_agent)
    await office.settled()
    assert (await notice(me))["reason"] == "no access"
    await me("discard", dead["id"])
    office.clock.advance(1)
    await me("erase", dead["id"])
    [item] = [i for i in (await me("inbox", all=True))["items"] if i["kind"] == "notice"]
    assert (item["open"], item["notice"]["reason"]) == (False, None)
    assert item["notice"]["what"] == "it failed with code_agent"


# --- gathered -----------------------------------------------------------------------------------


async def ten_dead(office: Any, requester: Any, worker: Any) -> list[str]:
    ids: list[str] = []
    for n in range(10):
        office.clock.advance(1_000)
        ids.append((await dead_letter(requester, worker, title=f"bug {n}"))["id"])
    await office.settled()
    return ids


async def test_ten_dead_letters_of_one_agent_are_one_notice_with_their_count(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    ids = await ten_dead(office, inbox_monitor, code_agent)
    [item] = (await me("inbox"))["items"]
    told = item["notice"]
    assert (told["what"], told["count"]) == ("10 handoffs failed with code_agent", 10)
    assert told["since"] == "2026-01-01T00:00:01.000Z", "the oldest"
    assert [(h["id"], h["title"]) for h in told["handoffs"]] == [
        (handoff, f"bug {n}") for n, handoff in enumerate(ids)
    ]
    assert told["commands"] == ["nodrop dlq list", f"nodrop dismiss {ids[0]} --alike"]
    assert item["summary"] == (
        '10 handoffs failed with code_agent, "no access", since 2026-01-01T00:00:01.000Z'
        ' (the team\'s step "dead")'
    )
    assert (item["handoff_id"], item["open"]) == (ids[-1], True)
    each = (await me("inbox", each=True))["items"]
    assert [one["handoff_id"] for one in each] == ids
    assert {one["notice"]["count"] for one in each} == {1}
    assert item["seq"] == each[-1]["seq"], "a cursor behind it is behind all of them"
    assert len((await me("inbox", all=True))["items"]) == 10
    assert [entry["handoff_id"] for entry in await entries(me, "escalated")] == ids


def one_by_one(items: list[ItemView], _: str) -> tuple[ItemView, ...]:
    return tuple(items)


async def test_notices_that_are_not_gathered_are_noticed(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    """The control of the story before."""
    me = await office.person()
    await ten_dead(office, inbox_monitor, code_agent)
    with mock.patch.object(notices, "gathered", new=one_by_one):
        assert len((await me("inbox"))["items"]) == 10


async def test_one_that_is_dismissed_leaves_the_others_gathered(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    ids = await ten_dead(office, inbox_monitor, code_agent)
    for handoff in ids[:8]:
        await me("dismiss", handoff)
    told = await notice(me)
    assert (told["count"], told["what"]) == (2, "2 handoffs failed with code_agent")
    await me("dismiss", ids[8])
    assert (await notice(me))["what"] == "it failed with code_agent"


async def test_another_agent_and_another_cause_are_notices_of_their_own(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me, second = await office.person(), await office.join("second_coder")
    own = [{"when": "dead", "after": "0s", "notify": "me"}]
    for _ in range(2):
        await dead_letter(inbox_monitor, code_agent)
        await dead_letter(inbox_monitor, second, to="second_coder")
        await dead_letter(inbox_monitor, code_agent, escalation=own)
        rejected = await offer(inbox_monitor)
        await code_agent("reject", rejected["id"], reason="no time")
        exhausted = await offer(inbox_monitor)
        await code_agent("ack", exhausted["id"])
        await code_agent("fail", exhausted["id"], attempt=1, reason="no disk", code="no_disk")
    question = await offer(inbox_monitor)
    await code_agent("ack", question["id"])
    await code_agent("block", question["id"], attempt=1, question="Which version?", to="me")
    await office.settled()
    *told, question = (await me("inbox"))["items"]
    assert (question["kind"], question["notice"]) == ("question", None)
    shown = [(item["notice"]["what"], item["notice"]["why"]) for item in told]
    teams = 'the team\'s step "dead"'
    assert shown == [
        ("2 handoffs failed with code_agent", teams),
        ("2 handoffs failed with second_coder", teams),
        ("2 handoffs failed with code_agent", 'inbox_monitor\'s step "dead"'),
        ("code_agent rejected 2 handoffs", teams),
        ("2 handoffs failed with code_agent: no disk", teams),
    ]


async def test_ten_that_nobody_acknowledges_are_one_notice_to_each_who_is_told(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    for _ in range(10):
        await offer(inbox_monitor)
    office.clock.advance(61 * MINUTE)
    await until(me, "escalated", 10)
    told = await notice(me)
    assert told["what"] == "code_agent has not acknowledged 10 handoffs"
    assert told["why"] == 'the team\'s step "unacknowledged after 1h"'
    assert told["commands"][0] == "nodrop inbox --each"
    assert (await notice(code_agent))["what"] == "you have not acknowledged 10 handoffs"

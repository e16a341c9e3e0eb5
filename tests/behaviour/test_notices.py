"""Notices: what the relay tells a person by itself. They can be dismissed, and the log keeps them."""

from typing import Any
from unittest import mock

import pytest

from nodrop.model import mail
from nodrop.model.errors import ForbiddenError, InvalidRequestError, NotFoundError

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
    after = (await inbox_monitor("log", limit=500))["after"]
    while len(await entries(inbox_monitor, "nudged")) < 2:
        after = (await inbox_monitor("log", after=after, wait="60s"))["after"]
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

"""Talk: messages and statuses. In the log, in the inboxes of whom they concern, and no contract."""

from typing import Any

import pytest

from nodrop.model.errors import IdempotencyConflictError, InvalidRequestError, NotFoundError

DAY = 24 * 3_600_000


async def said_to(agent: Any) -> list[tuple[str, str, str]]:
    items = (await agent("inbox"))["items"]
    return [(i["kind"], i["from"], i["summary"]) for i in items if i["kind"] != "handoff"]


async def test_a_message_is_in_the_inbox_of_whom_it_is_for_and_owes_nobody_anything(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    said = await inbox_monitor("say", text="Are you there?", to="code_agent")
    assert said["to"] == ["code_agent"]
    assert await said_to(code_agent) == [("message", "inbox_monitor", "Are you there?")]
    assert (await code_agent("list_handoffs"))["handoffs"] == []
    office.clock.advance(2 * DAY)
    await office.settled()
    assert await said_to(code_agent) == []
    [kept] = (await code_agent("messages"))["messages"]
    assert kept["text"] == "Are you there?"


async def test_an_answer_in_a_thread_goes_to_everybody_who_is_in_it(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    said = await inbox_monitor("say", text="Who knows css?", to="code_agent")
    await inbox_monitor("say", text="You?", to="support_agent", thread=said["thread"])
    answer = await support("say", text="I do", thread=said["thread"])
    assert answer["to"] == ["code_agent", "inbox_monitor"]
    thread = (await code_agent("messages", thread=said["thread"]))["messages"]
    assert [(m["from"], m["text"], m["newer"]) for m in thread] == [
        ("inbox_monitor", "Who knows css?", 1), ("support_agent", "I do", 0),
    ]  # fmt: skip


async def test_a_waiting_inbox_is_woken_by_a_message(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    waiting = office.start(code_agent("inbox", wait="60s"))
    await office.settled()
    await inbox_monitor("say", text="wake up", to="code_agent")
    assert (await waiting)["items"][0]["summary"] == "wake up"


async def test_the_words_of_a_message_are_for_its_parties_and_that_it_was_said_is_for_all(
    office: Any, inbox_monitor: Any
) -> None:
    other, me = await office.join("support_agent"), await office.person()
    await inbox_monitor("say", text="between us", to="code_agent")
    for reader, body in ((other, None), (me, {"text": "between us"})):
        [entry] = (await reader("log", type="message.said.v1"))["entries"]
        assert (entry["actor"], entry["body"]) == ("inbox_monitor", body)
    assert (await other("messages"))["messages"] == []


async def test_a_status_reaches_requester_chain_watchers_and_subscribers(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    names = ("support_agent", "watcher", "topical", "fan", "stranger")
    agents = {name: await office.join(name) for name in names}
    await agents["topical"]("subscribe_topic", named="mobile")
    await agents["fan"]("subscribe_topic", named="code_agent")
    offered = (
        await inbox_monitor(
            "offer", to="code_agent", title="bug", watchers=["watcher"],
            then=[{"to": "support_agent"}],
        )
    )["handoff"]  # fmt: skip
    told = await code_agent(
        "tell_status", status="stuck", text="no device", about=offered["id"], topic="mobile"
    )
    expected = {"inbox_monitor", "support_agent", "watcher", "topical", "fan"}
    assert set(told["to"]) == expected
    for name in ("support_agent", "watcher", "topical", "fan"):
        assert ("notice", "code_agent", "stuck: no device") in await said_to(agents[name])
    assert await said_to(agents["stranger"]) == []
    [entry] = (await agents["stranger"]("log", type="status.told.v1"))["entries"]
    assert entry["body"]["status"] == "stuck"
    assert entry["correlation_id"] == offered["correlation_id"]
    assert (await inbox_monitor("get_handoff", offered["id"]))["handoff"]["state"] == "offered"


async def test_an_old_status_says_that_it_is_old(office: Any, code_agent: Any) -> None:
    first = await code_agent("tell_status", status="working", topic="mobile")
    office.clock.advance(60_000)
    await code_agent("tell_status", status="done", topic="mobile", supersedes=first["seq"])
    await code_agent("tell_status", status="idle", topic="other")
    found = (await code_agent("messages"))["messages"]
    assert [(m["status"], m["newer"], m["superseded_by"] is not None) for m in found] == [
        ("working", 1, True), ("done", 0, False), ("idle", 0, False),
    ]  # fmt: skip


async def test_only_ones_own_words_can_be_taken_back(inbox_monitor: Any, code_agent: Any) -> None:
    said = await inbox_monitor("say", text="deploy at noon", to="code_agent")
    offered = await code_agent("offer", to="me", title="no message")
    entries = (await code_agent("log"))["entries"]
    [other] = [e["seq"] for e in entries if e["handoff_id"] == offered["handoff"]["id"]]
    for seq in (said["seq"], other, 0, -1, 9_999, 2**53 - 1):
        for operation, words in (
            ("say", {"text": "x", "to": "me"}),
            ("tell_status", {"status": "x"}),
        ):
            with pytest.raises(InvalidRequestError) as refused:
                await code_agent(operation, **words, supersedes=seq)
            assert refused.value.errors[0].path == "supersedes"
    again = await inbox_monitor("say", text="at one", to="code_agent", supersedes=said["seq"])
    heard = (await code_agent("messages"))["messages"]
    assert [(m["text"], m["superseded_by"]) for m in heard] == [
        ("deploy at noon", again["seq"]), ("at one", None),
    ]  # fmt: skip


async def test_what_was_written_long_ago_says_when(office: Any, code_agent: Any) -> None:
    composed = "2026-01-01T00:00:00.000Z"
    office.clock.advance(DAY)
    await code_agent("say", text="late", to="me", composed_at=composed)
    [message] = (await code_agent("messages"))["messages"]
    assert message["composed_at"] == composed
    assert message["at"] > composed


async def test_a_subscription_outlives_a_restart_and_ends_when_told_to(office: Any) -> None:
    fan = await office.join("fan")
    joined = await fan("subscribe_topic", named="mobile")
    assert joined == {"topic": "mobile", "subscribed": True}, "and nothing of the others"
    assert (await fan("topics"))["topics"] == ["mobile"]
    await office.restart()
    fan, teller = await office.join("fan"), await office.join("teller")
    assert (await teller("tell_status", status="x", topic="mobile"))["to"] == ["fan"]
    left = await fan("unsubscribe_topic", named="mobile")
    assert left == {"topic": "mobile", "subscribed": False}
    assert (await fan("topics"))["topics"] == []
    assert (await teller("tell_status", status="y", topic="mobile"))["to"] == []
    with pytest.raises(NotFoundError):
        await fan("unsubscribe_topic", named="mobile")


async def test_saying_it_twice_under_one_id_says_it_once(inbox_monitor: Any) -> None:
    fields = {"text": "once", "to": "code_agent", "command_id": "c1"}
    first = await inbox_monitor("say", **fields)
    assert (await inbox_monitor("say", **fields))["seq"] == first["seq"]
    assert len((await inbox_monitor("messages"))["messages"]) == 1
    with pytest.raises(IdempotencyConflictError):
        await inbox_monitor("tell_status", status="x", command_id="c1")


@pytest.mark.parametrize(
    ("operation", "fields", "path"),
    [
        ("say", {"text": "  ", "to": "b"}, "text"),
        ("say", {"text": "x"}, "to"),
        ("say", {"text": "x", "thread": "nobody-there"}, "to"),
        ("say", {"text": "x", "to": "not an agent"}, "to"),
        ("say", {"text": "x", "to": "b", "composed_at": "yesterday"}, "composed_at"),
        ("tell_status", {"status": ""}, "status"),
        ("tell_status", {"status": "x", "topic": "\n"}, "topic"),
    ],
)
async def test_what_cannot_be_said_is_refused_with_its_place(
    inbox_monitor: Any, operation: str, fields: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await inbox_monitor(operation, **fields)
    assert [problem.path for problem in refused.value.errors] == [path]


async def test_nobody_talks_about_what_is_not_theirs_to_see(
    office: Any, inbox_monitor: Any
) -> None:
    stranger = await office.join("stranger")
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    with pytest.raises(NotFoundError):
        await stranger("say", text="what is it?", about=offered["id"])

"""A page of messages: its cost grows with the page, not with its square."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol.coordination.talk_requests import ListMessages, TellStatus
from nodrop.relay.coordination import talk
from nodrop.relay.relay import Caller, Relay

BOT = Caller(team="default", agent="bot")


async def test_each_message_of_a_page_is_read_a_few_times_however_many_there_are(
    started: Callable[[Store, Limits], Awaitable[Relay]], monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = await started(MemoryStore(), DEFAULT)
    await relay.ensure_team("default")
    count = 60
    for number in range(count):
        topic = "even" if number % 2 == 0 else "odd"
        await relay.call(BOT, "tell_status", TellStatus(status=f"at {number}", topic=topic))
    reads = 0
    read = talk.read

    def counted(entry: Any) -> Any:
        nonlocal reads
        reads += 1
        return read(entry)

    monkeypatch.setattr(talk, "read", counted)
    answer: Any = (await relay.call(BOT, "messages", ListMessages(limit=count))).answer
    assert [message.newer for message in answer.messages] == [
        (count - 1 - number) // 2 for number in range(count)
    ]
    assert reads <= 6 * count

"""Words and data can be erased; that it happened stays in the log, and the chain holds."""

from typing import Any

import msgspec
import pytest

from nodrop.model.errors import ForbiddenError, WrongStateError
from nodrop.protocol import canonical
from nodrop.protocol.entries import Entry, hash_of
from nodrop.protocol.times import parse_time


async def settled(inbox_monitor: Any, code_agent: Any) -> dict[str, Any]:
    fields = {"to": "code_agent", "title": "words", "payload": {"secret": 1}}
    offered = (await inbox_monitor("offer", **fields))["handoff"]
    await code_agent("ack", offered["id"], status="more words")
    await code_agent("complete", offered["id"], attempt=1, result={"secret": 2})
    return (await inbox_monitor("settle", offered["id"]))["handoff"]


async def test_what_is_erased_is_gone_for_everybody_and_the_chain_holds(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    handoff = await settled(inbox_monitor, code_agent)
    assert handoff["payload"] == {"secret": 1}
    erased = (await inbox_monitor("erase", handoff["id"]))["handoff"]
    assert (erased["erased"], erased["payload"], erased["outcome"].get("result")) == (
        True,
        None,
        None,
    )
    await office.restart()
    for name, role in (("inbox_monitor", "agent"), ("code_agent", "agent"), ("me", "operator")):
        reader = await office.join(name, role=role)
        shown = (await reader("get_handoff", handoff["id"]))["handoff"]
        assert (shown["erased"], shown["payload"]) == (True, None)
        entries = (await reader("log", handoff_id=handoff["id"]))["entries"]
        assert [e["body"] for e in entries] == [None] * len(entries)
        assert entries[-1]["type"] == "handoff.erased.v1"
        assert any(e["body_digest"] for e in entries)
        for e in (await reader("log", limit=500))["entries"]:
            kept: dict[str, Any] = {
                k: v for k, v in e.items() if not k.startswith("body") or k == "body_digest"
            }
            kept |= {"team": "default", "at": parse_time(e["at"])}
            kept["data"] = msgspec.Raw(canonical.dumps(e["data"]))
            assert hash_of(Entry(**kept)) == e["hash"]


async def test_what_is_open_or_undecided_or_inherited_is_not_erased(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", payload=1))["handoff"]
    with pytest.raises(WrongStateError) as refused:
        await inbox_monitor("erase", offered["id"])
    assert "cancel" in refused.value.next_step
    await code_agent("reject", offered["id"])
    await inbox_monitor("settle", offered["id"])
    with pytest.raises(WrongStateError):
        await inbox_monitor("erase", offered["id"])
    redriven = (await inbox_monitor("redrive", offered["id"]))["handoff"]
    with pytest.raises(WrongStateError) as refused:
        await inbox_monitor("erase", offered["id"])
    assert redriven["successor"] in refused.value.detail
    await inbox_monitor("cancel", redriven["successor"])
    assert (await inbox_monitor("erase", offered["id"]))["handoff"]["erased"]
    assert await office.person()


async def test_only_the_requester_and_operators_erase(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    handoff = await settled(inbox_monitor, code_agent)
    with pytest.raises(ForbiddenError):
        await code_agent("erase", handoff["id"])
    assert (await (await office.person())("erase", handoff["id"]))["handoff"]["erased"]

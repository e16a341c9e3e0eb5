"""The log: one per team, gap-free, hash-chained, readable by all, bodies for the parties."""

import asyncio
from typing import Any

import pytest

from nodrop.model.errors import InvalidRequestError
from nodrop.model.handoff import Handoff
from nodrop.model.machine import evolve
from nodrop.protocol import events as wire_events
from nodrop.protocol.canonical import dumps
from nodrop.protocol.times import parse_time

DAY = 86_400_000


async def busy(inbox_monitor: Any, code_agent: Any, n: int = 3) -> None:
    for i in range(n):
        offered = (
            await inbox_monitor("offer", to="code_agent", title=f"secret {i}", payload={"i": i})
        )["handoff"]
        await code_agent("ack", offered["id"])
        await code_agent("complete", offered["id"], attempt=1, result=i)
        await inbox_monitor("settle", offered["id"])


async def whole_log(agent: Any) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    while page := (await agent("log", after=entries[-1]["seq"] if entries else 0, limit=7))[
        "entries"
    ]:
        entries.extend(page)
    return entries


async def test_it_has_no_gaps_and_every_entry_points_at_the_one_before(
    inbox_monitor: Any, code_agent: Any
) -> None:
    await busy(inbox_monitor, code_agent)
    entries = await whole_log(inbox_monitor)
    assert [e["seq"] for e in entries] == list(range(1, len(entries) + 1))
    assert [e["prev_hash"] for e in entries[1:]] == [e["hash"] for e in entries[:-1]]


async def test_folding_it_gives_the_handoffs(inbox_monitor: Any, code_agent: Any) -> None:
    await busy(inbox_monitor, code_agent)
    folded: dict[str, Handoff] = {}
    for entry in await whole_log(inbox_monitor):
        if entry["handoff_id"] is None:
            continue
        at = parse_time(entry["at"])
        folded[entry["handoff_id"]] = evolve(
            folded.get(entry["handoff_id"]),
            wire_events.decode(entry["type"], dumps(entry["data"])),
            team="default",
            handoff_id=entry["handoff_id"],
            by=entry["actor"],
            at=at,
        )
    for handoff in folded.values():
        shown = (await inbox_monitor("get_handoff", handoff.id))["handoff"]
        assert shown["state"] == handoff.state
        assert [r["rung"] for r in shown["receipts"]] == [r.rung for r in handoff.receipts]
    assert len(folded) == 3


async def test_the_team_sees_that_it_happened_and_only_the_parties_what_was_said(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    await busy(inbox_monitor, code_agent, n=1)
    bystander = await office.join("bystander")
    theirs = await whole_log(bystander)
    mine = await whole_log(inbox_monitor)
    assert [e["hash"] for e in theirs] == [e["hash"] for e in mine]
    assert "secret 0" in str([e["body"] for e in mine])
    assert "secret 0" not in str(theirs)


async def test_teams_have_logs_of_their_own(office: Any, inbox_monitor: Any) -> None:
    await inbox_monitor("offer", to="x", title="here")
    other = await office.join("inbox_monitor", team="elsewhere")
    entries = await whole_log(other)
    assert entries[0]["seq"] == 1
    assert all(e["handoff_id"] is None for e in entries)


async def test_following_it_waits_and_misses_nothing(office: Any, inbox_monitor: Any) -> None:
    after = (await inbox_monitor("log"))["after"]
    waiting = office.start(inbox_monitor("log", after=after, wait="60s"))
    offered = (await inbox_monitor("offer", to="x", title="now"))["handoff"]
    page = await waiting
    assert [e["handoff_id"] for e in page["entries"]] == [offered["id"]]


async def test_it_is_filtered(inbox_monitor: Any, code_agent: Any) -> None:
    await busy(inbox_monitor, code_agent, n=2)
    ended = (await inbox_monitor("log", type="handoff.completed.v1"))["entries"]
    assert len(ended) == 2
    assert {e["actor"] for e in (await inbox_monitor("log", actor="code_agent"))["entries"]} == {
        "code_agent"
    }
    one = ended[0]["handoff_id"]
    assert {e["handoff_id"] for e in (await inbox_monitor("log", handoff_id=one))["entries"]} == {
        one
    }


async def test_any_agent_may_write_in_the_margin(inbox_monitor: Any) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await inbox_monitor("note", offered["id"], text="Jane called again")
    noted = await inbox_monitor("note_team", text="Lunch at noon")
    entries = await whole_log(inbox_monitor)
    assert entries[noted["seq"] - 1]["body"] == {"text": "Lunch at noon"}
    assert entries[-2]["body"] == {"text": "Jane called again"}


async def test_a_checkpoint_states_the_size_and_head(inbox_monitor: Any) -> None:
    await inbox_monitor("offer", to="x", title="bug")
    entries = await whole_log(inbox_monitor)
    stated = await inbox_monitor("checkpoints")
    assert (stated["size"], stated["head"]) == (entries[-1]["seq"], entries[-1]["hash"])
    assert stated["signature"]


async def test_pruning_cuts_what_is_settled_and_keeps_what_is_open(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    await busy(inbox_monitor, code_agent, n=2)
    still_open = (
        await inbox_monitor("offer", to="code_agent", payload={"keep": "me"}, deadline="90d")
    )["handoff"]
    head = (await whole_log(inbox_monitor))[-1]
    office.clock.advance(30 * DAY)
    await inbox_monitor("note_team", text="a month later")
    assert await office.relay.prune("default", older_than_ms=7 * DAY) > 0

    entries = await whole_log(inbox_monitor)
    assert entries[0]["seq"] > head["seq"]
    assert (await inbox_monitor("list_handoffs"))["handoffs"][-1]["id"] == still_open["id"]
    await office.restart()
    code_agent = await office.join("code_agent")
    [delivery] = (await code_agent("take"))["deliveries"]
    assert delivery["handoff"]["payload"] == {"keep": "me"}
    await code_agent("ack", still_open["id"], attempt=1)
    done = await code_agent("complete", still_open["id"], attempt=1, result=1)
    assert done["handoff"]["state"] == "completed"


async def test_pruning_again_copes_with_notes_on_what_was_settled_before(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    await busy(inbox_monitor, code_agent, n=1)
    [settled] = (await inbox_monitor("list_handoffs"))["handoffs"]
    office.clock.advance(30 * DAY)
    await inbox_monitor("note", settled["id"], text="looked at it again")
    for _ in range(3):
        await office.relay.prune("default", older_than_ms=7 * DAY)
        office.clock.advance(30 * DAY)
        await inbox_monitor("note_team", text="still here")
    assert [e["body"] for e in await whole_log(inbox_monitor)][-1] == {"text": "still here"}


async def test_pruning_keeps_what_a_successor_inherited(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await code_agent("ack", offered["id"])
    await code_agent("step", offered["id"], named="open-ticket", attempt=1, value="T-1")
    await code_agent("fail", offered["id"], attempt=1, reason="no access")
    await inbox_monitor("redrive", offered["id"], deadline="300d")
    office.clock.advance(30 * DAY)
    await inbox_monitor("note_team", text="a month later")
    assert await office.relay.prune("default", older_than_ms=7 * DAY) > 0
    [delivery] = (await code_agent("take"))["deliveries"]
    assert delivery["steps"] == {"open-ticket": "T-1"}


async def test_many_at_once_are_chained_in_one_order(inbox_monitor: Any) -> None:
    await asyncio.gather(*(inbox_monitor("offer", to="x", title=str(n)) for n in range(50)))
    entries = await whole_log(inbox_monitor)
    assert [e["seq"] for e in entries] == list(range(1, len(entries) + 1))
    assert [e["prev_hash"] for e in entries[1:]] == [e["hash"] for e in entries[:-1]]


async def test_nobody_looks_for_more_words_than_anything_holds(inbox_monitor: Any) -> None:
    assert (await inbox_monitor("log", text="x" * 10_000))["entries"] == []
    with pytest.raises(InvalidRequestError) as refused:
        await inbox_monitor("log", text="x" * 10_001)
    assert refused.value.errors[0].path == "text"

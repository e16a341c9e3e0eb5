"""The tools one by one: short and bounded answers, refusals that say what to do next."""

import json
from typing import Any

import pytest

from nodrop.servers.mcp.tools import INSTRUCTIONS, TOOLS

TASK = {"to": "coder", "title": "Fix the login button"}
NOBODY = "01a1e189-d83f-7656-9cf7-697b7d2dea1f"
NAMES = [
    "join", "find_agents", "hand_off", "inbox", "ack", "update", "answer", "track", "wait",
    "say", "read_log", "write_log",
]  # fmt: skip


def named(told: str) -> str:
    return told.split("handoff ", 1)[1][:36]


async def test_the_list_is_short_enough_to_be_in_every_conversation(quiet_office: Any) -> None:
    planner = await quiet_office.join("planner")
    listed = (await planner.client.list_tools()).tools
    assert [tool.name for tool in listed] == NAMES
    text = json.dumps([tool.model_dump(mode="json", exclude_none=True) for tool in listed])
    # A token of such text is four characters, give or take; three is on the safe side.
    assert len(text + INSTRUCTIONS) / 3 < 3_000


def test_every_argument_has_a_type_that_simple_clients_know() -> None:
    for tool in TOOLS.values():
        schema = tool.schema
        assert schema["type"] == "object"
        assert not schema["additionalProperties"]
        assert "$ref" not in json.dumps(schema)
        untyped = {name for name, field in schema["properties"].items() if "type" not in field}
        assert untyped <= {"result", "answer"}, tool.name


async def test_the_inbox_counts_what_it_leaves_out(quiet_office: Any) -> None:
    planner, coder = await quiet_office.join("planner"), await quiet_office.join("coder")
    ids = [named(await planner("hand_off", to="coder", title=f"number {n}")) for n in range(25)]
    first = await coder("inbox")
    assert first.startswith("25 wait for you: 25 handoff")
    assert [handoff for handoff in ids if handoff in first] == ids[:20]
    after = first.split('inbox(after="')[1].split('")')[0]
    rest = await coder("inbox", after=after)
    assert [handoff for handoff in ids if handoff in rest] == ids[20:]
    assert "5 or more are left out" in first
    assert "left out" not in rest


async def test_an_inbox_of_a_log_that_is_gone_is_shown_from_its_beginning(
    quiet_office: Any,
) -> None:
    planner, coder = await quiet_office.join("planner"), await quiet_office.join("coder")
    handoff = named(await planner("hand_off", to="coder", title="one"))
    for tool, more in (("inbox", {}), ("wait", {"seconds": 1})):
        told = await coder(tool, after="10000", **more)
        assert told.startswith("The log has no such entry")
        assert handoff in told


async def test_a_cursor_says_which_entry_it_means_and_not_only_its_number(
    quiet_office: Any,
) -> None:
    """Numbers are used again once an older copy was restored; hashes are not."""
    planner, coder = await quiet_office.join("planner"), await quiet_office.join("coder")
    first, second = [
        named(await planner("hand_off", to="coder", title=f"number {n}")) for n in range(2)
    ]
    told = await coder("inbox")
    seq, there = told.split('after="')[1].split('"')[0].split(":")
    assert len(there) == 16
    assert "nothing waits" in await coder("inbox", after=f"{seq}:{there}")
    another = f"{seq}:{'0' * 16}"
    for tool, more in (("inbox", {}), ("wait", {"seconds": 1})):
        anew = await coder(tool, after=another, **more)
        assert anew.startswith("The log has no such entry")
        assert first in anew
        assert second in anew
    assert (await coder.tried("read_log", after=another))[0].startswith("cursor_unknown")
    assert "as it was told" in (await coder.tried("inbox", after="yesterday"))[0]


async def test_the_open_ones_are_listed_page_by_page(quiet_office: Any) -> None:
    planner = await quiet_office.join("planner")
    ids = [named(await planner("hand_off", to="coder", title=f"number {n}")) for n in range(25)]
    first = await planner("track")
    assert first.startswith("25 open, 25 of them unfinished")
    before = first.split('track(before="')[1].split('"')[0]
    second = await planner("track", before=before)
    shown = [handoff for handoff in ids if handoff in first or handoff in second]
    assert shown == ids
    assert not [handoff for handoff in ids if handoff in first and handoff in second[40:]]


@pytest.mark.parametrize("part", ["payload", "result"])
async def test_a_long_value_is_read_piece_by_piece(quiet_office: Any, part: str) -> None:
    planner, coder = await quiet_office.join("planner"), await quiet_office.join("coder")
    long = {"words": " ".join(str(n) for n in range(6_000))}
    given = long if part == "payload" else {}
    told = await planner("hand_off", **TASK, payload=given)
    handoff = named(told)
    taken = await coder("ack", handoff=handoff)
    await coder("update", handoff=handoff, status="done", result=long)
    text = taken if part == "payload" else await planner("wait", handoff=handoff)
    assert len(text) < 10_000
    assert f'are left out: track(handoff="{handoff}", part="{part}", offset=8000)' in text
    pieces: list[str] = []
    offset = 0
    while True:
        piece = await planner("track", handoff=handoff, part=part, offset=offset)
        pieces.append(piece.split("\n")[2])
        if "reads on" not in piece:
            break
        offset = int(piece.split("offset=")[1].split(" ")[0])
    assert len(pieces) > 2
    assert json.loads("".join(pieces)) == {part: long}


async def test_a_wait_that_runs_out_is_no_failure_and_says_how_to_go_on(quiet_office: Any) -> None:
    planner = await quiet_office.join("planner")
    handoff = named(await planner("hand_off", **TASK))
    told = await planner("wait", handoff=handoff, seconds=0)
    assert "which changed nothing" in told
    assert f'wait(handoff="{handoff}") again' in told
    assert "last receipt: stored" in told
    nothing = await planner("wait", seconds=0)
    assert nothing.startswith("nothing came within 0 s.")


async def test_a_wait_may_be_for_the_acknowledgement_alone(quiet_office: Any) -> None:
    planner, coder = await quiet_office.join("planner"), await quiet_office.join("coder")
    handoff = named(await planner("hand_off", **TASK))
    await coder("ack", handoff=handoff, status="tomorrow")
    told = await planner("wait", handoff=handoff, until="acknowledged")
    assert "accepted" in told
    assert '"status": "tomorrow"' in told


async def test_joining_without_arguments_says_who_one_is(quiet_office: Any) -> None:
    planner, coder = await quiet_office.join("planner"), await quiet_office.join("coder")
    assert (await coder("join")).startswith("you are coder\nnothing waits")
    await planner("hand_off", **TASK)
    assert "1 wait for you: 1 handoff" in await coder("join")


async def test_a_key_makes_two_of_the_same(quiet_office: Any) -> None:
    planner = await quiet_office.join("planner")
    one = await planner("hand_off", **TASK, key="one")
    two = await planner("hand_off", **TASK, key="two")
    assert named(one) != named(two)
    assert named(await planner("hand_off", **TASK, key="one")) == named(one)
    conflict = await planner.refused("hand_off", to="coder", title="Another", key="one")
    assert conflict.startswith("idempotency_conflict")
    assert "owes" in await planner("track", handoff="planner/one")


async def test_two_sessions_of_one_agent_cannot_both_do_the_work(quiet_office: Any) -> None:
    """Each remembers what it was given itself; the one that lost it is fenced."""
    planner, first = await quiet_office.join("planner"), await quiet_office.join("coder")
    second = await quiet_office.session("coder")
    stored = await planner("hand_off", **TASK)
    handoff = named(stored)
    await first("ack", handoff=handoff)
    await second("update", handoff=handoff, status="released")
    await second("ack", handoff=handoff)
    stale = await first.refused("update", handoff=handoff, status="done", result="old")
    assert stale.startswith("stale_attempt")
    await second("update", handoff=handoff, status="done", result="new")
    assert (await quiet_office.handoff(stored))["outcome"]["result"] == "new"


async def test_a_process_of_the_same_name_keeps_what_it_holds(quiet_office: Any) -> None:
    planner, coder = await quiet_office.join("planner"), await quiet_office.join("coder")
    handoff = named(await planner("hand_off", **TASK))
    working = await quiet_office.way(await quiet_office.token("coder"))
    stream = await working.deliveries(process="p", heartbeat_seconds=10, credit=1)
    async for delivery in stream:
        assert delivery["handoff"]["id"] == handoff
        break
    refused = await coder.refused("update", handoff=handoff, status="done")
    assert refused.startswith("attempt_required")
    assert "is connected" in refused
    await working.close()


# --- refusals ------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a wrong name": ("hand_off", {"titles": "T", "title": "T", "to": "b"}, "did you mean 'title'"),
    "nothing said": ("hand_off", {}, "title"),
    "nobody named": ("hand_off", {"title": "T"}, '"path": "to"'),
    "a number for a name": ("hand_off", {"title": "T", "to": 5}, '"path": "to"'),
    "a list for an object": ("hand_off", {"title": "T", "to": "b", "payload": []}, "payload"),
    "no duration": ("hand_off", {"title": "T", "to": "b", "deadline": "soon"}, "deadline"),
    "no priority": ("hand_off", {"title": "T", "to": "b", "priority": "asap"}, "priority"),
    "no agent": ("hand_off", {"title": "T", "to": "a b"}, '"path": "to"'),
    "too deep": ("hand_off", {"title": "T", "to": "b", "payload": None}, "too_large"),
    "too large": ("hand_off", {"title": "T", "to": "b", "payload": {}}, "too_large"),
    "a long title": ("hand_off", {"title": "T" * 20_000, "to": "b"}, "title"),
    "no such status": ("update", {"handoff": NOBODY, "status": "finished"}, "status"),
    "too long a wait": ("wait", {"seconds": 600}, "seconds"),
    "no question": ("update", {"handoff": "ID", "status": "need_help"}, "question"),
    "a text too many": ("write_log", {"text": "x" * 20_000}, "text"),
    "no limit": ("read_log", {"limit": 1_000_000}, "limit"),
    "no part": ("track", {"handoff": "ID", "part": "result"}, "part"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_is_named_and_nothing_is_stored(quiet_office: Any, case: str) -> None:
    planner, coder = await quiet_office.join("planner"), await quiet_office.join("coder")
    handoff = named(await planner("hand_off", **TASK))
    await coder("ack", handoff=handoff)
    tool, arguments, expected = WRONG[case]
    arguments = {name: handoff if value == "ID" else value for name, value in arguments.items()}
    if case == "too deep":
        deep: Any = {}
        for _ in range(100):
            deep = {"a": deep}
        arguments["payload"] = deep
    if case == "too large":
        arguments["payload"] = {"x": "y" * 1_100_000}
    before = await quiet_office.entries()
    told = await coder.refused(tool, **arguments)
    assert expected in told
    assert "\nNext: " in told
    assert await quiet_office.entries() == before


async def test_a_refusal_speaks_of_tools_and_their_arguments(quiet_office: Any) -> None:
    planner = await quiet_office.join("planner")
    nothing = await planner.refused("update", handoff="", status="done")
    assert '{"path": "handoff", ' in nothing
    assert nothing.endswith("\nNext: Correct what is named above, then call the tool again.")
    unknown = await planner.refused("track", handoff=NOBODY)
    assert unknown.endswith("\nNext: Check the id: inbox and track list what you can see.")
    odd = await planner.refused("hand_off", **TASK, key="x" * 5_000)
    assert '{"path": "key", ' in odd


@pytest.mark.parametrize("tool", ["ack", "update", "answer", "track", "wait", "write_log"])
async def test_unknown_and_foreign_handoffs_are_the_same(quiet_office: Any, tool: str) -> None:
    planner, stranger = await quiet_office.join("planner"), await quiet_office.join("stranger")
    foreign = named(await planner("hand_off", **TASK))
    more = {"update": {"status": "done"}, "answer": {"answer": 1}, "write_log": {"text": "hi"}}
    before = await quiet_office.entries()
    told = [
        await stranger.refused(tool, handoff=handoff, **more.get(tool, {}))
        for handoff in (foreign, NOBODY)
    ]
    assert told[0] == told[1]
    assert told[0].startswith("not_found")
    assert await quiet_office.entries() == before

"""A requester against a scripted relay: what it sends, and what it makes of the answers."""

import asyncio
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic
import pytest

import nodrop
from nodrop.client.client import Client
from nodrop.client.endings import HandoffFailed, WaitElapsed
from nodrop.client.handoff import Handoff
from nodrop.client.inbox import Item
from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    PayloadInvalidError,
    Problem,
    StoreFullError,
)

if TYPE_CHECKING:
    from conftest import FakeTransport, Fields


def view(state: str = "offered", **more: Any) -> "Fields":
    return {
        "id": "h1",
        "ref": "inbox_monitor/msg_123",
        "state": state,
        "receipts": [{"rung": "stored", "at": "t", "by": "relay"}],
        "chain": {"origin": "inbox_monitor", "done": [], "here": 0, "next": []},
        "successor": None,
        "settled_at": None,
        "ack": None,
        **more,
    }


def ended(state: str = "completed", **more: Any) -> "Fields":
    said = {"state": state, "at": "t", "by": "code_agent"}
    for name in ("code", "reason", "result"):
        if name in more:
            said[name] = more.pop(name)
    return view(state, outcome=said, **more)


@pytest.fixture
def me(relay: "FakeTransport") -> Client:
    return Client(relay, agent="inbox_monitor")


@pytest.fixture
def handoff(me: Client) -> Handoff:
    return Handoff(view(), me)


def sent(relay: "FakeTransport", n: int = 0) -> "Fields":
    return {name: value for name, value in relay.calls[n][1].items() if name != "command_id"}


# --- handing off ---------------------------------------------------------------------------------


async def test_only_what_is_given_is_sent(relay: "FakeTransport", me: Client) -> None:
    relay.answer("offer", {"handoff": view()})
    handoff = await me.hand_off("code_agent", title="Login button")
    assert sent(relay) == {"to": "code_agent", "title": "Login button", "brief": True}
    assert relay.calls[0][1]["command_id"]
    assert (handoff.id, handoff.ref, handoff.rung) == ("h1", "inbox_monitor/msg_123", "stored")
    assert handoff.receipts[-1].rung == "stored"


async def test_python_spellings_become_those_of_the_wire(
    relay: "FakeTransport", me: Client
) -> None:
    await me.hand_off(
        capability="bug_triage",
        from_="support_agent",
        accept_within=timedelta(minutes=15),
        deadline=datetime(2026, 11, 15, 18, tzinfo=UTC),
        watchers={"support_agent"},
        then=[{"to": "support_agent"}],
    )
    assert sent(relay) == {
        "capability": "bug_triage",
        "from": "support_agent",
        "accept_within": 900.0,
        "deadline": "2026-11-15T18:00:00+00:00",
        "watchers": ["support_agent"],
        "then": [{"to": "support_agent"}],
        "brief": True,
    }


@dataclass
class Report:
    email_id: str


class Struct(msgspec.Struct):
    email_id: str
    at: datetime


class Model(pydantic.BaseModel):
    email_id: str
    at: datetime


NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("payload", "plain"),
    [
        (Report("m"), {"email_id": "m"}),
        (Struct("m", NOON), {"email_id": "m", "at": "2026-11-15T12:00:00Z"}),
        (Model(email_id="m", at=NOON), {"email_id": "m", "at": "2026-11-15T12:00:00Z"}),
        ({"reports": [Report("m"), Model(email_id="n", at=NOON)]},
         {"reports": [{"email_id": "m"}, {"email_id": "n", "at": "2026-11-15T12:00:00Z"}]}),
        ([1, "x", None], [1, "x", None]),
        (0, 0),
    ],
)  # fmt: skip
async def test_a_payload_may_be_anything_with_a_json_form(
    relay: "FakeTransport", me: Client, payload: Any, plain: Any
) -> None:
    await me.hand_off("code_agent", payload=payload)
    assert sent(relay)["payload"] == plain


async def test_a_payload_without_a_json_form_is_refused_here(
    relay: "FakeTransport", me: Client
) -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        await me.hand_off("code_agent", payload={"x": object()})
    assert relay.calls == []


async def test_a_raw_call_gets_a_command_id_only_if_it_is_a_command(
    relay: "FakeTransport", me: Client
) -> None:
    await me.call("cancel", {"reason": "x"}, handoff="h1")
    await me.call("cancel", {"command_id": "mine"}, handoff="h1")
    await me.call("get_handoff", handoff="h1")
    await me.call("heartbeat", {"process": "p"})
    ids = [fields.get("command_id") for _, fields, _ in relay.calls]
    assert ids[0]
    assert ids[1:] == ["mine", None, None]
    with pytest.raises(InvalidRequestError, match="no operation juggle"):
        await me.call("juggle")


# --- waiting -------------------------------------------------------------------------------------


async def test_a_result_is_waited_for_and_settled(relay: "FakeTransport", handoff: Handoff) -> None:
    relay.answer("get_handoff", {"handoff": ended(result={"n": 1})})
    relay.answer("settle", {"handoff": ended(settled_at="t")})
    assert await handoff.result(wait="30s") == {"n": 1}
    await handoff.settle()
    assert relay.said() == ["get_handoff", "settle"]
    waited = sent(relay)
    assert waited.pop("wait") == 20.0
    assert waited == {"until": "finished", "of": "handoff"}
    assert handoff.view["settled_at"] == "t"


async def test_a_long_wait_is_asked_for_again(relay: "FakeTransport", handoff: Handoff) -> None:
    elapsed = {"handoff": view("accepted"), "wait_elapsed": True}
    relay.answer("get_handoff", elapsed, elapsed, {"handoff": ended(result=1)})
    assert await handoff.result() == 1
    assert [sent(relay, n)["wait"] for n in range(3)] == [20.0] * 3


async def test_a_wait_that_runs_out_says_how_far_it_is(
    relay: "FakeTransport", handoff: Handoff
) -> None:
    receipts = [{"rung": "stored", "at": "t", "by": "relay"},
                {"rung": "delivered", "at": "t", "by": "code_agent"}]  # fmt: skip
    answer = {"handoff": view("delivered", receipts=receipts), "wait_elapsed": True}
    relay.answer("get_handoff", answer, answer)
    with pytest.raises(WaitElapsed) as elapsed:
        await handoff.result(wait=0)
    assert (elapsed.value.rung, elapsed.value.handoff) == ("delivered", handoff)
    with pytest.raises(WaitElapsed):
        await handoff.acknowledged(wait=0)
    assert "settle" not in relay.said()


@pytest.mark.parametrize("state", ["failed", "rejected", "expired", "cancelled"])
async def test_an_end_without_a_result_is_raised_and_settled(
    relay: "FakeTransport", me: Client, handoff: Handoff, state: str
) -> None:
    relay.answer("get_handoff", {"handoff": ended(state, code="declined", reason="no time")})
    with pytest.raises(HandoffFailed, match=f"{state}: no time") as failed:
        await handoff.result()
    error = failed.value
    assert (error.code, error.reason, error.outcome.state) == ("declined", "no time", state)
    assert error.handoff is handoff
    await me.flush()
    assert relay.said() == ["get_handoff", "settle"]


async def test_an_outcome_is_returned_whatever_it_is(
    relay: "FakeTransport", handoff: Handoff
) -> None:
    relay.answer("get_handoff", {"handoff": ended("expired")})
    outcome = await handoff.outcome()
    assert (outcome.state, outcome.completed, outcome.result) == ("expired", False, None)


async def test_what_is_settled_is_not_settled_again(
    relay: "FakeTransport", handoff: Handoff
) -> None:
    relay.answer("get_handoff", {"handoff": ended(result=1, settled_at="t")})
    await handoff.result()
    assert relay.said() == ["get_handoff"]


async def test_who_merely_looks_on_settles_nothing(relay: "FakeTransport") -> None:
    relay.answer("get_handoff", {"handoff": ended(result=1)})
    assert await Handoff(view(), Client(relay, agent="support_agent")).result() == 1
    assert relay.said() == ["get_handoff"]


async def test_a_token_without_a_name_finds_out_whether_it_may_settle(
    relay: "FakeTransport",
) -> None:
    relay.answer("get_handoff", {"handoff": ended(result=1)})
    relay.refuse("settle", ForbiddenError())
    me = Client(relay, agent=None)
    assert await Handoff(view(), me).result() == 1
    await me.flush()
    assert relay.said() == ["get_handoff", "settle"]


async def test_nobody_waits_for_an_outcome_to_be_settled_but_who_closes(
    relay: "FakeTransport", me: Client, handoff: Handoff
) -> None:
    relay.answer("get_handoff", {"handoff": ended(result=1)})
    assert await handoff.result() == 1
    assert relay.said() == ["get_handoff"]
    await me.close()
    assert relay.said() == ["get_handoff", "settle"]


async def test_a_result_is_not_lost_because_it_cannot_be_settled_now(
    relay: "FakeTransport", handoff: Handoff
) -> None:
    relay.answer("get_handoff", {"handoff": ended(result=1)})
    relay.refuse("settle", StoreFullError())
    assert await handoff.result() == 1
    await handoff.settle()
    assert handoff.view["settled_at"] is None


async def test_a_redriven_handoff_is_followed(
    relay: "FakeTransport", me: Client, handoff: Handoff
) -> None:
    relay.answer(
        "get_handoff",
        {"handoff": ended("failed", successor="h2")},
        {"handoff": {**view("accepted"), "id": "h2"}},
        {"handoff": {**ended(result=2), "id": "h2"}},
    )
    assert await handoff.result() == 2
    await me.flush()
    assert [about for _, _, about in relay.calls] == ["h1", "h2", "h2", "h2"]
    assert handoff.id == "h2"


async def test_a_chain_is_followed_without_losing_the_first_leg(
    relay: "FakeTransport", me: Client, handoff: Handoff
) -> None:
    leg = {**ended(result="final"), "id": "h3"}
    relay.answer(
        "get_handoff",
        {"handoff": {**view("accepted"), "id": "h2"}, "wait_elapsed": True},
        {"handoff": leg},
    )
    outcome = await handoff.outcome(of="chain")
    assert (outcome.result, outcome.handoff.id, handoff.id) == ("final", "h3", "h1")
    await me.flush()
    assert [about for _, _, about in relay.calls] == ["h1", "h2", "h3"]


async def test_an_acknowledgement_is_returned(relay: "FakeTransport", handoff: Handoff) -> None:
    said = {"status": "Added to queue", "position": 2, "eta": "e", "next_update": "n"}
    relay.answer("get_handoff", {"handoff": view("accepted", ack=said)})
    ack = await handoff.acknowledged(wait="30s")
    assert (ack.position, ack.eta, ack.next_update) == (2, "e", "n")


async def test_an_end_before_the_acknowledgement_is_raised(
    relay: "FakeTransport", handoff: Handoff
) -> None:
    relay.answer("get_handoff", {"handoff": ended("expired")})
    with pytest.raises(HandoffFailed):
        await handoff.acknowledged()


async def test_a_handoff_is_cancelled_and_reassigned(
    relay: "FakeTransport", handoff: Handoff
) -> None:
    relay.answer("reassign", {"handoff": view(to="other_agent")})
    await handoff.reassign("other_agent", reason="busy")
    assert handoff.recipient == "other_agent"
    relay.answer("cancel", {"handoff": view("cancelled")})
    assert (await handoff.cancel("no longer wanted")).state == "cancelled"
    assert sent(relay, 0) == {"to": "other_agent", "reason": "busy"}
    assert sent(relay, 1) == {"reason": "no longer wanted"}


# --- reading -------------------------------------------------------------------------------------


def item(seq: int, kind: str = "question") -> "Fields":
    return {"kind": kind, "seq": seq, "at": "t", "from": "code_agent", "summary": "asks",
            "handoff_id": "h1", "ref": "r", "state": "blocked", "open": True}  # fmt: skip


async def test_an_item_is_answered_by_its_place_in_the_log(
    relay: "FakeTransport", me: Client
) -> None:
    relay.answer("inbox", {"items": [item(17), item(18, "counter")], "after": 18})
    inbox = await me.inbox()
    assert ([i.kind for i in inbox], inbox.after) == (["question", "counter"], 18)
    await inbox[0].answer({"version": "1.2"})
    await inbox[1].agree()
    await inbox[1].decline("too late")
    assert sent(relay, 1) == {"seq": 17, "answer": {"version": "1.2"}}
    assert sent(relay, 2) == {"seq": 18}
    assert sent(relay, 3) == {"seq": 18, "reason": "too late"}
    assert {about for _, _, about in relay.calls[1:]} == {"h1"}


async def test_a_notice_is_dismissed_by_its_item_or_its_handoff(
    relay: "FakeTransport", me: Client, handoff: Handoff
) -> None:
    relay.answer("inbox", {"items": [item(17, "notice")], "after": 17})
    relay.answer("dismiss", {"handoff": view("failed")}, {"handoff": view("failed")})
    [notice] = await me.inbox()
    assert [handoff.state for handoff in await notice.dismiss()] == ["failed"]
    await handoff.dismiss(inbox="boss")
    assert (sent(relay, 1), sent(relay, 2)) == ({}, {"inbox": "boss"})
    assert relay.said() == ["inbox", "dismiss", "dismiss"]
    assert {about for _, _, about in relay.calls[1:]} == {"h1"}


async def test_a_gathered_notice_is_dismissed_for_each_of_its_handoffs(
    relay: "FakeTransport", me: Client
) -> None:
    notice = {"count": 2, "handoffs": [{"id": "h1"}, {"id": "h2"}]}
    relay.answer("inbox", {"items": [{**item(17, "notice"), "notice": notice}], "after": 17})
    relay.answer("dismiss", {"handoff": view("failed")}, {"handoff": view("failed")})
    [gathered] = await me.inbox(each=False)
    assert gathered.notice == notice
    assert len(await gathered.dismiss()) == 2
    assert [about for _, _, about in relay.calls[1:]] == ["h1", "h2"]


async def test_a_page_of_nothing_that_waits_is_passed_over(
    relay: "FakeTransport", me: Client
) -> None:
    relay.answer("inbox", {"items": [], "after": 100}, {"items": [item(117)], "after": 117})
    assert [i.seq for i in await me.inbox()] == [117]
    assert [sent(relay, n)["after"] for n in range(2)] == [0, 100]


async def test_an_empty_inbox_is_empty(relay: "FakeTransport", me: Client) -> None:
    relay.answer("inbox", {"items": [], "after": 7})
    relay.answer("inbox", {"items": [], "after": 7})
    inbox = await me.inbox(after=7)
    assert (list(inbox), inbox.after) == ([], 7)


def entry(seq: int) -> "Fields":
    return {"seq": seq, "at": "t", "type": "handoff.offered.v1", "actor": "a", "later": "field"}


async def test_the_log_is_followed_across_pages(relay: "FakeTransport", me: Client) -> None:
    relay.answer(
        "log",
        {"entries": [entry(1), entry(2)], "after": 2},
        {"entries": [], "after": 9},
        {"entries": [entry(10)], "after": 10},
    )
    seen: list[int] = []
    async for one in me.follow_log(actor="a"):
        seen.append(one.seq)
        if one.seq == 10:
            break
    assert seen == [1, 2, 10]
    assert [sent(relay, n)["after"] for n in range(3)] == [0, 2, 9]
    assert sent(relay)["actor"] == "a"


async def test_a_dead_letter_is_redriven_into_its_successor(
    relay: "FakeTransport", me: Client
) -> None:
    relay.answer("dead_letters", {"handoffs": [ended("failed")], "before": "h1"})
    (letter,) = await me.dead_letters()
    relay.answer("redrive", {"handoff": ended("failed", successor="h2")})
    relay.answer("get_handoff", {"handoff": {**view(), "id": "h2"}})
    successor = await letter.redrive("other_agent", deadline="4h")
    assert successor.id == "h2"
    assert sent(relay, 1) == {"to": "other_agent", "deadline": "4h"}


async def test_a_dead_letter_is_discarded_or_accepted(relay: "FakeTransport", me: Client) -> None:
    relay.answer("dead_letters", {"handoffs": [ended("expired"), ended("failed")]})
    first, second = await me.dead_letters()
    relay.answer("accept", {"handoff": {**ended(), "id": "h2"}})
    assert (await first.accept()).id == "h2"
    relay.answer("discard", {"handoff": ended("failed", decision="discarded")})
    assert (await second.discard("stale")).view["decision"] == "discarded"
    assert relay.said() == ["dead_letters", "accept", "discard"]


async def test_agents_and_chains_are_found(relay: "FakeTransport", me: Client) -> None:
    shown = {"agent_id": "code_agent", "version": 1, "connected": True}
    relay.answer("agents", {"agents": [shown]}, {"agents": []})
    assert [(a.agent_id, a.connected) for a in await me.agents()] == [("code_agent", True)]
    assert await me.find(capability="cooking") == []
    assert sent(relay, 1) == {"capability": "cooking"}
    traced = {"state": "open", "breaks": [], "handoffs": [view(), view("accepted")]}
    relay.answer("trace", traced)
    trace = await me.trace("c1")
    assert ([h.state for h in trace], trace.state) == (["offered", "accepted"], "open")


async def test_a_note_is_about_a_handoff_or_the_team(relay: "FakeTransport", me: Client) -> None:
    relay.answer("note_team", {"seq": 12})
    assert await me.note("all quiet") == 12
    assert await me.note("looks odd", handoff="h1") is None
    assert relay.said() == ["note_team", "note"]


async def test_an_item_leads_to_its_handoff(relay: "FakeTransport", me: Client) -> None:
    relay.answer("get_handoff", {"handoff": view("blocked")})
    assert (await Item(item(17), me).handoff()).state == "blocked"


def test_a_connection_is_used_on_its_own_event_loop_only(relay: "FakeTransport") -> None:
    me = Client(relay, agent="inbox_monitor")
    asyncio.run(me.call("agents"))
    with pytest.raises(InvalidRequestError, match="another event loop") as refused:
        asyncio.run(me.call("agents"))
    assert "connect_sync" in refused.value.next_step


async def test_one_word_is_not_a_row_of_letters(relay: "FakeTransport") -> None:
    me = Client(relay, agent="inbox_monitor")
    relay.answer("agents", {"agents": []})
    await me.hand_off("code_agent", watchers="support_agent")
    await me.find(tags="bugs")
    assert relay.calls[0][1]["watchers"] == ["support_agent"]
    assert relay.calls[1][1]["tags"] == "bugs"
    agent = nodrop.Agent("code_agent", tags="bugs")
    assert agent.manifest()["tags"] == ["bugs"]


async def test_a_handoff_is_not_its_id(relay: "FakeTransport") -> None:
    me = Client(relay, agent="inbox_monitor")
    handoff = await me.hand_off("code_agent")
    with pytest.raises(InvalidRequestError, match="handoff_id: Expected str, got Handoff"):
        await me.handoff(handoff)  # pyright: ignore[reportArgumentType]  # as people do


async def test_a_shape_that_json_cannot_say_is_refused(relay: "FakeTransport") -> None:
    me = Client(relay, agent="inbox_monitor")
    with pytest.raises(InvalidRequestError, match="email_id"):
        await me.find(input={"email_id": str})
    with pytest.raises(InvalidRequestError, match="limit: the number is out of range"):
        await me.find(input={"limit": float("nan")})


async def test_a_traceback_shows_what_is_wrong_and_what_to_do(relay: "FakeTransport") -> None:
    me = Client(relay, agent="inbox_monitor")
    problem = Problem(path="payload", message="null is not an object")
    error = PayloadInvalidError(
        "it does not take this", errors=(problem,), next_step="Send another."
    )
    relay.refuse("offer", error, error)
    for _ in range(2):
        with pytest.raises(PayloadInvalidError):
            await me.hand_off("code_agent")
    assert str(error) == "it does not take this: payload: null is not an object"
    *_, said, advice = traceback.format_exception_only(error)
    assert said.endswith(
        "PayloadInvalidError: it does not take this: payload: null is not an object\n"
    )
    assert advice == "Send another.\n"


def test_the_text_of_an_error_says_nothing_twice() -> None:
    told = Problem(path="payload", message="null is not an object")
    other = Problem(path="deadline", message="it has passed")
    error = PayloadInvalidError("payload: null is not an object", errors=(told, other))
    assert str(error) == "payload: null is not an object: deadline: it has passed"
    assert str(PayloadInvalidError()) == PayloadInvalidError.title

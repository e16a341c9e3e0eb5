"""What a handler can say about its work, and what it gets to hear."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from nodrop.client.client import Client
from nodrop.client.endings import Fail, Parked, WaitElapsed
from nodrop.client.working.lease import Lease
from nodrop.client.working.task import Task
from nodrop.model.errors import AlreadyBlockedError, NodropError, StaleAttemptError, TooLargeError

if TYPE_CHECKING:
    from conftest import FakeTransport, Fields


def view(state: str = "accepted", **more: Any) -> "Fields":
    return {"id": "h1", "ref": "a/1", "state": state, "attempt": 2, **more}


def question(text: str = "Which version?", **more: Any) -> "Fields":
    return {"seq": 17, "kind": "question", "asked": "a", "asked_at": "", "question": text, **more}


async def _never() -> None:
    pytest.fail("a lease that was just confirmed is not asked for")


def a_lease() -> Lease:
    """Confirmed now, and for ever."""
    lease = Lease(heartbeat_seconds=5, now=lambda: 0.0, renew=_never, renewing=asyncio.Lock())
    lease.confirmed(0.0)
    return lease


@pytest.fixture
def task(relay: "FakeTransport") -> Task:
    return make(relay)


def make(relay: "FakeTransport", **left: Any) -> Task:
    delivery = {"handoff": view(payload={"n": 1}), "attempt": 2, "checkpoint": None, **left}
    return Task(delivery, Client(relay, agent="code_agent"), a_lease())


def blocked_then(relay: "FakeTransport", *views: "Fields") -> None:
    """Have the relay take a question, and then show the handoff in these states."""
    relay.answer("block", {"handoff": view("blocked", question=question())})
    for shown in views:
        relay.answer("get_handoff", {"handoff": shown})


async def test_an_update_says_only_what_is_said(relay: "FakeTransport", task: Task) -> None:
    await task.update("reproducing", eta="2h")
    operation, fields, handoff = relay.calls[0]
    del fields["command_id"]
    assert (operation, handoff) == ("update", "h1")
    assert fields == {"attempt": 2, "status": "reproducing", "eta": "2h", "brief": True}


async def test_a_step_is_done_once_and_recorded(relay: "FakeTransport", task: Task) -> None:
    keys: list[str] = []

    def open_ticket(key: str) -> dict[str, int]:
        keys.append(key)
        return {"ticket": 7}

    assert await task.once("open-ticket", open_ticket) == {"ticket": 7}
    assert await task.once("open-ticket", open_ticket) == {"ticket": 7}
    assert keys == ["h1:open-ticket"]
    assert relay.calls[0][1]["name"] == "open-ticket"
    assert relay.said() == ["step"]


async def test_a_step_of_an_earlier_attempt_is_not_repeated(relay: "FakeTransport") -> None:
    task = make(relay, steps={"open-ticket": None})

    def never() -> None:
        pytest.fail("it was done before")

    assert await task.once("open-ticket", never) is None
    assert relay.calls == []


async def test_two_at_once_do_a_step_once(relay: "FakeTransport", task: Task) -> None:
    runs = 0

    async def slowly() -> int:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0)
        return runs

    assert await asyncio.gather(task.once("s", slowly), task.once("s", slowly)) == [1, 1]
    assert relay.said() == ["step"]


async def test_the_first_record_of_a_step_counts(relay: "FakeTransport", task: Task) -> None:
    relay.answer("step", {"name": "s", "recorded": True, "value": "the first"})
    assert await task.once("s", lambda: "the second") == "the first"


async def test_a_failed_step_is_not_recorded(relay: "FakeTransport", task: Task) -> None:
    def fails() -> None:
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        await task.once("s", fails)
    assert relay.calls == []
    assert await task.once("s", lambda: 1) == 1


async def test_what_a_step_binds_for_itself_is_not_the_key(task: Task) -> None:
    for number in (1, 2):
        assert await task.once(f"s{number}", lambda n=number: n) == number

    def deduplicated(key: str = "") -> str:
        return key

    assert await task.once("s", deduplicated) == "h1:s"


@pytest.mark.parametrize(
    ("value", "refusal", "code"),
    [(object(), None, "result_invalid"), (1, TooLargeError("2 MiB"), "too_large")],
)
async def test_a_step_that_cannot_be_recorded_is_not_tried_again(
    relay: "FakeTransport", task: Task, value: Any, refusal: NodropError | None, code: str
) -> None:
    if refusal is not None:
        relay.refuse("step", refusal)
    with pytest.raises(Fail, match="the step s: ") as failed:
        await task.once("s", lambda: value)
    assert (failed.value.code, failed.value.retryable) == (code, False)


@pytest.mark.parametrize("name", [None, "version"])
async def test_a_question_answered_before_is_not_asked_again(
    relay: "FakeTransport", name: str | None
) -> None:
    task = make(relay, answers={name or "Which version?": "1.2"})
    assert await task.ask("Which version?", name=name) == "1.2"
    assert relay.calls == []


async def test_a_question_is_asked_and_its_answer_waited_for(
    relay: "FakeTransport", task: Task
) -> None:
    blocked_then(
        relay,
        view("blocked", question=question()),  # one long wait ran out
        view(answers={"Which version?": "1.2"}),
    )
    assert await task.ask("Which version?", to="inbox_monitor") == "1.2"
    assert relay.calls[0][1]["to"] == "inbox_monitor"
    looks = [fields for operation, fields, _ in relay.calls if operation == "get_handoff"]
    assert [look["until"] for look in looks] == ["unblocked", "unblocked"]
    assert await task.ask("Which version?") == "1.2"
    assert relay.said().count("block") == 1


async def test_a_wait_for_an_answer_may_run_out_and_be_taken_up_again(
    relay: "FakeTransport", task: Task
) -> None:
    blocked_then(relay)
    with pytest.raises(WaitElapsed):
        await task.ask("Which version?", wait=0)
    relay.refuse("block", AlreadyBlockedError())
    relay.answer("get_handoff", {"handoff": view("blocked", question=question())})
    relay.answer("get_handoff", {"handoff": view(answers={"Which version?": "1.2"})})
    assert await task.ask("Which version?") == "1.2"


async def test_a_question_is_asked_once_another_was_answered(
    relay: "FakeTransport", task: Task
) -> None:
    relay.refuse("block", AlreadyBlockedError())
    relay.answer("get_handoff", {"handoff": view(question=None)})
    blocked_then(relay, view(answers={"Which version?": "1.2"}))
    assert await task.ask("Which version?") == "1.2"


async def test_another_question_cannot_be_asked_meanwhile(
    relay: "FakeTransport", task: Task
) -> None:
    relay.refuse("block", AlreadyBlockedError())
    relay.answer("get_handoff", {"handoff": view("blocked", question=question("Who?"))})
    with pytest.raises(AlreadyBlockedError):
        await task.ask("Which version?")


async def test_questions_of_one_task_wait_for_each_other(
    relay: "FakeTransport", task: Task
) -> None:
    for text in ("a?", "b?"):
        relay.answer("block", {"handoff": view("blocked", question=question(text))})
        relay.answer("get_handoff", {"handoff": view(answers={text: text})})
    assert await asyncio.gather(task.ask("a?"), task.ask("b?")) == ["a?", "b?"]
    assert relay.said() == ["block", "get_handoff"] * 2


@pytest.mark.parametrize(
    "gone",
    [
        view("cancelled"),
        view("expired"),
        view("offered"),
        {**view(), "attempt": 3},
        {**view(), "id": "the-successor"},
    ],
)
async def test_a_task_that_went_on_without_us_ends(
    relay: "FakeTransport", task: Task, gone: "Fields"
) -> None:
    blocked_then(relay, gone)
    with pytest.raises(StaleAttemptError):
        await task.ask("Which version?")
    assert task.lease.lost


async def test_countered_terms_are_waited_for(relay: "FakeTransport", task: Task) -> None:
    terms = {**question(), "kind": "terms", "question": None, "terms": {"deadline": "later"}}
    relay.answer("counter", {"handoff": view("blocked", question=terms)})
    relay.answer("get_handoff", {"handoff": view(deadline="later")})
    assert (await task.counter(deadline="8h", reason="big"))["deadline"] == "later"
    assert task.deadline == "later"
    said = relay.calls[0][1]
    assert (said["deadline"], said["reason"], said["attempt"]) == ("8h", "big", 2)


async def test_declined_terms_end_the_task(relay: "FakeTransport", task: Task) -> None:
    relay.answer("counter", {"handoff": view("blocked", question=question())})
    relay.answer("get_handoff", {"handoff": view("rejected")})
    with pytest.raises(StaleAttemptError):
        await task.counter(deadline="8h")
    assert task.lease.lost


async def test_a_checkpoint_is_left_and_found(relay: "FakeTransport") -> None:
    task = make(relay, checkpoint={"page": 3})
    assert task.last_checkpoint == {"page": 3}
    await task.checkpoint({"page": 4})
    assert task.last_checkpoint == {"page": 4}
    assert relay.calls[0][1]["checkpoint"] == {"page": 4}


async def test_parking_sends_the_question_and_ends_the_handler(
    relay: "FakeTransport", task: Task
) -> None:
    with pytest.raises(Parked):
        await task.park("Which version?", name="version")
    said = relay.calls[0][1]
    assert (said["park"], said["question"], said["name"]) == (True, "Which version?", "version")


async def test_a_note_is_about_the_handoff(relay: "FakeTransport", task: Task) -> None:
    await task.note("looks like the cache")
    operation, fields, handoff = relay.calls[0]
    assert (operation, fields["text"], handoff) == ("note", "looks like the cache", "h1")


async def test_a_stale_task_is_told_so(relay: "FakeTransport", task: Task) -> None:
    relay.refuse("update", StaleAttemptError())
    with pytest.raises(StaleAttemptError):
        await task.update("going on")
    assert task.lease.lost


async def test_a_task_shows_its_handoff(relay: "FakeTransport") -> None:
    shown = view(
        title="Login button", trigger="Bug report", priority="high", deadline="d",
        correlation_id="c", payload=[1], **{"from": "inbox_monitor"},
        chain={"origin": "inbox_monitor", "done": [], "here": 0, "next": ["support_agent"]},
    )  # fmt: skip
    delivered = {"handoff": shown, "attempt": 2}
    task = Task(delivered, Client(relay, agent="code_agent"), a_lease())
    assert (task.id, task.ref, task.attempt, task.title) == ("h1", "a/1", 2, "Login button")
    assert (task.trigger, task.priority, task.deadline) == ("Bug report", "high", "d")
    assert (task.sender, task.origin, task.payload) == ("inbox_monitor", "inbox_monitor", [1])
    assert (task.correlation_id, task.chain.next) == ("c", ("support_agent",))

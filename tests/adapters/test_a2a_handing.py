"""An executor of the A2A SDK hands work on: what goes along, what comes back, what breaks."""

import asyncio
import importlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from a2a.client import A2AClientError
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    CancelTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.utils.errors import TaskNotCancelableError
from google.protobuf.json_format import MessageToDict

from nodrop import app
from nodrop.adapters import a2a
from nodrop.adapters.a2a import tasks
from nodrop.adapters.a2a.handed import TRIES_MAX, Handed
from nodrop.adapters.a2a.incoming import incoming
from nodrop.adapters.a2a.messages import EXTENSION
from nodrop.client import tracing
from nodrop.model.errors import InvalidRequestError, NotInstalledError, UnreachableError
from nodrop.relay.relay import Relay
from nodrop.servers.a2a import extension
from nodrop.servers.inprocess import InProcessTransport

PATIENCE_SECONDS = 20
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01"
STRANGER = "00-11111111111111111111111111111111-2222222222222222-01"

Call = Callable[..., Any]
View = dict[str, Any]


class House:
    """A relay that listens, and a way in for everybody."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def member(self, name: str) -> Call:
        secret = f"nd_{name}"
        await self._relay.ensure_token("default", agent=name, role="agent", secret=secret)
        transport = InProcessTransport(self._relay, await self._relay.authenticate(secret))

        async def call(operation: str, handoff: str | None = None, **fields: Any) -> Any:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await transport.call(operation, fields, handoff=handoff)

        return call

    async def taken(self, member: Call) -> View:
        """Return what comes for a member, acknowledged."""
        (delivery,) = (await member("take", wait="15s"))["deliveries"]
        handoff: View = delivery["handoff"]
        await member("ack", handoff["id"], attempt=handoff["attempt"])
        return handoff


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[House]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NODROP_HOME", str(tmp_path))
    async with (
        app.open_relay(":memory:", home=tmp_path) as relay,
        app.listening(relay, a2a=app.A2A(home=tmp_path)) as url,
    ):
        monkeypatch.setenv("NODROP_URL", url)
        monkeypatch.setenv("NODROP_TOKEN", "nd_boss")
        house = House(relay)
        await house.member("boss")
        yield house


def request(
    text: str = "tides",
    *,
    about: View | None = None,
    headers: dict[str, str] | None = None,
    task: Task | None = None,
) -> RequestContext:
    """Return what an executor is called with."""
    message = Message(
        message_id="m1", role=Role.ROLE_USER, parts=[Part(text=text)], metadata=about or {}
    )
    return RequestContext(
        ServerCallContext(state={"headers": headers or {}}),
        SendMessageRequest(message=message),
        task_id=task.id if task else "run-1",
        context_id=task.context_id if task else "talk-1",
        task=task,
    )


def asking(question: a2a.Question, began: str = "tides") -> Task:
    """Return the executor's own task as it is when it has required input, as it is told to."""
    first = Message(message_id="m1", role=Role.ROLE_USER, parts=[Part(text=began)])
    asked = Message(
        message_id="q1",
        role=Role.ROLE_AGENT,
        parts=[Part(text=question.text)],
        metadata=question.metadata,
    )
    status = TaskStatus(state=TaskState.TASK_STATE_INPUT_REQUIRED, message=asked)
    return Task(id="run-1", context_id="talk-1", status=status, history=[first])


async def ended(waiting: "asyncio.Task[a2a.Answer | a2a.Question]") -> Any:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await waiting


def begun(*words: Any, to: str = "planner", **terms: Any) -> Any:
    """Hand something on, and go on meanwhile."""
    hand_off = a2a.hand_off(to, **terms)
    return asyncio.ensure_future(hand_off(*words))


# --- what goes along -----------------------------------------------------------------------------


async def test_what_the_request_is_part_of_goes_along(house: House) -> None:
    origin, boss, planner = [await house.member(n) for n in ("origin", "boss", "planner")]
    await origin("offer", to="boss", payload={"task": "plan"}, deadline="1h", correlation_id="c-1")
    above = await house.taken(boss)
    about = {
        "correlation_id": above["correlation_id"],
        "handoff_id": above["id"],
        "deadline": above["deadline"],
    }
    waiting = begun(request(about=about, headers={"traceparent": TRACE}), "tides", {"days": 3})
    child = await house.taken(planner)
    await planner("complete", child["id"], attempt=1, result={"high": "noon"})
    answer = await ended(waiting)
    assert (answer.done, answer.result) == (True, {"high": "noon"})
    assert child["payload"] == {"task": "tides", "days": 3}
    assert (child["from"], child["parent_id"]) == ("boss", above["id"])
    assert (child["correlation_id"], child["deadline"]) == ("c-1", above["deadline"])
    assert child["traceparent"].split("-")[1] == TRACE.split("-")[1]


async def test_of_a_client_that_says_nothing_the_context_is_the_chain(house: House) -> None:
    planner = await house.member("planner")
    waiting = begun(request("tides"), deadline="1h", attempts_max=2)
    child = await house.taken(planner)
    await planner("complete", child["id"], attempt=1, result="at noon")
    assert (await ended(waiting)).text == "at noon"
    assert (child["correlation_id"], child["parent_id"]) == ("talk-1", None)
    assert child["payload"] == {"task": "tides"}
    assert child["attempts_max"] == 2


def test_a_relay_that_delivers_by_itself_names_the_deadline_under_the_uri() -> None:
    ours = {EXTENSION: {"deadline": "2030-01-01T00:00:00Z", "idempotencyKey": "k"}}
    assert incoming(request(about=ours)).deadline == "2030-01-01T00:00:00Z"


def test_whatever_is_under_the_uri_is_no_reason_to_fail() -> None:
    came = incoming(request(about={EXTENSION: "nonsense", "deadline": "2030-01-01T00:00:00Z"}))
    assert (came.deadline, came.answers) == ("2030-01-01T00:00:00Z", None)


@pytest.mark.parametrize(
    ("here", "came", "sent"),
    [
        (None, TRACE, TRACE),
        (SPAN, TRACE, SPAN),
        (STRANGER, TRACE, TRACE),
        (STRANGER, None, STRANGER),
        (None, "nonsense", None),
    ],
    ids=["what came", "a span of it", "of another trace", "of one's own", "malformed"],
)
def test_the_trace_is_the_one_that_came(
    monkeypatch: pytest.MonkeyPatch, here: str | None, came: str | None, sent: str | None
) -> None:
    monkeypatch.setattr(tracing, "current_traceparent", lambda: here)
    headers = {"traceparent": came} if came else {}
    assert incoming(request(headers=headers)).traceparent == sent


def test_the_uri_is_the_one_of_the_relay() -> None:
    assert extension.URI == EXTENSION


# --- the same again ------------------------------------------------------------------------------


async def test_a_run_that_says_the_same_again_finds_what_it_handed_on_before(house: House) -> None:
    planner = await house.member("planner")
    waiting = begun(request())
    child = await house.taken(planner)
    await planner("complete", child["id"], attempt=1, result="at noon")
    first = await ended(waiting)
    again = await ended(begun(request()))
    assert (again.handoff, again.result) == (first.handoff, "at noon")


async def test_what_is_said_twice_within_one_request_is_handed_on_twice(house: House) -> None:
    planner = await house.member("planner")
    context = request()
    both = [begun(context), begun(context)]
    children = [await house.taken(planner) for _ in both]
    for child in children:
        await planner("complete", child["id"], attempt=1, result="at noon")
    assert len({(await ended(waiting)).handoff for waiting in both}) == len(both)


def test_another_attempt_at_a_handoff_is_the_same_run_in_another_task() -> None:
    about = {"handoff_id": "h-1"}
    first, again = request(about=about), request(about=about)
    again.current_task = None
    assert incoming(first).key("tides") == incoming(again).key("tides")
    assert incoming(first).key("tides") != incoming(request(about={"handoff_id": "h-2"})).key(
        "tides"
    )


# --- questions -----------------------------------------------------------------------------------


async def questioned(house: House, planner: Call) -> tuple[View, a2a.Question]:
    waiting = begun(request("tides"))
    child = await house.taken(planner)
    await planner("block", child["id"], attempt=1, question="Which coast?")
    question = await ended(waiting)
    assert isinstance(question, a2a.Question)
    return child, question


async def test_a_question_is_a_value_and_the_next_message_of_the_task_its_answer(
    house: House,
) -> None:
    planner = await house.member("planner")
    child, question = await questioned(house, planner)
    assert question.text == "planner asks: Which coast?"
    waiting = begun(request("the west one", task=asking(question)))
    answered = await planner("get_handoff", child["id"], wait="15s", until="unblocked")
    assert answered["handoff"]["answers"] == {"Which coast?": "the west one"}
    await planner("complete", child["id"], attempt=1, result="at noon")
    assert (await ended(waiting)).result == "at noon"


async def test_an_answer_to_the_first_question_is_none_to_the_second(house: House) -> None:
    boss, planner = [await house.member(name) for name in ("boss", "planner")]
    child, first = await questioned(house, planner)
    asked = (await boss("get_handoff", child["id"]))["handoff"]["question"]
    await boss("answer", child["id"], seq=asked["seq"], answer="the east one")
    await planner("block", child["id"], attempt=1, question="Which week?")
    second = await ended(begun(request("the west one", task=asking(first))))
    assert second.text == "planner asks: Which week?"
    assert (await planner("get_handoff", child["id"]))["handoff"]["state"] == "blocked"


async def test_a_question_to_somebody_else_is_waited_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "POLL_SECONDS_MIN", 0.01)
    planner, expert = [await house.member(name) for name in ("planner", "expert")]
    waiting = begun(request())
    child = await house.taken(planner)
    await planner("block", child["id"], attempt=1, question="Which moon?", to="expert")
    asked = (await expert("get_handoff", child["id"]))["handoff"]["question"]
    await expert("answer", child["id"], seq=asked["seq"], answer="ours")
    await planner("complete", child["id"], attempt=1, result="at noon")
    assert (await ended(waiting)).result == "at noon"


# --- other ends ----------------------------------------------------------------------------------


async def test_a_failure_is_a_value_with_its_reason(house: House) -> None:
    planner = await house.member("planner")
    waiting = begun(request())
    child = await house.taken(planner)
    await planner("fail", child["id"], attempt=1, code="no_moon", reason="There is no moon")
    answer = await ended(waiting)
    assert (answer.state, answer.code, answer.reason) == ("failed", "no_moon", "There is no moon")
    assert not answer.done


async def test_an_agent_that_answers_in_words_of_a2a_is_understood(house: House) -> None:
    planner = await house.member("planner")
    waiting = begun(request())
    child = await house.taken(planner)
    said = {"message": {"parts": [{"text": "at noon"}]}}
    await planner("complete", child["id"], attempt=1, result=said)
    assert (await ended(waiting)).result == "at noon"


@pytest.mark.parametrize(
    ("to", "terms", "code"),
    [
        ("nobody", {}, "not_found"),
        ("no such name", {}, "not_found"),
        ("planner", {"token": "nd_forged"}, "unauthenticated"),
        ("planner", {"deadline": "yesterday"}, "invalid_request"),
    ],
)
async def test_a_refusal_is_a_value_with_its_code(
    house: House, to: str, terms: View, code: str
) -> None:
    await house.member("planner")
    answer = await ended(begun(request(), to=to, **terms))
    assert (answer.state, answer.code, answer.handoff) == ("refused", code, None)
    assert answer.reason


async def test_cancelling_the_executor_withdraws_what_nothing_is_above(house: House) -> None:
    planner = await house.member("planner")
    waiting = begun(request())
    child = await house.taken(planner)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(waiting)
    assert (await planner("get_handoff", child["id"]))["handoff"]["state"] == "cancelled"


async def test_cancelling_a_task_that_asks_withdraws_whose_question_it_is(house: House) -> None:
    planner = await house.member("planner")
    child, question = await questioned(house, planner)
    context = RequestContext(ServerCallContext(), task_id="run-1", task=asking(question))
    await a2a.hand_off("planner").cancel(context)
    assert (await planner("get_handoff", child["id"]))["handoff"]["state"] == "cancelled"


async def test_cancelling_a_task_that_asks_nothing_withdraws_nothing(house: House) -> None:
    """The control of the one above: what runs is withdrawn where it is waited for."""
    planner = await house.member("planner")
    waiting = begun(request())
    child = await house.taken(planner)
    task = Task(id="run-1", context_id="talk-1")
    context = RequestContext(ServerCallContext(), task_id="run-1", task=task)
    await a2a.hand_off("planner").cancel(context)
    await planner("complete", child["id"], attempt=1, result="at noon")
    assert (await ended(waiting)).result == "at noon"


async def test_what_is_below_a_handoff_is_left_to_the_relay(house: House) -> None:
    """The control of the one above: the next attempt at the handoff finds it again."""
    origin, boss, planner = [await house.member(n) for n in ("origin", "boss", "planner")]
    await origin("offer", to="boss", payload={"task": "plan"})
    above = await house.taken(boss)
    waiting = begun(request(about={"handoff_id": above["id"]}))
    child = await house.taken(planner)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(waiting)
    assert (await planner("get_handoff", child["id"]))["handoff"]["state"] == "accepted"
    await origin("cancel", above["id"])
    assert (await planner("get_handoff", child["id"]))["handoff"]["state"] == "cancelled"


class Queue:
    """What an executor's own task is told, in the words of A2A."""

    def __init__(self) -> None:
        self.events: list[View] = []

    async def enqueue_event(self, event: Any) -> None:
        self.events.append(MessageToDict(event))


async def told(answer: a2a.Answer | a2a.Question) -> list[View]:
    queue: Any = Queue()
    await a2a.tell(answer, TaskUpdater(queue, "run-1", "talk-1"))
    return queue.events


@pytest.mark.parametrize("result", ["at noon", {"high": "noon"}, None])
async def test_a_result_is_told_as_it_is(result: Any) -> None:
    artifact, status = await told(a2a.Answer(state="completed", result=result))
    part = {"text": result} if isinstance(result, str) else {"data": result}
    assert artifact["artifact"]["parts"] == [part]
    assert status["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_what_failed_is_told_with_its_code() -> None:
    (event,) = await told(a2a.Answer(state="refused", code="not_found", reason="nobody"))
    assert event["status"]["state"] == "TASK_STATE_FAILED"
    assert '"code": "not_found"' in event["status"]["message"]["parts"][0]["text"]


async def test_a_question_is_told_with_what_the_answer_is_found_by(house: House) -> None:
    child, question = await questioned(house, await house.member("planner"))
    (event,) = await told(question)
    assert event["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert event["status"]["message"]["metadata"][EXTENSION]["asks"]["task"] == child["id"]


# --- what breaks ---------------------------------------------------------------------------------


class Line:
    """A client of A2A to which a test says what comes back, one call after the other."""

    def __init__(self, *answers: Task | Exception | None) -> None:
        self._answers = list(answers)
        self.sent: list[Message] = []
        self.cancelled: list[str] = []
        self.silent = asyncio.Event()

    async def send_message(self, request: SendMessageRequest) -> AsyncIterator[StreamResponse]:
        self.sent.append(request.message)
        answer = self._answers.pop(0)
        if answer is None:
            self.silent.set()
            await asyncio.Event().wait()
        elif isinstance(answer, Exception):
            raise answer
        else:
            yield StreamResponse(task=answer)

    async def cancel_task(self, request: CancelTaskRequest) -> None:
        self.cancelled.append(request.id)
        raise TaskNotCancelableError


def shown(state: str, a2a_state: TaskState, **more: Any) -> Task:
    ours = {"state": state, "ref": "h-1", "from": "boss", "to": "planner", **more}
    return Task(id="t-1", status=TaskStatus(state=a2a_state), metadata={EXTENSION: ours})


OFFERED = shown("offered", TaskState.TASK_STATE_SUBMITTED)
DONE = shown("completed", TaskState.TASK_STATE_COMPLETED)
LOST = A2AClientError("the connection broke")


def handed(answers: Sequence[Task | Exception | None]) -> tuple[Line, Handed]:
    line: Any = Line(*answers)
    return line, Handed(line, incoming(request()), Message(message_id="k-1"))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "POLL_SECONDS_MIN", 0.0)


@pytest.mark.usefixtures("hasty")
async def test_what_may_not_have_arrived_is_said_again_in_the_same_words() -> None:
    line, task = handed([LOST, OFFERED, LOST, *[LOST] * TRIES_MAX, DONE])
    answer = await task.rested("20s")
    assert (answer.handoff, getattr(answer, "state", None)) == ("h-1", "completed")
    assert {message.message_id for message in line.sent} == {"k-1"}


@pytest.mark.usefixtures("hasty")
async def test_a_relay_that_never_answers_is_not_waited_for_as_long_as_a_result() -> None:
    line, task = handed([LOST] * (TRIES_MAX + 1))
    with pytest.raises(UnreachableError, match="the connection broke"):
        await task.rested("1h")
    assert len(line.sent) == TRIES_MAX


async def test_a_wait_that_runs_out_says_how_it_stands_and_withdraws_nothing() -> None:
    line, task = handed([OFFERED, None])
    answer: Any = await task.rested(0.05)
    assert (answer.state, answer.handoff, answer.code) == ("offered", "h-1", "wait_elapsed")
    assert line.cancelled == []


async def test_what_cannot_be_withdrawn_any_more_is_no_reason_to_go_on() -> None:
    line, task = handed([OFFERED, None])
    waiting = asyncio.ensure_future(task.rested("20s"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await line.silent.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert line.cancelled == ["t-1"]


async def test_a_wait_that_runs_out_before_anything_is_stored_says_so() -> None:
    _, task = handed([None])
    with pytest.raises(UnreachableError):
        await task.rested(0.05)


async def test_an_a2a_agent_in_the_place_of_a_relay_is_told_from_one() -> None:
    _, task = handed([Task(id="t-1", status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED))])
    with pytest.raises(UnreachableError, match="no relay"):
        await task.rested("20s")


async def test_a_database_takes_no_a2a(tmp_path: Path) -> None:
    hand_off = a2a.hand_off("planner", address=tmp_path / "team.db")
    with pytest.raises(InvalidRequestError, match="is a database"):
        await hand_off(request())


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise metadata.PackageNotFoundError

    for name in [name for name in sys.modules if name.startswith("nodrop.adapters.a2a")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(NotInstalledError) as refused:
        importlib.import_module("nodrop.adapters.a2a.handing")
    assert "nodrop[a2a]" in refused.value.next_step

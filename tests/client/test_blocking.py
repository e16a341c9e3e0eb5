"""Every asynchronous call has a blocking twin of the same name with the same arguments."""

import asyncio
import concurrent.futures
import inspect
import os
import threading
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any, cast

import pytest

from nodrop.client import blocking
from nodrop.client.client import Client
from nodrop.client.dead_letter import DeadLetter
from nodrop.client.endings import HandoffFailed, WaitElapsed
from nodrop.client.handoff import Handoff
from nodrop.client.inbox import Item
from nodrop.client.portal import LoopThread, Portal, Twin
from nodrop.client.working.blocking_task import BlockingTask
from nodrop.client.working.task import Task
from nodrop.model.errors import InvalidRequestError

if TYPE_CHECKING:
    from conftest import FakeTransport, Fields

TWINS: list[tuple[type[Any], type[Any]]] = [
    (Client, blocking.BlockingClient),
    (Handoff, blocking.BlockingHandoff),
    (DeadLetter, blocking.BlockingDeadLetter),
    (Item, blocking.BlockingItem),
    (Task, BlockingTask),
]
FOR_THE_SDK_ITSELF = {"about", "command"}


def calls(kind: type[Any]) -> dict[str, Any]:
    """The public asynchronous methods of a class."""
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and name not in FOR_THE_SDK_ITSELF
        and (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method))
    }


@pytest.mark.parametrize(
    ("kind", "twin", "name"),
    [(kind, twin, name) for kind, twin in TWINS for name in calls(kind)],
)
def test_every_call_has_a_twin(kind: type[Any], twin: type[Any], name: str) -> None:
    original, blocked = getattr(kind, name), getattr(twin, name)
    assert not inspect.iscoroutinefunction(blocked)
    parameters = inspect.signature(original).parameters
    assert list(inspect.signature(blocked).parameters) == list(parameters)


@pytest.mark.parametrize(("kind", "twin"), TWINS)
def test_every_attribute_is_there_too(kind: type[Any], twin: type[Any]) -> None:
    shown = {name for name, _ in inspect.getmembers(kind, lambda m: isinstance(m, property))}
    assert shown <= set(dir(twin))


@pytest.fixture
def portal() -> Generator[Portal]:
    thread = LoopThread()
    yield thread.portal
    thread.stop()


@pytest.fixture
def me(relay: "FakeTransport", portal: Portal) -> blocking.BlockingClient:
    return blocking.BlockingClient(Client(relay, agent="inbox_monitor"), portal)


def view(state: str = "offered", **more: Any) -> "Fields":
    chain = {"origin": "inbox_monitor"}
    return {"id": "h1", "ref": "r", "state": state, "chain": chain, "settled_at": "t", **more}


def outcome(state: str, **said: Any) -> "Fields":
    return {"state": state, "at": "t", "by": "code_agent", **said}


def test_a_handoff_is_followed_without_an_event_loop(
    relay: "FakeTransport", me: blocking.BlockingClient
) -> None:
    relay.answer("offer", {"handoff": view()})
    handoff = me.hand_off("code_agent", payload={"n": 1})
    assert (handoff.id, handoff.state) == ("h1", "offered")
    ended = view("completed", outcome=outcome("completed", result=2))
    relay.answer("get_handoff", {"handoff": ended})
    assert handoff.result(wait="30s") == 2
    assert handoff.state == "completed"


def test_what_a_wait_raises_carries_a_twin(
    relay: "FakeTransport", me: blocking.BlockingClient
) -> None:
    relay.answer("get_handoff", {"handoff": view()})
    handoff = me.handoff("h1")
    relay.answer("get_handoff", {"handoff": view("accepted"), "wait_elapsed": True})
    with pytest.raises(WaitElapsed) as elapsed:
        handoff.result(wait=0)
    assert isinstance(elapsed.value.handoff, blocking.BlockingHandoff)
    relay.answer("get_handoff", {"handoff": view("failed", outcome=outcome("failed"))})
    with pytest.raises(HandoffFailed) as failed:
        handoff.result()
    assert isinstance(failed.value.handoff, blocking.BlockingHandoff)


def test_items_and_dead_letters_have_twins(
    relay: "FakeTransport", me: blocking.BlockingClient
) -> None:
    relay.answer(
        "inbox", {"items": [{"kind": "question", "seq": 7, "handoff_id": "h1"}], "after": 7}
    )
    inbox = me.inbox()
    assert inbox.after == 7
    assert inbox[0].answer("yes").id == "h1"
    relay.answer("dead_letters", {"handoffs": [view("failed")]})
    relay.answer("discard", {"handoff": view("failed", decision="discarded")})
    assert me.dead_letters()[0].discard().view["decision"] == "discarded"


def test_the_log_is_followed_without_an_event_loop(
    relay: "FakeTransport", me: blocking.BlockingClient
) -> None:
    entries = [{"seq": n, "at": "t", "type": "x", "actor": "a"} for n in (1, 2)]
    relay.answer("log", {"entries": entries, "after": 2})
    following = me.follow_log()
    assert [next(following).seq, next(following).seq] == [1, 2]
    following.close()


def test_a_blocking_call_on_the_loop_itself_is_refused(portal: Portal) -> None:
    async def inside() -> None:
        portal.call(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="would wait for itself"):
        portal.call(inside())


def test_an_interrupted_look_at_the_log_raises_what_interrupted_it(portal: Portal) -> None:
    started, released = threading.Event(), asyncio.Event()

    class Waiting:
        """Takes its time to be cancelled, as a relay in this process does."""

        async def follow_log(self, *_: Any, **__: Any) -> AsyncGenerator[Any]:
            try:
                started.set()
                await asyncio.Event().wait()
                yield
            finally:
                async with asyncio.timeout(30):
                    await released.wait()

    async def release() -> None:
        released.set()

    caught: list[BaseException] = []

    def follow() -> None:
        try:
            next(blocking.BlockingClient.follow_log(cast("Any", twin)))
        except BaseException as error:  # noqa: BLE001  # whatever it is, it ended the wait
            caught.append(error)

    twin = Twin(Waiting(), portal)
    thread = threading.Thread(target=follow)
    thread.start()
    assert started.wait(30)
    portal.interrupt()
    thread.join(30)
    portal.call(release())
    assert [type(error) for error in caught] == [concurrent.futures.CancelledError]


def test_who_asks_after_the_end_is_told_to_connect_again(relay: "FakeTransport") -> None:
    thread = LoopThread()
    me = blocking.BlockingClient(Client(relay, agent="inbox_monitor"), thread.portal)
    relay.answer("log", {"entries": [{"seq": 1, "at": "t", "type": "x", "actor": "a"}], "after": 1})
    following = me.follow_log()
    assert next(following).seq == 1
    thread.stop()
    with pytest.raises(InvalidRequestError, match="the connection was closed"):
        me.hand_off("code_agent")
    following.close()  # without a word: there is nothing to give up any more


def test_a_forked_process_is_told_to_connect_itself(
    me: blocking.BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        with pytest.raises(InvalidRequestError, match="forked"):
            me.hand_off("code_agent")
    assert me.hand_off("code_agent").state == "delivered"


def test_an_interrupted_wait_is_cancelled_on_the_loop(portal: Portal) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    caught: list[BaseException] = []

    def wait() -> None:
        try:
            portal.call(endless())
        except BaseException as error:  # noqa: BLE001  # whatever it is, it ended the wait
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert started.wait(30)
    portal.interrupt()
    thread.join(30)
    assert cancelled.wait(30)
    assert len(caught) == 1


async def test_one_loop_can_await_what_another_does(portal: Portal) -> None:
    async def where() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async with asyncio.timeout(30):
        there = await portal.awaited(where())
        assert there is not asyncio.get_running_loop()
        assert await Portal(asyncio.get_running_loop()).awaited(where()) is not there


async def test_what_another_loop_waits_for_can_be_interrupted(portal: Portal) -> None:
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    waiting = asyncio.ensure_future(portal.awaited(endless()))
    async with asyncio.timeout(30):
        assert await asyncio.to_thread(begun.wait, 30)
        portal.interrupt()
        with pytest.raises(asyncio.CancelledError):
            await waiting

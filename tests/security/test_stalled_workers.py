"""The attack matrix, stalled workers: a process that hangs costs its agent one try of what it held, and nothing else.

Each row is a way to hang, over the channel, beside a worker that is alive; each rule, taken away, lets one through.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest

from kit import mutations
from kit.asgi import Channel, Visitor
from kit.fortress import UNKNOWN
from nodrop.log.memory import MemoryStore
from nodrop.model import clocks
from nodrop.protocol import requests
from nodrop.relay.delivery.waiters import Takers
from nodrop.relay.relay import Caller, Subscription
from nodrop.servers.websocket.door import WebSocketDoor
from nodrop_proof.simulate import loop
from nodrop_proof.simulate.plan import Plan
from nodrop_proof.simulate.world import World

SECOND = 1_000
BEAT_SECONDS = 10
LEASE_BEATS = 3
UNACKNOWLEDGED_BEATS = 6
OFFERS = 4
SENDER = Caller(team="default", agent="inbox_monitor")
SIGN_OF_LIFE = {"op": "flush"}


class Worker:
    """A process of the agent, which acts as long as `alive` is true."""

    def __init__(self, channel: Channel, *, acknowledges: bool) -> None:
        self.alive = True
        self.got: list[tuple[str, int]] = []
        self._channel = channel
        self._acknowledges = acknowledges

    @property
    def handoffs(self) -> list[str]:
        return [handoff_id for handoff_id, _ in self.got]

    async def work(self) -> None:
        self._channel.tell({"op": "credit", "n": 20})
        while True:
            frame = await self._channel.frame()
            if frame.get("push") != "delivery":
                continue
            delivery = frame["delivery"]
            about = {"handoff_id": delivery["handoff"]["id"], "attempt": delivery["attempt"]}
            self.got.append((about["handoff_id"], about["attempt"]))
            if self.alive or self._acknowledges:
                self._channel.tell({"op": "ack", **about})
            if self.alive:
                self._channel.tell({"op": "complete", "result": "done", **about})


class Hang:
    """A way to hang, and what it may cost."""

    def __init__(self, *, acknowledges: bool, beats_before: int = 0, given: int) -> None:
        self.acknowledges = acknowledges
        self.beats_before = beats_before
        """For so long it is silent before anything is offered."""
        self.given = given
        """So many of the offers are its share, and lose a try."""

    @property
    def lease_beats(self) -> int:
        return LEASE_BEATS if self.acknowledges else UNACKNOWLEDGED_BEATS


HANGS = {
    "after its ack": Hang(acknowledges=True, given=OFFERS // 2),
    "before its ack": Hang(acknowledges=False, given=OFFERS // 2),
    "while it holds nothing": Hang(acknowledges=False, beats_before=8, given=0),
}


class Scene:
    """A relay, a worker that hangs and one that does not."""

    def __init__(self, stack: ExitStack, hang: Hang) -> None:
        self.world = World(Plan(seed=0), MemoryStore())
        self.hang = hang
        self._tasks = stack

    async def open(self) -> None:
        await self.world.start()
        relay = (await self.world.serving()).relay
        await relay.ensure_token("default", agent="code_agent", role="agent", secret="token")
        self._door = WebSocketDoor(relay, new_id=self.world.new_id)

    async def worker(self, *, acknowledges: bool = True) -> tuple[Channel, Worker]:
        channel = Channel()
        scope = Visitor(self._door).websocket_scope(channel, "/v1/channel")
        self._spawn(self._door(scope, channel.receive, channel.send))
        channel.say({"type": "websocket.connect"})
        channel.tell({"op": "hello", "token": "token", "heartbeat_seconds": BEAT_SECONDS})
        worker = Worker(channel, acknowledges=acknowledges)
        self._spawn(worker.work())
        await self.world.pass_time(1)
        return channel, worker

    def _spawn(self, work: Any) -> None:
        self._tasks.callback(asyncio.ensure_future(work).cancel)

    async def beats(self, count: int, alive: Channel) -> None:
        """Let heartbeats pass; only one worker shows that it lives."""
        for _ in range(count):
            alive.tell(SIGN_OF_LIFE)
            await self.world.pass_time(BEAT_SECONDS * SECOND)

    async def offers(self) -> list[str]:
        offer = requests.Offer(to="code_agent", title="bug", attempts_max=2)
        return [(await self._ask("offer", offer)).handoff.id for _ in range(OFFERS)]

    async def handoff(self, handoff_id: str) -> Any:
        return (await self._ask("get_handoff", requests.GetHandoff(), handoff_id)).handoff

    async def _ask(self, operation: str, request: Any, about: str | None = None) -> Any:
        return (await self.world.ask(SENDER, operation, request, about=about)).answer

    async def beside_a_live_one(self) -> None:
        """Hang beside a worker that is alive, and look what became of the work."""
        await self.open()
        _, hung = await self.worker(acknowledges=self.hang.acknowledges)
        hung.alive = False
        channel, healthy = await self.worker()
        await self.beats(self.hang.beats_before, channel)
        offered = await self.offers()
        await self.world.pass_time(1)
        lost = hung.handoffs
        assert len(lost) == self.hang.given, "the hung worker was served first"
        await self.beats(self.hang.lease_beats, channel)
        assert not {*healthy.handoffs} & {*lost}, "the backoff was not waited for"
        await self.beats(20, channel)
        await self.done(offered, hung, lost)

    async def alone(self) -> None:
        """Hang with nobody beside: the work waits for a worker that comes later."""
        await self.open()
        channel, hung = await self.worker(acknowledges=self.hang.acknowledges)
        hung.alive = False
        offered = await self.offers()
        await self.world.pass_time(20 * BEAT_SECONDS * SECOND)
        channel, _ = await self.worker()
        await self.beats(1, channel)
        await self.done(offered, hung, offered)

    async def done(self, offered: list[str], hung: Worker, lost: list[str]) -> None:
        """Check that all was done, and that the hung worker cost one try of what it had."""
        assert hung.handoffs == lost, "the hung worker got more"
        for handoff_id in offered:
            view = await self.handoff(handoff_id)
            assert (view.state, view.tries) == ("completed", int(handoff_id in lost))


Story = Callable[[Scene], Coroutine[Any, Any, None]]


def tell(name: str, story: Story) -> None:
    async def told() -> None:
        with ExitStack() as stack:
            await story(Scene(stack, HANGS[name]))

    loop.run(told())


@pytest.mark.parametrize("name", HANGS)
def test_a_worker_that_hangs_costs_one_try_of_what_it_held(name: str) -> None:
    tell(name, Scene.beside_a_live_one)


@pytest.mark.parametrize("name", ["after its ack", "before its ack"])
def test_what_a_worker_loses_that_hangs_alone_waits_for_another(name: str) -> None:
    tell(name, Scene.alone)


COMING_BACK = {
    "a heartbeat": {"op": "heartbeat"},
    "credit": {"op": "credit", "n": 1},
    "a flush": SIGN_OF_LIFE,
    "a command that is refused": {"op": "ack", "handoff_id": UNKNOWN, "attempt": 1},
    "what is no operation": {"op": "nothing"},
}


async def comes_back(scene: Scene, frame: dict[str, Any]) -> None:
    """Hang alone, for long, and send one frame."""
    await scene.open()
    channel, worker = await scene.worker(acknowledges=False)
    worker.alive = False
    offered = await scene.offers()
    await scene.world.pass_time(20 * BEAT_SECONDS * SECOND)
    assert worker.handoffs == offered
    worker.alive = True
    later = await scene.offers()
    await scene.world.pass_time(SECOND)
    assert worker.handoffs == offered, "it was served before it was heard"
    channel.tell(frame)
    await scene.world.pass_time(SECOND)
    assert {*later} <= {*worker.handoffs}, "it was heard and not served"


@pytest.mark.parametrize("frame", COMING_BACK.values(), ids=COMING_BACK)
def test_a_worker_that_sends_anything_is_served_again_at_once(frame: dict[str, Any]) -> None:
    tell("before its ack", functools.partial(comes_back, frame=frame))


def test_a_relay_that_hears_only_heartbeats_is_found_out() -> None:
    story = functools.partial(comes_back, frame=SIGN_OF_LIFE)
    with (
        mock.patch.object(Subscription, "hear"),
        pytest.raises(AssertionError, match="heard and not served"),
    ):
        tell("before its ack", story)


@contextmanager
def nobody_is_quiet() -> Generator[None]:
    """A process that has sent nothing for long is served in its turn."""
    with mock.patch.object(Takers, "_quiet", return_value=False):
        yield


@contextmanager
def no_backoff() -> Generator[None]:
    """What a hung process lost is offered again at once."""
    with mock.patch.object(clocks, "backoff_ms", return_value=0):
        yield


@pytest.mark.parametrize(
    ("name", "story", "disabled", "found"),
    [
        ("after its ack", Scene.alone, mutations.serves_the_silent, "got more"),
        ("before its ack", Scene.alone, mutations.serves_the_silent, "got more"),
        ("while it holds nothing", Scene.beside_a_live_one, nobody_is_quiet, "served first"),
        ("after its ack", Scene.beside_a_live_one, no_backoff, "backoff was not waited for"),
    ],
)
def test_without_one_rule_a_worker_that_hangs_gets_through(
    name: str, story: Story, disabled: Callable[[], AbstractContextManager[None]], found: str
) -> None:
    with disabled(), pytest.raises(AssertionError, match=found):
        tell(name, story)

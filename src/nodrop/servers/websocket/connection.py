"""One connection after its hello: commands run side by side, answers come as they are ready."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

import msgspec

from nodrop.model.errors import (
    InvalidRequestError,
    NodropError,
    Problem,
    QueueFullError,
    RelayFaultError,
    UnauthenticatedError,
    UnavailableError,
    forget_frames,
)
from nodrop.protocol.decoding import decode_plainly, decode_strict, peek
from nodrop.protocol.views import (
    EndedAnswer,
    HandoffAnswer,
    ItemView,
    OfferedAnswer,
    PushView,
    WaitingView,
)
from nodrop.relay.relay import Asking, Caller, Listening, Relay, Reply, Subscription
from nodrop.relay.room import COSTLY_SECONDS, LARGE_BYTES, SLICE_SECONDS, unread
from nodrop.servers.websocket import frames
from nodrop.servers.websocket.frames import READER, Call, Credit, Ended, Flush, Frame, Hello, Id
from nodrop.servers.websocket.outbox import Outbox

log = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 4_096
"""Commands of one connection that may wait for their answers."""

FAULT: Final = 1011
COME_BACK: Final = 1013
UNAUTHENTICATED: Final = 4401

_OF_A_PROCESS: Final = frozenset({"heartbeat", "take"})

_PLAIN: Final = frames.PLAIN
_FOLLOWED: Final = frames.FOLLOWED
_CARRIED_OUT: Final = b'{"id":%b,"ok":{}}'
"""The answer to a bare command, but for its id."""
_encode: Final = frames.encode

_NOTHING: Final = object()
"""In place of an answer that nobody asked for."""


class Asked(Asking):
    """A frame that is answered over its connection: an offer perhaps twice, with its outcome too."""

    __slots__ = ("connection", "frame")

    def __init__(self, connection: "Connection", frame: Any) -> None:
        """Ask for what `frame` asks for: one of a kind in `frames.PLAIN`, or a `Call`."""
        # All of it in one go, without `Asking`: this is done for every command.
        kind = _PLAIN.get(type(frame))
        request: Any
        if kind is None:
            operation, request = frame.operation, frame.request
            reference, self.name = frame.reference, frame.name
        else:
            operation, about_handoff, exact = kind
            request = frame if exact is None else exact(frame)
            reference, self.name = frame.handoff_id if about_handoff else None, None
        if operation in _OF_A_PROCESS and request.process is None:  # it means its connection's
            request = msgspec.structs.replace(request, process=connection.process)
        self.connection = connection
        self.frame = frame
        self.by = connection.key
        self.caller = connection.caller
        self.operation = operation
        self.request = request
        self.handoff_id = reference or ""
        self.quiet = frame.quiet or (frame.bare and not (operation == _FOLLOWED and frame.follow))
        self.fetches = 0
        self.follower = self.work = None

    def tell(self, reply: Reply) -> None:
        """Send an answer: at once if there is room, else in its turn.

        One too many for who does not read has to be asked for again.
        """
        connection, frame, follows = self.connection, self.frame, False
        frame_id = frame.id
        answer: Any = reply.answer
        connection.asked.discard(self)
        if self.quiet:
            if frame.quiet:
                connection.carried_out(self)
                return
            message = _CARRIED_OUT % _encode(frame_id)
        elif type(answer) is EndedAnswer:
            connection.followed.discard(self)
            message = _encode(Ended(id=frame_id, handoff=answer.handoff, outcome=answer.outcome))
        else:
            follows = (
                self.operation == _FOLLOWED
                and frame.follow
                and isinstance(answer, OfferedAnswer | HandoffAnswer)
                and len(connection.followed) < connection.followed_max
            )
            message = frames.ok(frame_id, answer, follows=follows)
        if not connection.outbox.answer(message):
            connection.refuse(frame_id, unread(self.caller.agent))
        if follows:
            connection.followed.add(self)
            connection.relay.follow(self, answer.handoff.id)

    def refuse(self, error: NodropError) -> None:
        """Send why there is no answer: to a command, or to following an outcome any longer."""
        self.connection.refused(self, error)


class Connection:
    """A client that said hello."""

    def __init__(
        self,
        relay: Relay,
        caller: Caller,
        hello: Hello,
        *,
        process: str,
        outbox: Outbox,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self.relay = relay
        self.caller = caller
        self._hello = hello
        self.process = process
        """The process that the client is, or was given."""
        self.outbox = outbox
        self._in_flight_max = in_flight_max
        self._commands_max = in_flight_max
        """How many commands may wait for their answers besides the tasks."""
        self.failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Done, with a close code, once the client must come back: it could not be told something,
        or what it was let in with is no longer good."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked: set[Asked] = set()
        """Commands that are not answered yet."""
        self.followed: set[Asked] = set()
        """Offers whose outcomes are still to come. They are no commands that wait."""
        self.followed_max = in_flight_max
        """None, once it is closed."""
        self._quiet: set[Asked] = set()
        """Quiet commands that are being carried out."""
        self._flushes: list[tuple[Id, set[Asked]]] = []
        """Flushes, each with the quiet commands that it waits for."""
        self._left: list[Any] = []
        """Frames of the last message that are not begun yet."""
        self._subscription: Subscription | None = None
        self._listening: Listening | None = None
        if hello.inbox:
            self._listening = relay.listen(caller, self._push_item)
        self._unwatch = relay.on_revoked(caller, self._shut_out)
        key = self.key = (caller.team, caller.agent)
        shares = self._shares = relay.shares
        self._used, self._in_turn, self._free_at = shares.used, shares.in_turn, shares.free_at
        outbox.count(partial(relay.outgoing.add, key), partial(relay.outgoing.has_room, key))

    @property
    def works(self) -> bool:
        """Whether it is a worker's: it promised heartbeats."""
        return self._hello.heartbeat_seconds is not None

    def take(self, data: bytes) -> bool:
        """Begin what a WebSocket message asks for; False: `receive` has to go on with it."""
        key, shares = self.key, self._shares
        turn = self._in_turn.get(key) or shares.turn_of(key)
        if (
            len(data) > LARGE_BYTES
            or turn.seconds >= SLICE_SECONDS
            or (key in self._free_at and not shares.is_free(key))
        ):
            return False
        try:
            used, began = self._used(), perf_counter()
            said = decode_plainly(data, READER, self.relay.limits)
            if said is None:
                return False
            if self._subscription is not None and not (said and type(said[-1]) is Credit):
                # Whatever a message says, its process is alive. A credit tells of that by itself.
                self._subscription.hear()
            seconds = self._begin_all(said, used, began)
        except Exception:
            log.exception("a connection could not be served")
            self._end(FAULT)
            return True
        if seconds is None:
            return not self._left
        turn.seconds += seconds
        return True

    async def receive(self, data: bytes) -> None:
        """Begin what a WebSocket message asks for that was not, or not wholly, taken.

        Pauses after what was costly, where the agent's share of the relay's time is used up.
        """
        await self._shares.turn(self.key)
        if not self._left:
            if self._subscription is not None:
                self._subscription.hear()
            read = partial(decode_plainly, data, READER, self.relay.limits)
            large = len(data) > LARGE_BYTES
            said = await self._shares.aside(self.key, read) if large else read()
            if said is None:
                await self._look_closer(data)
                return
            self._left = said
        while True:
            seconds = self._begin_all(self._left, self._used(), perf_counter())
            if seconds is not None:
                self._shares.spent(self.key, seconds)
                return
            await self._shares.turn(self.key)

    def _begin_all(self, said: list[Any], used: float, began: float) -> float | None:
        """Begin what frames ask for, and return the seconds since `began`.

        None: that was costly and is counted, and what is left is in `_left`.
        """
        # Processor time counts. It takes a system call to ask for it: only where time has passed.
        asked, ask, seconds = self.asked, self.relay.ask, 0.0
        for number, frame in enumerate(said, 1):
            if type(frame) is Flush:
                self._flush(frame.id)
            elif len(asked) >= self._commands_max:
                self._refuse_one_more(frame.id)
            elif type(frame) is Credit:
                self._credit(frame)
            else:
                asking = Asked(self, frame)
                asked.add(asking)
                if frame.quiet:
                    self._quiet.add(asking)
                ask(asking)
            seconds = perf_counter() - began
            if seconds >= COSTLY_SECONDS:
                self._shares.spent(self.key, self._used() - used)
                self._left = said[number:]
                return None
        self._left = []
        return seconds

    async def close(self) -> None:
        """Let go: nobody waits for the answers any more, and no more work is taken."""
        self.followed_max = 0
        self.outbox.close()
        self._unwatch()
        for asking in (*self.asked, *self.followed):
            self.relay.leave(asking)
        if self._subscription is not None:
            self._subscription.close()
        if self._listening is not None:
            self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # All of these hold this connection: it would not be freed without the collector.
        self.asked.clear()
        self.followed.clear()
        self._quiet.clear()
        self._flushes.clear()
        self._subscription = self._listening = None

    async def _look_closer(self, data: bytes) -> None:
        """Begin what each frame of a message asks for, or say what is wrong with it."""
        try:
            several = frames.split(data)
        except NodropError as error:
            self.refuse(None, error)
            return
        used = self._used()
        for frame in several:
            read, costly = partial(self._read_closely, frame), False
            try:
                if len(frame) > LARGE_BYTES:
                    said = await self._shares.aside(self.key, read)
                    used = self._used()
                else:
                    said = read()
                costly = self._begin_all([said], used, perf_counter()) is None
            except NodropError as error:
                self.refuse(frames.read_id(frame, self.relay.limits), error)
            if not costly and (seconds := self._used() - used) >= COSTLY_SECONDS:
                self._shares.spent(self.key, seconds)
                costly = True
            if costly:
                await self._shares.turn(self.key)
                used = self._used()
        self._shares.spent(self.key, self._used() - used)

    def _read_closely(self, data: bytes) -> Call | Credit | Flush:
        limits = self.relay.limits
        frame = peek(data, Frame, limits)
        if frame.op == "hello":
            problem = Problem(path="op", message="hello is said once, at the beginning")
            raise InvalidRequestError(problem.message, errors=(problem,))
        if frame.op == "credit":
            return decode_strict(data, Credit, limits)
        if frame.op == "flush":
            return decode_strict(data, Flush, limits)
        return frames.read_call(frame, data, limits)

    def _credit(self, credit: Credit) -> None:
        """Let more deliveries come."""
        subscription = self._subscription
        if subscription is None:
            self._spawn(self._answer(credit.id, self._subscribe(credit)))
            return
        try:
            subscription.grant(credit.n)
        except NodropError as error:
            subscription.hear()
            self.refuse(credit.id, error)
            return
        if credit.id is not None and not self.outbox.answer(frames.ok(credit.id, {})):
            self.refuse(credit.id, unread(self.caller.agent))

    def _refuse_one_more(self, frame_id: Id) -> None:
        """Refuse a command where too many wait for their answers."""
        if self._subscription is not None:
            self._subscription.hear()  # it may be a credit
        full = QueueFullError(f"{self._in_flight_max} commands wait on this connection")
        self.outbox.put(frames.refusal(frame_id, full))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        self._commands_max -= 1
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._commands_max += 1

    def refused(self, asking: Asked, error: NodropError) -> None:
        """Send a refusal: of a command, or of following an outcome any longer."""
        if asking in self.followed:
            self.followed.discard(asking)
            self.refuse(asking.frame.id, error)
            return
        self.asked.discard(asking)
        if isinstance(error, UnauthenticatedError):
            self._shut_out()  # it may have a better one, and sends this again if so
        else:
            self.refuse(asking.frame.id, error)
            if asking.frame.quiet:
                self.carried_out(asking)

    def refuse(self, frame_id: Id, error: NodropError) -> None:
        """Send why something is not done."""
        self.outbox.put(frames.refusal(frame_id, error))
        forget_frames(error)

    # --- quiet commands ---

    def _flush(self, frame_id: Id) -> None:
        if len(self._flushes) >= self._in_flight_max:
            full = QueueFullError(f"{self._in_flight_max} flushes wait on this connection")
            self.outbox.put(frames.refusal(frame_id, full))
        elif self._quiet:
            self._flushes.append((frame_id, set(self._quiet)))
        else:
            self.outbox.put(frames.ok(frame_id, {}))

    def carried_out(self, asking: Asked) -> None:
        """Answer the flushes that waited for a quiet command."""
        self._quiet.discard(asking)
        if not self._flushes:
            return
        waiting: list[tuple[Id, set[Asked]]] = []
        for frame_id, before in self._flushes:
            before.discard(asking)
            if before:
                waiting.append((frame_id, before))
            else:
                self.outbox.put(frames.ok(frame_id, {}))
        self._flushes = waiting

    # --- tasks ---

    async def _answer(self, frame_id: Id, work: Coroutine[Any, Any, object]) -> None:
        try:
            answer = await work
            if answer is _NOTHING or not await self.outbox.turn():
                return
            message = frames.ok(frame_id, answer)
        except UnauthenticatedError:
            self._shut_out()
            return
        except NodropError as error:
            message = frames.refusal(frame_id, error)
        except Exception:
            log.exception("a frame could not be carried out")
            message = frames.refusal(frame_id, RelayFaultError())
        self.outbox.put(message)

    async def _subscribe(self, credit: Credit) -> object:
        if self._subscription is None:
            self._subscription = self.relay.subscribe(
                self.caller,
                process=self.process,
                heartbeat_seconds=self._hello.heartbeat_seconds,
                deliver=self._push_deliveries,
                turn=self.outbox.turn,
                has_room=lambda: self.outbox.has_room,
                offered=self._push_offered,
            )
            if not await self._resumed(self._subscription):
                return _NOTHING
        self._subscription.grant(credit.n)
        return _NOTHING if credit.id is None else {}

    async def _resumed(self, subscription: Subscription) -> bool:
        """Push again what was not acknowledged. If the store cannot tell, the connection ends."""
        try:
            await subscription.prepare()
            if self._hello.resume is not None:
                await subscription.resume()
        except UnavailableError as error:
            log.warning("a process could not be resumed: %s", error)
            self._end(COME_BACK)
        return not self.failed.done()

    def _shut_out(self) -> None:
        self._end(UNAUTHENTICATED)

    def _end(self, code: int) -> None:
        if not self.failed.done():
            self.failed.set_result(code)

    def _push_deliveries(self, deliveries: Sequence[PushView]) -> None:
        for delivery in deliveries:
            self.outbox.put(frames.delivery(delivery))

    def _push_offered(self, waiting: Sequence[WaitingView]) -> None:
        for offer in waiting:
            self.outbox.put(frames.offered(offer))

    def _push_item(self, item: ItemView) -> None:
        self.outbox.put(frames.item(item))

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
from nodrop.protocol.decoding import decode_strict, peek
from nodrop.protocol.requests import Request
from nodrop.protocol.views import (
    EndedAnswer,
    HandoffAnswer,
    ItemView,
    OfferedAnswer,
    PushView,
    WaitingView,
)
from nodrop.relay.relay import Asking, Caller, Listening, Relay, Reply, Subscription
from nodrop.relay.room import COSTLY_SECONDS, LARGE_BYTES, unread
from nodrop.servers.websocket import frames
from nodrop.servers.websocket.frames import Call, Credit, Flush, Frame, Hello, Id
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


class _Asking(Asking):
    """A frame that is answered over its connection: an offer perhaps twice, with its outcome too."""

    __slots__ = ("connection", "frame")

    connection: "Connection"
    frame: Any
    """What was said, of a kind in `frames.PLAIN`, or a `Call`: how it is to be answered."""

    def tell(self, reply: Reply) -> None:
        """Take the answer."""
        self.connection.told(self, reply.answer)

    def refuse(self, error: NodropError) -> None:
        """Take the reason why there is none."""
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
        self._relay = relay
        self.caller = caller
        self._hello = hello
        self._process = process
        self._outbox = outbox
        self._in_flight_max = in_flight_max
        self._commands_max = in_flight_max
        """How many commands may wait for their answers besides the tasks."""
        self.failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Done, with a close code, once the client must come back: it could not be told something,
        or what it was let in with is no longer good."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[_Asking] = set()
        """Commands that are not answered yet."""
        self._followed: set[_Asking] = set()
        """Offers whose outcomes are still to come. They are no commands that wait."""
        self._quiet: set[_Asking] = set()
        """Quiet commands that are being carried out."""
        self._flushes: list[tuple[Id, set[_Asking]]] = []
        """Flushes, each with the quiet commands that it waits for."""
        self._left: list[Any] = []
        """Frames of the last message that are not begun yet."""
        self._closed = False
        self._subscription: Subscription | None = None
        self._listening: Listening | None = None
        if hello.inbox:
            self._listening = relay.listen(caller, self._push_item)
        self._unwatch = relay.on_revoked(caller, self._shut_out)
        key = self._key = (caller.team, caller.agent)
        self._shares = relay.shares
        self._used = relay.shares.used
        outbox.count(partial(relay.outgoing.add, key), partial(relay.outgoing.has_room, key))

    @property
    def process(self) -> str:
        """The process that the client is, or was given."""
        return self._process

    @property
    def works(self) -> bool:
        """Whether it is a worker's: it promised heartbeats."""
        return self._hello.heartbeat_seconds is not None

    def take(self, data: bytes) -> bool:
        """Begin what a WebSocket message asks for; False: `receive` has to go on with it."""
        if len(data) > LARGE_BYTES or not self._shares.is_free(self._key):
            return False
        try:
            used, began = self._used(), perf_counter()
            said = frames.read_at_once(data, self._relay.limits)
            if said is None:
                return False
            if self._subscription is not None:
                self._subscription.hear()  # whatever a message says, its process is alive
            return self._begin_all(said, used, began)
        except Exception:
            log.exception("a connection could not be served")
            self._end(FAULT)
            return True

    async def receive(self, data: bytes) -> None:
        """Begin what a WebSocket message asks for that was not, or not wholly, taken.

        Pauses after what was costly, where the agent's share of the relay's time is used up.
        """
        await self._shares.turn(self._key)
        if not self._left:
            if self._subscription is not None:
                self._subscription.hear()
            read = partial(frames.read_at_once, data, self._relay.limits)
            large = len(data) > LARGE_BYTES
            said = await self._shares.aside(self._key, read) if large else read()
            if said is None:
                await self._look_closer(data)
                return
            self._left = said
        while not self._begin_all(self._left, self._used(), perf_counter()):
            await self._shares.turn(self._key)

    def _begin_all(self, said: list[Any], used: float, began: float) -> bool:
        """Begin what frames ask for until that was costly; False: some are left, in `_left`."""
        # Processor time counts. It takes a system call to ask for it: only where time has passed.
        for number, frame in enumerate(said, 1):
            kind = _PLAIN.get(type(frame))
            if kind is None:
                self._begin_own(frame)
            else:
                operation, about_handoff, exact = kind
                request = frame if exact is None else exact(frame)
                reference = frame.handoff_id if about_handoff else None
                self._begin(frame, operation, request, reference)
            if perf_counter() - began >= COSTLY_SECONDS:
                self._shares.spent(self._key, self._used() - used)
                self._left = said[number:]
                return not self._left
        self._shares.spent(self._key, perf_counter() - began)
        self._left = []
        return True

    async def close(self) -> None:
        """Let go: nobody waits for the answers any more, and no more work is taken."""
        self._closed = True
        self._outbox.close()
        self._unwatch()
        for asking in (*self._asked, *self._followed):
            self._relay.leave(asking)
        if self._subscription is not None:
            self._subscription.close()
        if self._listening is not None:
            self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # All of these hold this connection: it would not be freed without the collector.
        self._asked.clear()
        self._followed.clear()
        self._quiet.clear()
        self._flushes.clear()
        self._subscription = self._listening = None

    async def _look_closer(self, data: bytes) -> None:
        """Begin what each frame of a message asks for, or say what is wrong with it."""
        try:
            several = frames.split(data)
        except NodropError as error:
            self._refuse(None, error)
            return
        began = self._used()
        for frame in several:
            read = partial(self._read_closely, frame)
            try:
                if len(frame) > LARGE_BYTES:
                    call = await self._shares.aside(self._key, read)
                    began = self._used()
                else:
                    call = read()
                if isinstance(call, Call):
                    self._begin(call, call.operation, call.request, call.reference, call.name)
                else:
                    self._begin_own(call)
            except NodropError as error:
                self._refuse(frames.read_id(frame, self._relay.limits), error)
            if (seconds := self._used() - began) >= COSTLY_SECONDS:
                self._shares.spent(self._key, seconds)
                await self._shares.turn(self._key)
                began = self._used()
        self._shares.spent(self._key, self._used() - began)

    def _read_closely(self, data: bytes) -> Call | Credit | Flush:
        limits = self._relay.limits
        frame = peek(data, Frame, limits)
        if frame.op == "hello":
            problem = Problem(path="op", message="hello is said once, at the beginning")
            raise InvalidRequestError(problem.message, errors=(problem,))
        if frame.op == "credit":
            return decode_strict(data, Credit, limits)
        if frame.op == "flush":
            return decode_strict(data, Flush, limits)
        return frames.read_call(frame, data, limits)

    def _begin(
        self,
        frame: Any,
        operation: str,
        request: Request,
        reference: str | None,
        name: str | None = None,
    ) -> None:
        """Ask for what a frame asks for, which is answered as the frame says."""
        asked = self._asked
        if len(asked) >= self._commands_max:
            self._refuse_one_more(frame.id)
            return
        if operation in _OF_A_PROCESS:
            request = self._as_this_process(request)
        asking = _Asking(self.caller, operation, request, reference, name)
        asking.connection = self
        asking.frame = frame
        asked.add(asking)
        if frame.quiet:
            asking.quiet = True
            self._quiet.add(asking)
        elif frame.bare:
            asking.quiet = operation != _FOLLOWED or not frame.follow
        self._relay.ask(asking)

    def _begin_own(self, said: Credit | Flush) -> None:
        """Begin what concerns this connection alone."""
        if isinstance(said, Flush):
            self._flush(said.id)
        elif len(self._asked) >= self._commands_max:
            self._refuse_one_more(said.id)
        elif self._subscription is None:
            self._spawn(self._answer(said.id, self._credit(said)))
        else:
            try:
                self._subscription.grant(said.n)
            except NodropError as error:
                self._refuse(said.id, error)
                return
            if said.id is not None and not self._outbox.answer(frames.ok(said.id, {})):
                self._refuse(said.id, unread(self.caller.agent))

    def _refuse_one_more(self, frame_id: Id) -> None:
        """Refuse a command where too many wait for their answers."""
        full = QueueFullError(f"{self._in_flight_max} commands wait on this connection")
        self._outbox.put(frames.refusal(frame_id, full))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        self._commands_max -= 1
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._commands_max += 1

    def told(self, asking: _Asking, answer: object) -> None:
        """Send an answer: at once if there is room, else in its turn.

        One too many for who does not read has to be asked for again.
        """
        self._asked.discard(asking)
        frame = asking.frame
        frame_id = frame.id
        offered = None
        if frame.quiet:
            self._quiet.discard(asking)
            if self._flushes:
                self._carried_out(asking)
            return
        if asking.quiet:
            message = _CARRIED_OUT % _encode(frame_id)
        elif type(answer) is EndedAnswer:
            self._followed.discard(asking)
            message = frames.ended(frame_id, answer)
        else:
            if asking.operation == _FOLLOWED and frame.follow:
                offered = self._followable(answer)
            message = frames.ok(frame_id, answer, follows=offered is not None)
        if not self._outbox.answer(message):
            self._refuse(frame_id, unread(self.caller.agent))
        if offered is not None:
            self._followed.add(asking)
            self._relay.follow(asking, offered.handoff.id)

    def _followable(self, answer: object) -> OfferedAnswer | HandoffAnswer | None:
        room = len(self._followed) < self._in_flight_max and not self._closed
        return answer if room and isinstance(answer, OfferedAnswer | HandoffAnswer) else None

    def refused(self, asking: _Asking, error: NodropError) -> None:
        """Send a refusal: of a command, or of following an outcome any longer."""
        if asking in self._followed:
            self._followed.discard(asking)
            self._refuse(asking.frame.id, error)
            return
        self._asked.discard(asking)
        if isinstance(error, UnauthenticatedError):
            self._shut_out()  # it may have a better one, and sends this again if so
        else:
            self._refuse(asking.frame.id, error)
            if asking.frame.quiet:
                self._quiet.discard(asking)
                self._carried_out(asking)

    def _refuse(self, frame_id: Id, error: NodropError) -> None:
        """Send why something is not done."""
        self._outbox.put(frames.refusal(frame_id, error))
        forget_frames(error)

    # --- quiet commands ---

    def _flush(self, frame_id: Id) -> None:
        if len(self._flushes) >= self._in_flight_max:
            full = QueueFullError(f"{self._in_flight_max} flushes wait on this connection")
            self._outbox.put(frames.refusal(frame_id, full))
        elif self._quiet:
            self._flushes.append((frame_id, set(self._quiet)))
        else:
            self._outbox.put(frames.ok(frame_id, {}))

    def _carried_out(self, asking: _Asking) -> None:
        waiting: list[tuple[Id, set[_Asking]]] = []
        for frame_id, before in self._flushes:
            before.discard(asking)
            if before:
                waiting.append((frame_id, before))
            else:
                self._outbox.put(frames.ok(frame_id, {}))
        self._flushes = waiting

    # --- tasks ---

    async def _answer(self, frame_id: Id, work: Coroutine[Any, Any, object]) -> None:
        try:
            answer = await work
            if answer is _NOTHING or not await self._outbox.turn():
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
        self._outbox.put(message)

    def _as_this_process(self, request: Any) -> Request:
        """Return `request`; where it leaves its process out, it means this connection's."""
        if request.process is None:
            return msgspec.structs.replace(request, process=self._process)
        return request

    async def _credit(self, credit: Credit) -> object:
        if self._subscription is None:
            self._subscription = self._relay.subscribe(
                self.caller,
                process=self._process,
                heartbeat_seconds=self._hello.heartbeat_seconds,
                deliver=self._push_deliveries,
                turn=self._outbox.turn,
                has_room=lambda: self._outbox.has_room,
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
            self._outbox.put(frames.delivery(delivery))

    def _push_offered(self, waiting: Sequence[WaitingView]) -> None:
        for offer in waiting:
            self._outbox.put(frames.offered(offer))

    def _push_item(self, item: ItemView) -> None:
        self._outbox.put(frames.item(item))

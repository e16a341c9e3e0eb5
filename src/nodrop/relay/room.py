"""Backpressure: how much of one agent's may be waiting, and how fast it may ask for more.

Work, requests, reads and bytes to be sent are each counted by agent, so that one which takes too
much is refused, or waits, and the others are not.

Counted from commits, beginning with what the store holds at the start. An offer on its way to a
commit is counted too, so that a burst cannot pass between two commits.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from types import coroutine
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from nodrop.log.port import LARGE_BODY_BYTES, Key, Page, Row, Store
from nodrop.model import budget
from nodrop.model.budget import Bucket
from nodrop.model.commands import Candidate
from nodrop.model.errors import QueueFullError, RateLimitedError, UnavailableError
from nodrop.model.handoff import Handoff, State
from nodrop.model.limits import Limits
from nodrop.model.names import ANONYMOUS
from nodrop.protocol.operations import OPERATIONS
from nodrop.relay.delivery.queues import Workloads

T = TypeVar("T")

_SMALLER: Final = "Wait until some are finished, or cancel some; keep large data elsewhere and hand off where it is."
COSTLY_SECONDS: Final = 0.005
"""A request that takes longer without a pause is costly."""
DEBT_SECONDS_MAX: Final = 2.0
"""The longest that an agent waits for its share, whatever it spent."""
SLICE_SECONDS: Final = 0.01
"""Time for one agent's requests in one turn of the event loop; the rest of them waits for the next."""
HELD_READ_MAX: Final = 10_000
"""Handoffs in one state that a start reads to know who is at work."""
_WITH_A_PROCESS: Final = (State.DELIVERED, State.ACCEPTED, State.BLOCKED)
LARGE_BYTES: Final = 65_536
"""A request larger than this takes a millisecond or more to read: it is read aside."""


class _Bytes:
    """Bytes that the relay holds for agents: so many for each, and fewer where all have much."""

    def __init__(self, *, per_agent: int, per_relay: int, reserved: int) -> None:
        self._per_agent = per_agent
        self._per_relay = per_relay
        self._reserved = reserved
        """What each may have, whatever others have."""
        self.held: dict[Key, int] = {}
        """Nobody is here for whom none are: who has none has room for whatever comes."""
        self._total = 0

    def of(self, key: Key) -> int:
        """Return how many are held for an agent."""
        return self.held.get(key, 0)

    def has_room(self, key: Key, size: int) -> bool:
        """Whether so many more may be held for an agent."""
        most = self._per_agent
        if self._total + size > self._per_relay:
            most = self._reserved
        held = self.held.get(key, 0)
        return not held or held + size <= most

    def add(self, key: Key, size: int) -> None:
        """Count bytes that are held from now on; a negative number: that are no longer."""
        self._total += size
        held = self.held.get(key, 0) + size
        if held:
            self.held[key] = held
        else:
            self.held.pop(key, None)


class Room:
    """The unfinished handoffs of every requester and of every inbox."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.workloads = Workloads()
        self._sizes: dict[Key, int] = {}
        """Bytes of each unfinished handoff that came with a large body since this node started."""
        self._bytes = _Bytes(
            per_agent=limits.open_bytes_per_agent_max,
            per_relay=limits.open_bytes_per_relay_max,
            reserved=limits.open_bytes_reserved,
        )
        """The same by requester."""

    async def load(self, store: Store) -> None:
        """Count what there is. Before anything is committed, so that nothing is counted twice.

        Where several engines write, it is counted again and again, and right to within what they
        wrote meanwhile.
        """
        unfinished = await store.unfinished()
        held: list[Key] = []
        for team in await store.teams():
            for state in _WITH_A_PROCESS:
                page = Page(team=team.id, state=state.value, limit=HELD_READ_MAX)
                listed = await store.list_handoffs(page)
                held += [(h.team, h.recipient) for h in listed if h.live]
        for load in self.workloads.values():
            load.asked = load.inbox = load.held = 0
        for team, origin, recipient, count in unfinished:
            self.workloads[team, origin].asked += count
            self.workloads[team, recipient].inbox += count
        for key in held:
            self.workloads[key].held += 1

    def why_full(self, team: str, origin: str, recipient: str) -> QueueFullError | None:
        """Return why one more handoff would be too many; None if it is not."""
        limits, requester = self._limits, (team, origin)
        anonymous = origin == ANONYMOUS
        most = limits.anonymous_open_handoffs_max if anonymous else limits.open_handoffs_max
        asked = self.workloads[requester].asked
        if asked >= most:
            return self._full(f"{asked} handoffs of {origin} are unfinished")
        if self._sizes and not self._bytes.has_room(requester, 1):
            size = self._bytes.of(requester)
            return self._full(f"the unfinished handoffs of {origin} hold {size} bytes", _SMALLER)
        if self.workloads[team, recipient].inbox < limits.inbox_handoffs_max:
            return None
        return self.why_full_inbox(team, recipient)

    def why_full_inbox(self, team: str, recipient: str) -> QueueFullError | None:
        """Return why one more handoff in an inbox would be too many; None if it is not."""
        waiting = self.workloads[team, recipient].inbox
        if waiting < self._limits.inbox_handoffs_max:
            return None
        return self._full(f"{waiting} handoffs wait in the inbox of {recipient}")

    def fullest_last(self, team: str, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
        """Return whom to ask next, those with a full inbox after all others.

        They are still asked where nobody else is left: what was stored is not dropped because
        somebody has much to do.
        """
        return tuple(sorted(candidates, key=lambda candidate: self.is_full(team, candidate)))

    def is_full(self, team: str, candidate: Candidate) -> bool:
        """Whether an inbox has no room for one more."""
        return self.queued(team, candidate.agent) >= self._limits.inbox_handoffs_max

    def queued(self, team: str, agent: str) -> int:
        """Return how many unfinished handoffs an agent has, with offers on their way to a commit."""
        load = self.workloads.get((team, agent))
        return 0 if load is None else load.inbox

    def holds(self, team: str, agent: str) -> bool:
        """Whether a process of an agent has something."""
        load = self.workloads.get((team, agent))
        return load is not None and load.held > 0

    def waiting(self, team: str) -> dict[str, int]:
        """Return how many unfinished handoffs each agent of a team is the recipient of."""
        return {
            agent: load.inbox
            for (of, agent), load in self.workloads.items()
            if of == team and load.inbox
        }

    def _full(self, detail: str, next_step: str | None = None) -> QueueFullError:
        error = QueueFullError(detail, next_step=next_step)
        error.retry_after_seconds = self._limits.full_retry_seconds
        return error

    @contextmanager
    def reserved(self, team: str, origin: str, recipient: str) -> Generator[None]:
        """Count an offer until its commit is counted, or it came to nothing."""
        self.reserve(team, origin, recipient)
        try:
            yield
        finally:
            self.release(team, origin, recipient)

    def reserve(self, team: str, origin: str, recipient: str, *, held: bool = False) -> None:
        """Count an offer that is on its way to a commit, or what is unfinished."""
        self.workloads[team, origin].asked += 1
        load = self.workloads[team, recipient]
        load.inbox += 1
        if held:
            load.held += 1

    def release(self, team: str, origin: str, recipient: str, *, held: bool = False) -> None:
        """Count it no longer: its commit is counted, it came to nothing, or it is finished."""
        requester = self.workloads[team, origin]
        if requester.asked:
            requester.asked -= 1
        load = self.workloads[team, recipient]
        if load.inbox:
            load.inbox -= 1
        if held and load.held:
            load.held -= 1

    def committed(
        self,
        changed: Iterable[tuple[Handoff | None, Row]],
        bodies: Mapping[tuple[str, str, int], bytes | None],
    ) -> bool:
        """Count what a commit changed, each handoff as it was and as it is; return whether some can be taken."""
        workloads, takeable = self.workloads, False
        for before, row in changed:
            if before is not None and before.outcome is not None:
                continue  # what had ended is counted nowhere
            after = row.handoff
            team, recipient, is_open = after.team, after.recipient, after.outcome is None
            if before is None:
                if not is_open:
                    continue
                workloads[team, after.origin].asked += 1
                load = workloads[team, recipient]
                load.inbox += 1
                load.held += after.live
                content = bodies.get((team, after.id, 1))
                if content is not None and len(content) > LARGE_BODY_BYTES:
                    self._sizes[team, after.id] = len(content)
                    self._bytes.add((team, after.origin), len(content))
            else:
                load = workloads[team, recipient]
                if recipient != before.recipient:
                    self.release(team, before.origin, before.recipient, held=before.live)
                    if is_open:
                        self.reserve(team, after.origin, recipient, held=after.live)
                elif not is_open:
                    requester = workloads[team, before.origin]
                    if requester.asked:
                        requester.asked -= 1
                    if load.inbox:
                        load.inbox -= 1
                    if before.live and load.held:
                        load.held -= 1
                elif after.live is not before.live:
                    load.held = max(load.held + (1 if after.live else -1), 0)
                if not is_open and self._sizes and (size := self._sizes.pop((team, after.id), 0)):
                    self._bytes.add((team, after.origin), -size)
            if row.rank is not None:
                takeable = True
            if load.noted is not None or len(after.asked) > 1:
                workloads.note(after)
            elif load.line is not None:
                load.line.note(after, row.rank)
        return takeable


class _Line:
    """The turns of one agent: how many are free, and who waits for one, in order."""

    __slots__ = ("free", "waiting")

    def __init__(self, free: int) -> None:
        self.free = free
        self.waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()


class Turns:
    """Agents that do something so many at a time; more of one agent's wait in line.

    Cancelling one that waits takes constant time. With `asyncio.Semaphore` it takes time in proportion to
    the number that wait, and a client that hangs up cancels thousands.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: dict[Key, _Line] = {}

    @asynccontextmanager
    async def turn(self, key: Key, *, waiting_max: int | None = None) -> AsyncGenerator[None]:
        """Enter when it is the agent's turn.

        Raises:
            QueueFullError: `waiting_max` wait already.
        """
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(self._most)
        if line.free:
            line.free -= 1
        elif waiting_max is not None and len(line.waiting) >= waiting_max:
            raise _too_many_wait(key, len(line.waiting))
        else:
            await self._wait(key, line)
        try:
            yield
        finally:
            self._pass_on(key, line)

    async def _wait(self, key: Key, line: _Line) -> None:
        turn = asyncio.get_running_loop().create_future()
        line.waiting[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                line.waiting.pop(turn, None)
            else:
                self._pass_on(key, line)  # its turn came in the same moment
            raise

    def _pass_on(self, key: Key, line: _Line) -> None:
        """Give a turn to who waits first, or keep it."""
        while line.waiting:
            turn, _ = line.waiting.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                return
        line.free += 1
        if line.free == self._most:
            del self._lines[key]


def _too_many_wait(key: Key, count: int) -> QueueFullError:
    return QueueFullError(
        f"{count} requests of {key[1]} wait",
        next_step="Ask for fewer things at a time, or look without `wait`.",
    )


class Aside(Protocol):
    """Does something that takes long on a thread, for an agent, and waits for it."""

    async def __call__(self, key: Key, work: Callable[[], T]) -> T:
        """Return what `work` returns."""
        ...


class Meter:
    """What an agent may ask for before anybody looks at the clock again."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, at: int) -> None:
        self.left = left
        self.at = at


NONE_LEFT: Final = Meter(0, 0)


class InTurn(msgspec.Struct, gc=False):
    """An agent in one turn of the event loop."""

    seconds: float = 0.0
    """Time that was spent on it."""
    caller: object = None
    """The caller that was admitted last."""
    meter: Meter = NONE_LEFT
    """Commands that this caller may ask for without another look."""


class Shares:
    """The relay's time: an agent whose requests are costly waits between them, and others do not.

    Many small requests of one agent take turns with those of others: each turn of the event loop has
    time for a slice of them. That delays nothing while nobody else asks. Reading large requests and
    checking large payloads is done on one thread, one of an agent's at a time.
    """

    def __init__(self, limits: Limits, *, used: Callable[[], float]) -> None:
        """Go by `used`, seconds of processor time: a busy machine is no agent's doing."""
        self.used = used
        self._waits_per_second = 100 / limits.costly_percent - 1
        self._waiting_max = limits.reads_waiting_per_agent_max
        self.free_at: dict[Key, float] = {}
        """When those that wait for their share have time again."""
        self._turns = Turns(1)
        self._aside = Turns(1)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nodrop-large")
        self.in_turn: dict[Key, InTurn] = {}
        """Agents that asked for something in this turn of the event loop: empty in the next."""

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def turn_of(self, key: Key) -> "InTurn":
        """Return what is known of an agent in this turn of the event loop."""
        known = self.in_turn.get(key)
        if known is None:
            if not self.in_turn:
                asyncio.get_running_loop().call_soon(self.in_turn.clear)
            known = self.in_turn[key] = InTurn()
        return known

    def spent(self, key: Key, seconds: float) -> None:
        """Count time that was spent on an agent without a pause."""
        self.turn_of(key).seconds += seconds
        if seconds >= COSTLY_SECONDS:
            self._charge(key, seconds)

    def _charge(self, key: Key, seconds: float) -> None:
        """Have an agent wait for its share after something costly."""
        now = asyncio.get_running_loop().time()
        free_at = max(self.free_at.get(key, now), now) + seconds * self._waits_per_second
        self.free_at[key] = min(free_at, now + DEBT_SECONDS_MAX)

    def is_free(self, key: Key) -> bool:
        """Whether an agent need not wait: for its share, or for the next turn of the event loop."""
        free_at = self.free_at.get(key)
        if free_at is not None:
            if free_at > asyncio.get_running_loop().time():
                return False
            del self.free_at[key]
        known = self.in_turn.get(key)
        return known is None or known.seconds < SLICE_SECONDS

    async def turn(self, key: Key, *, waiting_max: int | None = None) -> None:
        """Return when an agent has time again; its requests wait in line, at most `waiting_max`."""
        if self.is_free(key):
            return
        async with self._turns.turn(key, waiting_max=waiting_max):
            while not self.is_free(key):
                now = asyncio.get_running_loop().time()
                await asyncio.sleep(max(self.free_at.get(key, now) - now, 0))

    async def aside(self, key: Key, work: Callable[[], T]) -> T:
        """Return what `work` returns, done on the thread and counted for an agent."""

        def timed() -> tuple[T | None, Exception | None, float]:
            began = self.used()
            try:
                return work(), None, self.used() - began
            except Exception as error:  # noqa: BLE001  # raised below, its time counted
                return None, error, self.used() - began

        async with self._aside.turn(key):
            await self.turn(key)
            try:
                doing = asyncio.get_running_loop().run_in_executor(self._thread, timed)
            except RuntimeError:  # closed
                raise UnavailableError("the relay is stopping") from None
            done, error, seconds = await doing
            if seconds >= COSTLY_SECONDS:
                self._charge(key, seconds)
        if error is not None:
            raise error
        return cast("T", done)

    @coroutine
    def measured(
        self, key: Key, work: Coroutine[Any, Any, T], *, paced: bool = False
    ) -> Generator[Any, Any, T]:
        """Return what `work` returns, its time counted for an agent.

        What is `paced` also waits for the agent's turn before each of its steps, and is refused where
        too many wait. It must hold nothing meanwhile that others wait for.
        """
        used = self.used
        step: Callable[[Any], Any] = work.send
        value: Any = None
        waits_for: Any = None
        try:
            while True:
                if paced and not self.is_free(key):
                    try:
                        yield from self.turn(key, waiting_max=self._waiting_max).__await__()
                    except BaseException as error:  # noqa: BLE001  # work is told, and decides
                        step, value = work.throw, error
                began = used()
                try:
                    waits_for = step(value)
                except StopIteration as done:
                    return done.value
                finally:
                    self.spent(key, used() - began)
                try:
                    step, value = work.send, (yield waits_for)
                except BaseException as error:  # noqa: BLE001  # work is told, and decides
                    step, value = work.throw, error
        finally:
            del value, waits_for  # an error would hold this frame, and this frame the error


class Waits:
    """Requests that wait, by agent."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[Key, int] = {}

    def enter(self, key: Key) -> None:
        """Count one more.

        Raises:
            QueueFullError: that is one too many.
        """
        waiting = self._waiting.get(key, 0)
        if waiting >= self._most:
            raise _too_many_wait(key, waiting)
        self._waiting[key] = waiting + 1

    def leave(self, key: Key) -> None:
        """Count one less."""
        left = self._waiting.get(key, 0) - 1
        if left > 0:
            self._waiting[key] = left
        else:
            self._waiting.pop(key, None)


class Incoming(_Bytes):
    """Bytes of requests that are on their way, by agent."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(
            per_agent=limits.incoming_bytes_per_agent_max,
            per_relay=limits.incoming_bytes_per_relay_max,
            reserved=limits.frame_bytes_max,
        )

    def take(self, key: Key, size: int) -> None:
        """Count bytes that came.

        Raises:
            QueueFullError: more of that agent's are on their way than may be.
        """
        if not self.has_room(key, size):
            raise QueueFullError(
                f"{self.of(key)} bytes of requests of {key[1]} are on their way",
                next_step="Send fewer large requests at a time, then repeat the same command.",
            )
        self.add(key, size)

    @contextmanager
    def counting(self, key: Key) -> Generator[Callable[[int], None]]:
        """Have the bytes of a request counted by what this yields, until the block ends."""
        size = 0

        def counted(more: int) -> None:
            nonlocal size
            self.take(key, more)
            size += more

        try:
            yield counted
        finally:
            self.add(key, -size)


class Outgoing(_Bytes):
    """Bytes that wait to be read by clients, by agent."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(
            per_agent=limits.outgoing_bytes_per_agent_max,
            per_relay=limits.outgoing_bytes_per_relay_max,
            reserved=limits.outgoing_bytes_max,
        )

    @contextmanager
    def waiting(self, key: Key, size: int) -> Generator[None]:
        """Count bytes while the block runs.

        Raises:
            QueueFullError: more wait for that agent than it may leave unread.
        """
        if not self.has_room(key, size):
            raise unread(key[1])
        self.add(key, size)
        try:
            yield
        finally:
            self.add(key, -size)


def unread(agent: str) -> QueueFullError:
    """Return the refusal of a large answer to an agent that leaves others unread."""
    return QueueFullError(
        f"{agent} has not read what it was answered",
        next_step="Read the answers that are there, ask for less at a time, then ask again.",
    )


COUNTED: Final = frozenset(
    name for name, operation in OPERATIONS.items() if operation.changes and name != "heartbeat"
)
"""What counts as a command. Nobody shall lose its work because a heartbeat was one too many."""


class Rates:
    """How fast each agent asks. Costs a look-up, until an agent has used up its burst."""

    def __init__(self, limits: Limits, *, now: Callable[[], int]) -> None:
        self._limits = limits
        self._now = now
        self._offers: dict[Key, Meter] = {}
        self.commands: dict[Key, Meter] = {}
        self._attempts: dict[Key, Meter] = {}
        """Of callers without a bearer, by what they ask for and their address: bounded, the oldest
        are forgotten first."""

    def spend(self, key: Key, *, offer: bool) -> Meter:
        """Count a command of an agent; refuse it if that is one too many now.

        Returns where its next commands are counted, as long as there are any left.
        """
        meter = self.commands.get(key)
        if meter is None or meter.left < 1:
            meter = self._refill(self.commands, key, self._limits.commands_per_second_max)
        meter.left -= 1
        if offer:
            offers = self._offers.get(key)
            if offers is None or offers.left < 1:
                offers = self._refill(self._offers, key, self._limits.offers_per_second_max)
            offers.left -= 1
        return meter

    def spend_attempt(self, address: str) -> None:
        """Count an attempt to sign in; refuse it if that is one too many now."""
        self._take_of_address("", address, self._limits.sign_ins_per_second_max)

    def spend_anonymous(self, address: str) -> None:
        """Count a call without a token; refuse it if that is one too many now."""
        self._take_of_address(ANONYMOUS, address, self._limits.anonymous_calls_per_second_max)

    def _take_of_address(self, what: str, address: str, per_second: float) -> None:
        meter = self._attempts.get((what, address))
        if meter is None or meter.left < 1:
            meter = self._refill(self._attempts, (what, address), per_second)
        meter.left -= 1
        while len(self._attempts) > self._limits.refusals_max:
            del self._attempts[next(iter(self._attempts))]

    def _refill(self, meters: dict[Key, Meter], key: Key, per_second: float) -> Meter:
        """Return a meter with what has come in since; refuse its owner where that is nothing."""
        meter = meters.get(key)
        now, most = self._now(), max(per_second * self._limits.burst_seconds, 1.0)
        if meter is None:
            meter = meters[key] = Meter(most, now)
            return meter
        bucket = budget.refilled(
            Bucket(level=meter.left, at=meter.at), now=now, per_second=per_second, most=most
        )
        if bucket.level < 1:
            error = RateLimitedError(
                f"{key[1] or 'this caller'} may ask {per_second:g} times a second"
            )
            error.retry_after_seconds = budget.wait_seconds(bucket, cost=1, per_second=per_second)
            raise error
        meter.left, meter.at = bucket.level, bucket.at
        return meter

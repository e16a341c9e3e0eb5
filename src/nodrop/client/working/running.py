"""One delivery being worked on: acknowledge it, run its handler, report how it ended.

Everything said about a delivery carries its attempt, so a delivery that another process has by now
cannot be changed from here; it is dropped without a report.
"""

import asyncio
import functools
import inspect
import logging
from collections import deque
from collections.abc import Awaitable
from typing import Any, Final, Protocol, cast

from nodrop.client import tracing
from nodrop.client.client import Client
from nodrop.client.durations import seconds
from nodrop.client.endings import Fail, Parked, Reject
from nodrop.client.portal import Portal
from nodrop.client.transports.retrying import Retrying
from nodrop.client.values import given, plain
from nodrop.client.working import threads
from nodrop.client.working.blocking_task import BlockingTask
from nodrop.client.working.handlers import Handler
from nodrop.client.working.lease import Lease
from nodrop.client.working.task import Task
from nodrop.model.errors import (
    AlreadyFinishedError,
    CallerError,
    InvalidRequestError,
    NodropError,
    NotFoundError,
    StaleAttemptError,
    TooLargeError,
    UnansweredError,
    UnavailableError,
)

REASON_CHARS_MAX: Final = 2_000
TIMEOUT_CHECK_SECONDS: Final = 0.1
"""How soon the relay is asked again about an attempt whose time is up; twice as long each time."""
_GONE: Final = (StaleAttemptError, AlreadyFinishedError, NotFoundError)

_LOG: Final = logging.getLogger("nodrop.worker")

Key = tuple[str, int]
"""What a delivery is known by: the handoff's id and the attempt."""
_Sent = tuple[dict[str, Any], Awaitable[object]]
"""A command as it was sent, and its answer."""


class Host(Protocol):
    """What a delivery is worked on for: the worker."""

    client: Client
    """The worker's connection."""
    policy: Retrying
    """How to report again what the relay could not take."""

    def free(self) -> None:
        """Let another delivery come."""
        ...

    def ended(self, running: "Running") -> None:
        """Take a delivery of which nothing is left to do."""
        ...


class Running:
    """A delivery and the work on it.

    The acknowledgement is sent at once; one task awaits the answer, runs the handler and reports.
    Cancelling that task while the handler runs cancels the handler.
    """

    reporting = True
    """The relay is being told something that may end it: its answer counts, nothing else."""
    _working: asyncio.Task[None] | None = None
    _stopped = False
    _freed = False

    def __init__(
        self,
        key: Key,
        delivery: dict[str, Any],
        handler: Handler | None,
        lease: Lease,
        slot: "Slot",
        *,
        host: Host,
    ) -> None:
        """Prepare the work; `start` begins it.

        Args:
            key: what the delivery is known by.
            delivery: the delivery as it came.
            handler: does the work; None: this agent has no handler for it.
            lease: the delivery's.
            slot: held while the handler runs: the capability's bound on how many do.
            host: the worker, which lets another delivery come, once, and is told the end.
        """
        self.key = key
        self.lease = lease
        self.task = Task(delivery, host.client, lease)
        self._handler = handler
        self._slot = slot
        self._host = host
        self._began = lease.arrived_at

    def start(self) -> None:
        """Begin: the acknowledgement is sent before this returns."""
        ack = None if self._handler is None else self._sent("ack", {})
        self._working = asyncio.create_task(self._run(ack))

    @property
    def working(self) -> "asyncio.Task[None]":
        """The task that does the work."""
        assert self._working is not None, "it was started"
        return self._working

    def stop(self) -> None:
        """Cancel the work because the worker stops: it is given back, and nothing is reported."""
        self._stopped = True
        self.working.cancel()

    async def _run(self, ack: "_Sent | None") -> None:
        """Do the work and report it. Raises nothing but its own cancellation."""
        lease, handler = self.lease, self._handler
        try:
            if handler is None or ack is None:
                await self._report("reject", {"reason": f"no handler for {self._asked()}"})
                return
            try:
                await ack[1]
            except NodropError as error:
                await self._report_again("ack", {}, ack[0], error)
            if lease.lost:
                return
            lease.confirmed(lease.arrived_at)  # when it was sent
            self.reporting = False
            slot = self._slot
            if slot.free:
                slot.free -= 1
            else:
                await slot.wait()
            try:
                if lease.lost:
                    return
                self._began = lease.now()
                if _LOG.isEnabledFor(logging.INFO):
                    _LOG.info("%s started: attempt %d", self.task.ref, self.key[1])
                operation, fields = await self._handled(handler)
            finally:
                slot.release()
            if operation is None:  # and nothing may be awaited: a cancellation may be under way
                return
            self._freed = True
            self._host.free()  # the next delivery may share a commit with this report
            await self._report(operation, fields)
        finally:
            if not self._freed:
                self._host.free()
            self._host.ended(self)

    def _asked(self) -> str:
        capability = self.task.capability
        return f"the capability {capability}" if capability else "handoffs without a capability"

    async def _handled(self, handler: Handler) -> tuple[str | None, dict[str, Any]]:
        """Run the handler; return how it ended as a command, or none if there is nothing to say."""
        task, lease = self.task, self.lease
        timing = None if task.view.get("timeout") is None else self._begin_timing()
        result, raised = None, None
        lease.handling = self._working
        try:
            with tracing.handling(task):
                result = _plain_result(await self._returned(handler, task))
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except asyncio.CancelledError as error:
            if not lease.lost and self.working.cancelling():
                raise
            raised = error
        except BaseException as error:  # noqa: BLE001  # reported
            raised = error
        finally:
            lease.handling = None
            if timing is not None:
                timing.cancel()
        if self._stopped:
            raise asyncio.CancelledError
        ending = ("complete", {"result": result}) if raised is None else self._ending(raised)
        del raised  # its traceback holds this frame
        if lease.lost:
            _LOG.info("%s stopped: this process no longer holds it", task.ref)
            return None, {}
        return ending

    def _begin_timing(self) -> "asyncio.Task[None]":
        timing = asyncio.create_task(self._time_out())
        timing.add_done_callback(_retrieve)
        return timing

    async def _time_out(self) -> None:
        """Stop the handler at its timeout, which the relay has counted too and takes back itself.

        The relay's word counts: it began earlier, agreed to more time, or was away meanwhile.
        """
        while True:
            await self.lease.active.runs.wait()
            timeout = self.task.view.get("timeout")
            if timeout is None:
                return
            left = seconds(timeout) - self.lease.active.seconds
            if left <= 0:
                break
            await self._host.policy.sleep(left)
        delay = TIMEOUT_CHECK_SECONDS
        try:
            while await self.lease.check():
                await self._host.policy.sleep(delay)
                delay *= 2
        except UnansweredError as error:
            _LOG.warning("%s: its timeout could not be checked: %s", self.task.ref, error)
            return
        _LOG.info("%s: cancelled at its timeout of %s", self.task.ref, timeout)

    async def _returned(self, handler: Handler, task: Task) -> Any:
        """Return what the handler returns."""
        try:
            if handler.is_async:
                args, kwargs = handler.bind(task, task.view.get("payload"))
                return await handler.function(*args, **kwargs)
            return await self._in_thread(handler)
        except SystemExit as error:
            # Passed on, it would end the program, and with it the handlers beside this one.
            raise RuntimeError(f"the handler called sys.exit({error.code!r})") from error

    async def _in_thread(self, handler: Handler) -> Any:
        twin = BlockingTask(self.task, Portal(asyncio.get_running_loop()))
        args, kwargs = handler.bind(twin, self.task.payload)
        work = functools.partial(handler.function, *args, **kwargs)
        result = await threads.run(work, name=f"nodrop {self.task.ref}", cancel=twin.cancel)
        return await result if inspect.isawaitable(result) else result

    def _ending(self, raised: BaseException) -> tuple[str | None, dict[str, Any]]:
        match _meant(raised):
            case asyncio.CancelledError():
                return "fail", {"code": "exception", "reason": "CancelledError", "retryable": True}
            case Parked():
                _LOG.info("%s parked: it goes on when its question is answered", self.task.ref)
                return None, {}
            case Reject() as ending:
                return "reject", given(reason=_words(ending.reason))
            case Fail() as ending:
                said = given(code=ending.code, reason=_words(ending.reason))
                return "fail", {**said, "retryable": ending.retryable}
            case error if self.lease.lost:
                _LOG.debug("%s: the handler of a lost delivery ended: %r", self.task.ref, error)
                return None, {}
            case error:
                _LOG.error("%s: the handler failed", self.task.ref, exc_info=raised)
                reason = _words(": ".join(filter(None, (type(error).__name__, _words(error)))))
                return "fail", {"code": "exception", "reason": reason, "retryable": True}

    def _sent(self, operation: str, fields: dict[str, Any]) -> "_Sent":
        """Tell the relay; return what was said, to be repeated as it is, and what awaits the answer."""
        handoff_id, attempt = self.key
        client = self._host.client
        said = {"attempt": attempt, **fields, "command_id": client.new_id()}
        try:
            return said, client.carried_out(operation, said, handoff_id)
        except NodropError as error:  # it comes as an answer does
            refused: asyncio.Future[object] = asyncio.Future()
            refused.set_exception(error)
            return said, refused

    async def _report(self, operation: str, fields: dict[str, Any]) -> None:
        """Tell the relay, for as long as it takes."""
        self.reporting = True
        said, answer = self._sent(operation, fields)
        try:
            await answer
        except NodropError as error:
            await self._report_again(operation, fields, said, error)
        else:
            if _LOG.isEnabledFor(logging.INFO):
                self._log_ending(operation, fields)

    async def _report_again(
        self, operation: str, fields: dict[str, Any], said: dict[str, Any], error: NodropError
    ) -> None:
        """Tell the relay what it did not take, unless it is no longer ours to tell."""
        try:
            if not isinstance(error, UnavailableError) or isinstance(error, UnansweredError):
                raise error
            await self._repeat(operation, said, error)
        except _GONE as gone:
            _LOG.info("%s: %s came too late: %s", self.task.ref, operation, gone)
            self.lease.lost = True
        except (CallerError, UnansweredError) as refusal:
            if operation == "ack" or fields.get("code") == refusal.code:
                _LOG.error("%s: %s was refused: %s", self.task.ref, operation, refusal.detail)
                self.lease.lost = True
                return
            # It will not get better by doing it again, and an ending that is never told
            # would bring the delivery back for that.
            words = given(reason=fields.get("reason")).values()
            reason = _words("; ".join((*words, refusal.detail, *refusal.particulars)))
            retryable = fields.get("retryable", False) or refusal.retryable
            failed = {"code": refusal.code, "reason": reason, "retryable": retryable}
            await self._report("fail", failed)
        else:
            if operation != "ack" and _LOG.isEnabledFor(logging.INFO):
                self._log_ending(operation, fields)

    def _log_ending(self, operation: str, fields: dict[str, Any]) -> None:
        """Tell how the work ended, without its result: that is nobody's who reads the log."""
        took = self.lease.now() - self._began
        match operation:
            case "complete":
                _LOG.info("%s completed in %.1f s", self.task.ref, took)
            case "fail":
                said = ": ".join(
                    given(code=fields.get("code"), reason=fields.get("reason")).values()
                )
                then = "the relay may try it again" if fields["retryable"] else "it stays failed"
                _LOG.info("%s failed in %.1f s (%s); %s", self.task.ref, took, said, then)
            case _:
                _LOG.info("%s rejected (%s)", self.task.ref, fields.get("reason", "no reason"))

    async def _repeat(self, operation: str, said: dict[str, Any], error: UnavailableError) -> None:
        what = f"{operation} of {self.task.ref}"
        _LOG.warning("%s will be repeated: %s", what, error)
        policy, client = self._host.policy, self._host.client
        await policy.sleep(error.retry_after_seconds or 0.0)
        await policy.endlessly(lambda: client.call(operation, said, handoff=self.key[0]), what=what)


class Slot:
    """Room for so many handlers of a capability at once."""

    __slots__ = ("_waiting", "free")

    def __init__(self, free: int) -> None:
        self.free = free
        """Who finds any takes one; else nobody waits."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return with room that others release: in the order of those who wait."""
        turn: asyncio.Future[None] = asyncio.Future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was ours already
                self.release()
            raise

    def release(self) -> None:
        """Leave the room to who has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1


def _retrieve(work: asyncio.Task[Any]) -> None:
    if not work.cancelled():
        work.exception()


def _plain_result(result: Any) -> Any:
    try:
        return plain(result, "result")
    except TooLargeError as error:
        raise Fail(f"the result: {error}", code=error.code) from error
    # Two keys that are one in JSON, no form in JSON, or a model's own rules.
    except (InvalidRequestError, TypeError, ValueError) as error:
        raise Fail(f"the result: {error}", code="result_invalid") from error


def _meant(raised: BaseException) -> BaseException:
    """Return what a handler raised; where one thing went wrong in a task group, that one thing."""
    if not isinstance(raised, BaseExceptionGroup):
        return raised
    several = cast("BaseExceptionGroup[BaseException]", raised)
    return _meant(several.exceptions[0]) if len(several.exceptions) == 1 else several


def _words(said: object) -> str:
    """Return a reason as a text that can be sent, whatever the handler gave as one."""
    try:
        text = str(said)
    except Exception as error:  # noqa: BLE001  # somebody's own `__str__`
        text = f"(saying it raised {type(error).__name__})"
    text = text.encode(errors="backslashreplace").decode()  # file names may have half a character
    return text if len(text) <= REASON_CHARS_MAX else f"{text[: REASON_CHARS_MAX - 1]}…"

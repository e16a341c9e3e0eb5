"""A delivery in the hands of its handler."""

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, cast

from nodrop.client.client import Client
from nodrop.client.durations import Due, Duration, Wait, spelled_if
from nodrop.client.endings import Fail, Parked, WaitElapsed
from nodrop.client.shown import HandoffShown
from nodrop.client.values import given, plain
from nodrop.client.working.lease import Lease
from nodrop.model.errors import (
    AlreadyBlockedError,
    AlreadyFinishedError,
    CallerError,
    StaleAttemptError,
)
from nodrop.model.handoff import State

Action = Callable[[str], Any] | Callable[[], Any]
"""What `once` does: with the step's key, or without."""

_GOES_ON: Final = State.ACCEPTED.value
_BY_POSITION: Final = frozenset(
    {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    }
)


class TaskShown(HandoffShown):
    """A delivery: the handoff, and what earlier attempts left for this one."""

    def __init__(self, delivery: dict[str, Any]) -> None:
        self._view = delivery["handoff"]
        self._delivery = delivery
        self._last_checkpoint: Any = delivery.get("checkpoint")

    _steps: dict[str, Any] | None = None
    _answers: dict[str, Any] | None = None

    @property
    def attempt(self) -> int:
        """The number of this delivery."""
        return self._delivery["attempt"]

    @property
    def last_checkpoint(self) -> Any:
        """What was last left by `checkpoint`, in this attempt or an earlier one; None if nothing."""
        return self._last_checkpoint

    @property
    def steps(self) -> dict[str, Any]:
        """The values of recorded steps, by name."""
        if self._steps is None:
            self._steps = dict(self._delivery.get("steps") or {})
        return self._steps

    @property
    def answers(self) -> dict[str, Any]:
        """The answers so far, by the question's name or its text."""
        if self._answers is None:
            self._answers = dict(self._delivery.get("answers") or {})
        return self._answers


class Task(TaskShown):
    """What a handler can say about the piece of work it has.

    Once the delivery is no longer this process's (the lease lapsed and somebody else has it, or
    the handoff ended), every call raises and the handler is cancelled.
    """

    def __init__(self, delivery: dict[str, Any], client: Client, lease: Lease) -> None:
        # As `TaskShown` does, without a call: there is one for every delivery.
        self._view = delivery["handoff"]
        self._delivery = delivery
        self._last_checkpoint = delivery.get("checkpoint")
        self.lease = lease
        self.client = client
        """The worker's own connection: to hand off further, pass `parent_id=task.id`."""
        self._locks: dict[str | None, asyncio.Lock] = {}
        """Of the steps by name, and of what is asked."""

    async def update(
        self,
        status: str | None = None,
        *,
        eta: Due | None = None,
        next_update: Due | None = None,
        position: int | None = None,
    ) -> None:
        """Say how it goes, and when the next word will come."""
        fields = given(
            status=status,
            eta=spelled_if(eta),
            next_update=spelled_if(next_update),
            position=position,
        )
        answer = await self.command("update", brief=True, **fields)
        self._view = {**self._view, **answer["handoff"]}

    async def once(self, name: str, fn: Action) -> Any:
        """Do a step that no other attempt shall repeat, and return its value in plain JSON.

        `fn` may be async. If it needs an argument, or has one called `key`, that is a key which
        stays the same for this step whoever attempts it, for systems that recognise a repeat by one.

        `fn` is called only while the lease is confirmed: after a stall the relay is asked first. It
        runs again elsewhere if this process dies, or stalls past its lease, inside `fn`.

        Raises:
            StaleAttemptError: the delivery is no longer this process's; `fn` was not called.
        """
        async with self._lock(name):
            if name not in self.steps:
                action = bound(fn, self.step_key(name))
                await self.lease.require()
                value = action()
                if inspect.isawaitable(value):
                    value = await value
                await self.record(name, value)
            return self.steps[name]

    async def record(self, name: str, value: Any) -> None:
        """Record a finished step. The first record counts.

        Raises:
            Fail: it cannot be recorded. Another attempt would do it again, and get no further.
        """
        try:
            answer = await self.command("step", name=name, value=plain(value, "value"))
        except (StaleAttemptError, AlreadyFinishedError):
            raise
        except (TypeError, ValueError) as error:
            raise Fail(f"the step {name}: {error}", code="result_invalid") from error
        except CallerError as error:
            raise Fail(f"the step {name}: {error}", code=error.code) from error
        self.steps[name] = answer["value"]

    def step_key(self, name: str) -> str:
        """Return the key that `once` hands to the step called `name`."""
        return f"{self.id}:{name}"

    async def ask(
        self,
        question: str,
        to: str | None = None,
        *,
        name: str | None = None,
        wait: Duration | None = None,
    ) -> Any:
        """Ask a question and wait for the answer; the handoff is blocked meanwhile.

        A later attempt finds the answer under `name`, or the question's text, and does not ask
        again. Questions of one task are asked one after the other.

        Raises:
            WaitElapsed: no answer yet. The question stays open; asking it again waits again.
        """
        key = name or question
        async with self._lock(None):
            if key not in self.answers:
                with self.lease.active.paused():
                    await self._block(question, to=to, name=name)
                    await self._unblocked(wait)
            return self.answers[key]

    async def counter(
        self,
        *,
        deadline: Due | None = None,
        update_every: Duration | None = None,
        accept_within: Duration | None = None,
        priority: str | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109  # a term of the handoff, not of this call
        reason: str | None = None,
        wait: Duration | None = None,
    ) -> dict[str, Any]:
        """Ask for other terms, wait until they are agreed to, and return the handoff's new view.

        If they are declined the handoff is no longer this task's, and the handler is cancelled.
        """
        fields = given(
            deadline=spelled_if(deadline),
            update_every=spelled_if(update_every),
            accept_within=spelled_if(accept_within),
            priority=priority,
            timeout=spelled_if(timeout),
            reason=reason,
        )
        async with self._lock(None):
            with self.lease.active.paused():
                answer = await self.command("counter", **fields)
                self._view = answer["handoff"]
                await self._unblocked(wait)
        return self.view

    async def park(
        self,
        question: str,
        *,
        checkpoint: Any = None,
        to: str | None = None,
        name: str | None = None,
    ) -> None:
        """Ask a question and let go: the handler ends here, and holds nothing while it waits.

        The answer brings the handoff back as a later attempt, with the answer and the checkpoint.
        """
        await self.command(
            "block",
            question=question,
            park=True,
            checkpoint=plain(checkpoint, "checkpoint"),
            **given(to=to, name=name),
        )
        raise Parked

    async def checkpoint(self, data: Any) -> None:
        """Leave what was learnt so far to whoever goes on."""
        learnt = plain(data, "checkpoint")
        await self.command("checkpoint", checkpoint=learnt)
        self._last_checkpoint = learnt

    async def tell(self, status: str, text: str | None = None) -> None:
        """Tell requester, chain and watchers how it is: working, stuck, need_help, done."""
        await self.client.status(status, text, about=self.id)

    async def note(self, text: str) -> None:
        """Write in the margin of the log."""
        await self.client.call("note", {"text": text}, handoff=self.id)

    async def command(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Say something about this delivery, and return the answer as it came.

        Raises:
            StaleAttemptError, AlreadyFinishedError: it is no longer ours; the handler is cancelled.
        """
        said: dict[str, Any] = {"attempt": self.attempt, **fields}
        name: str | None = said.pop("name") if operation == "step" else None
        try:
            return await self.client.call(operation, said, handoff=self.id, name=name)
        except (StaleAttemptError, AlreadyFinishedError):
            self.lease.lose()
            raise

    def _lock(self, name: str | None) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    async def _block(self, question: str, *, to: str | None, name: str | None) -> None:
        try:
            answer = await self.command("block", question=question, **given(to=to, name=name))
            self._view = answer["handoff"]
        except AlreadyBlockedError:
            await self._look()
            asked = self.question
            if asked is None:  # it was answered meanwhile
                await self._block(question, to=to, name=name)
            elif (asked.name or asked.question) != (name or question):
                raise  # else it is this one: an earlier wait for it ran out

    async def _unblocked(self, wait: Duration | None) -> None:
        """Return when whoever was asked has spoken."""
        left = Wait(wait)
        while self.state == State.BLOCKED.value:
            if left.over:
                raise WaitElapsed(self)
            await self._look(until="unblocked", wait=left.piece())
        self.answers.update(self.view.get("answers") or {})

    async def _look(self, **until: Any) -> None:
        """Read the handoff again. If it went on without us, that is the end of this task."""
        view = await self.client.about(self.id, "get_handoff", **until)
        mine = view["id"] == self.id and view["attempt"] == self.attempt
        if not mine or view["state"] not in {_GOES_ON, State.BLOCKED.value}:
            self.lease.lose()
            raise StaleAttemptError(f"the handoff is {view['state']} by now")
        self._view = view


def bound(fn: Action, key: str) -> Callable[[], Any]:
    """Return `fn` as a call without arguments: with the key if it is meant to get one.

    An argument with a default is not: `lambda n=n: ...` binds what the caller has there.
    """
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not say
        parameters = ()
    taken = next((p for p in parameters if p.kind in _BY_POSITION), None)
    if taken is None or (taken.default is not taken.empty and taken.name != "key"):
        return cast("Callable[[], Any]", fn)
    return functools.partial(cast("Callable[[str], Any]", fn), key)

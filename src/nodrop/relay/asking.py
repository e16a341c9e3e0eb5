"""Asking for an operation, and answering it without a task for each who asks.

A handler is given an `Asking`. It returns the reply; or a coroutine that will, where the store must be
read first; or None, and then it answers later: with the commit, or with the event that is waited for.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from nodrop.log.port import Place, Wanted
from nodrop.model.errors import NodropError, Problem, RelayFaultError, UnavailableError
from nodrop.model.handoff import Handoff
from nodrop.protocol import requests, views
from nodrop.relay.batch import Batch
from nodrop.relay.handoffs.following import Follower
from nodrop.relay.handoffs.repeats import left_by, repeated, request_digest
from nodrop.relay.identity.proved import Proved
from nodrop.relay.jobs import Job
from nodrop.relay.shows import Caller, may_see, unseen
from nodrop.relay.tasks import Tasks

log = logging.getLogger("nodrop.relay")


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An answer, and whether it was given before."""

    answer: views.View
    replayed: bool = False


CARRIED_OUT: Final = Reply(answer=views.View())
"""The answer to a quiet command: only a refusal of one is sent."""


class Done(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A command that was carried out: the handoff as it is now."""

    handoff: Handoff
    replayed: bool = False
    """The same offer was made before: this is the handoff it made."""


class DoneBefore(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was carried out earlier, under the same id."""

    places: tuple[Place, ...]


class Existing(msgspec.Struct, frozen=True, kw_only=True):
    """An offer whose key is in use for the same request: that handoff is the answer."""

    handoff_id: str


class Receiver(Protocol):
    """Answers who asked, once a commit has decided."""

    def decided(self, asking: "Asking", done: Any) -> None:
        """Answer with what came of the command. Does not raise."""
        ...

    def refused(self, asking: "Asking", error: NodropError) -> None:
        """Answer with the reason why nothing did. Does not raise."""
        ...


Decide = Callable[[Batch, Handoff, "HandoffCommand"], Handoff]
"""Returns a handoff as it is after a command."""


class HandoffCommand(Job[Done | DoneBefore]):
    """A decision about one handoff that its caller may see, made once for its command id."""

    __slots__ = (
        *("about", "besides", "caller", "checked", "command", "decide"),
        *("digest", "handoff_id", "problems", "proved", "request"),
    )

    decide: Decide
    """Returns the handoff as it is after the command."""
    digest: bytes | None
    """Of the request, if it has a name."""
    proved: Proved | None
    checked: Handoff | None
    """The handoff as it was when its result was checked, which found `problems`."""
    problems: tuple[Problem, ...]

    def __init__(
        self,
        caller: Caller,
        handoff_id: str,
        request: requests.Command | None,
        decide: Decide,
        besides: Wanted | None = None,
    ) -> None:
        """Have `decide` decide, once the handoff and what is `besides` are loaded."""
        super().__init__((caller.team, caller.agent))
        self.caller = caller
        self.handoff_id = handoff_id
        self.about = (caller.team, handoff_id)
        self.request: Any = request
        self.decide = decide
        self.besides = besides
        self.proved = self.checked = self.command = None
        if request is not None and request.command_id is not None:
            self.command = (caller.team, caller.agent, request.command_id)
            self.digest = request_digest(request)

    def run(self, batch: Batch) -> Done | DoneBefore:
        """Decide, unless this was done before."""
        caller = self.caller
        handoff = None if self.about is None else batch.handoffs.get(self.about)
        if handoff is None or not (
            caller.agent in (handoff.recipient, handoff.origin) or may_see(caller, handoff)
        ):
            raise unseen(handoff)
        command = self.command
        if command is not None:
            if command not in batch.requests:  # it is new, as most are
                batch.requests[command] = self.digest
            elif places := repeated(
                batch, command, left_by(self.request.__class__), self.digest, self.handoff_id
            ):
                return DoneBefore(places=tuple(places))
        return Done(handoff=self.decide(batch, handoff, self))


class Asking(HandoffCommand):
    """An operation that is asked for. Being told what came of it never waits and never raises.

    A command about a handoff is itself the job that decides it.
    """

    __slots__ = ("follower", "name", "operation", "quiet", "receiver", "work")

    receiver: Receiver
    """Answers it, once a commit has decided: set by who posts it."""

    def __init__(
        self,
        caller: Caller,
        operation: str,
        request: Any,
        reference: str | None = None,
        name: str | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        # All of it in one go, without the classes above: this is done for every request. What only a
        # command about a handoff needs is set by who posts it.
        self.by = (caller.team, caller.agent)
        self.fetches = 0
        self.caller = caller
        self.handoff_id = reference or ""
        """The handoff that it is about: an id, its beginning, or `sender/key`; an id once a handler has it."""
        self.request = request
        """Of the kind that the table of operations names."""
        self.operation = operation
        self.name = name
        """The agent, token or other thing that it is about."""
        self.quiet = quiet
        """What is in the answer is of no interest, only whether there is one."""
        self.follower: Follower | None = None
        """The handoff that it waits for."""
        self.work: asyncio.Task[Any] | None = None
        """The task that finds the answer, where one is needed."""

    def told(self, answer: Any) -> None:
        """Take what was decided, which is committed."""
        if self.quiet and type(answer) is Done:
            self.tell(CARRIED_OUT)
        else:
            self.receiver.decided(self, answer)

    def refused(self, error: NodropError) -> None:
        """Take the reason why nothing was."""
        self.receiver.refused(self, error)

    @abstractmethod
    def tell(self, reply: Reply) -> None:
        """Take the answer."""

    @abstractmethod
    def refuse(self, error: NodropError) -> None:
        """Take the reason why there is none."""


class Awaited(Asking):
    """An operation whose answer a coroutine awaits."""

    __slots__ = ("answered",)

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def tell(self, reply: Reply) -> None:
        """Take the answer."""
        if not self.answered.done():  # else the caller went away; what was committed stands
            self.answered.set_result(reply)

    def refuse(self, error: NodropError) -> None:
        """Take the reason why there is none."""
        if not self.answered.done():
            self.answered.set_exception(error)


Answer = Reply | Coroutine[Any, Any, "Reply | None"] | None
Handler = Callable[[Asking], Answer]


def showing(how: Callable[[Asking], Awaitable[views.View]]) -> Handler:
    """Return the handler of an operation that is answered with a view, each time anew."""

    async def handler(asking: Asking) -> Reply:
        return Reply(answer=await how(asking))

    return handler


async def found(answer: Answer) -> Reply | None:
    """Return the reply that a handler has given or will give; None: it answers later."""
    if answer is None or isinstance(answer, Reply):
        return answer
    return await answer


class Replies:
    """Gives answers to those who asked, whatever goes wrong on the way."""

    def __init__(self, tasks: Tasks, refuse: Callable[[Asking, NodropError], None]) -> None:
        self._tasks = tasks
        self.refuse = refuse
        """Tells the caller why there is no answer."""

    def give(self, asking: Asking, how: Callable[..., Answer], *what: Any) -> None:
        """Tell `asking` what `how` makes of `what`. No failure concerns other commands."""
        try:
            answer = how(asking, *what)
            if isinstance(answer, Reply):
                asking.tell(answer)
            elif answer is not None:
                self.take(asking, answer)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told
            self.give_up(asking, error)

    def take(self, asking: Asking, answer: Reply | Coroutine[Any, Any, Reply | None]) -> None:
        """Tell `asking` what a handler has found, now or once it is found."""
        if isinstance(answer, Reply):
            asking.tell(answer)
        else:
            asking.work = self._tasks.begin(answer, partial(self._found, asking))

    def _found(self, asking: Asking, finding: asyncio.Task[Reply | None]) -> None:
        if finding.cancelled():
            if asking.work is finding:  # else it was given up, and nobody is there to be told
                asking.refuse(UnavailableError("the relay is stopping"))
            return
        error = finding.exception()
        if isinstance(error, Exception):
            self.give_up(asking, error)
        elif (reply := finding.result()) is not None:
            asking.tell(reply)

    def give_up(self, asking: Asking, error: Exception) -> None:
        """Tell `asking` that something went wrong."""
        if isinstance(error, NodropError):
            self.refuse(asking, error)
        else:
            log.error("%s failed", asking.operation, exc_info=error)
            asking.refuse(RelayFaultError())

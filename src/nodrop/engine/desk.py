"""The desk: what is asked for most, carried out without a task for each who asks.

Offers, commands about a handoff that need nothing but its row, and waiting for a handoff to get
somewhere.
Everything else, and everything that turns out to need the store, goes the long way round: `Relay`.
"""

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from nodrop.core.errors import NodropError, RelayFaultError
from nodrop.core.model import Handoff
from nodrop.engine.answers import Answers, owes_outcome
from nodrop.engine.asking import Asking, Reply
from nodrop.engine.done import Done, DoneBefore
from nodrop.engine.following import Following
from nodrop.engine.offers import Offered
from nodrop.engine.queues import Queues
from nodrop.engine.reading import ID_CHARS
from nodrop.engine.repeats import Unloaded
from nodrop.engine.shows import Caller, Shows
from nodrop.engine.writing import Writing
from nodrop.wire import requests, views
from nodrop.wire.requests import Request

log = logging.getLogger("nodrop.relay")

PLAIN: Final = frozenset({"ack", "update", "complete", "fail", "settle", "checkpoint", "note"})
"""Commands whose meaning is all in the request and the handoff's row."""
WAITING: Final = "get_handoff"
OFFER: Final = "offer"


class Desk:
    """Takes what can be carried out at once, or at the next commit."""

    def __init__(
        self,
        *,
        writing: Writing,
        following: Following,
        queues: Queues,
        shows: Shows,
        answers: Answers,
        admit: Callable[[Caller, str, Request], None],
        offer: Callable[[Caller, requests.Offer], Coroutine[Any, Any, Reply]],
        refuse: Callable[[Asking, NodropError], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._writing = writing
        self._following = following
        self._queues = queues
        self._shows = shows
        self._answers = answers
        self._admit = admit
        self._offer = offer
        """Takes an offer the long way round, once it was admitted."""
        self._refuse = refuse
        self._spawn = spawn

    def ask(self, asking: Asking, reference: str | None) -> bool:
        """Carry out an operation and tell `asking`, who is told of everything that goes wrong.

        Returns whether it could be done here; else nothing has happened.
        """
        if not self._takes(asking, reference):
            return False
        try:
            self._admit(asking.caller, asking.operation, asking.request)
            self._begin(asking, reference or "")
        except NodropError as error:
            self._refuse(asking, error)
        except Exception:
            log.exception("%s failed", asking.operation)
            asking.refuse(RelayFaultError())
        return True

    def _takes(self, asking: Asking, reference: str | None) -> bool:
        operation = asking.operation
        if reference is None:
            return operation == OFFER
        if len(reference) != ID_CHARS or "/" in reference:
            return False
        if operation == "ack":
            return self._queues.known(asking.caller.team, asking.caller.agent)
        return operation in PLAIN or operation == WAITING

    def _begin(self, asking: Asking, handoff_id: str) -> None:
        request = asking.request
        if isinstance(request, requests.Offer):
            told = partial(self._tell, asking, self._tell_offered)
            refused = partial(self._refuse, asking)
            if not self._writing.offers.post(asking.caller, request, told=told, refused=refused):
                self._look_up(asking, self._offer(asking.caller, request))
            return
        if isinstance(request, requests.GetHandoff):
            asking.follower = self._following.follow(
                asking.caller,
                handoff_id,
                request,
                told=partial(self._tell, asking, self._tell_found),
                refused=partial(self._refuse, asking),
            )
            return
        assert isinstance(request, requests.Command), "the rest are commands"
        self._writing.post(
            asking.caller,
            request,
            handoff_id,
            told=partial(self._tell, asking, self._tell_done),
            refused=partial(self._refuse, asking),
        )

    def follow(self, asking: Asking, handoff_id: str) -> None:
        """Tell `asking` of the outcome of what it offered, once there is one."""
        asking.follower = self._following.to_the_end(
            asking.caller,
            handoff_id,
            told=partial(self._tell, asking, self._tell_ended),
            refused=partial(self._refuse, asking),
        )

    def leave(self, asking: Asking) -> None:
        """Let go of what somebody waits for who is gone."""
        if asking.follower is not None:
            self._following.leave(asking.follower)

    def _tell(self, asking: Asking, how: Callable[..., None], *what: Any) -> None:
        """Tell what was committed. Whatever goes wrong with that is no concern of other commands."""
        try:
            how(asking, *what)
        except NodropError as error:
            self._refuse(asking, error)
        except Exception:
            log.exception("%s was carried out, and could not be shown", asking.operation)
            asking.refuse(RelayFaultError())

    def _tell_done(self, asking: Asking, done: Done | DoneBefore) -> None:
        request = asking.request
        if isinstance(done, DoneBefore):
            self._look_up(asking, self._answers.to_command(asking.caller, request, done))
        elif isinstance(request, requests.Briefly) and request.brief:
            asking.tell(Reply(answer=self._answers.briefly(request, done.handoff)))
        else:
            view = self._shows.at_hand(done.handoff, reader=asking.caller.agent)
            if view is None:
                self._look_up(asking, self._answers.to_command(asking.caller, request, done))
            else:
                asking.tell(Reply(answer=views.HandoffAnswer(handoff=view)))

    def _tell_offered(self, asking: Asking, done: Offered) -> None:
        request = asking.request
        assert isinstance(request, requests.Offer), "this is its answer"
        if isinstance(done, Unloaded):
            self._look_up(asking, self._offer(asking.caller, request))
            return
        reply = None
        if isinstance(done, Done):
            reply = self._answers.at_hand(asking.caller, request, done.handoff)
        if reply is None:
            self._look_up(asking, self._answers.to_offer(asking.caller, request, done))
        else:
            asking.tell(reply)

    def _tell_found(self, asking: Asking, handoff: Handoff, elapsed: bool) -> None:  # noqa: FBT001  # as a follower is told
        caller = asking.caller
        view = None
        if not caller.observer:
            if owes_outcome(handoff, caller.agent):
                # The outcome leaves with this answer, and the log says so first.
                self._writing.post_outcome_delivered(
                    caller,
                    handoff.id,
                    told=lambda marked: self._tell(asking, self._tell_found, marked, elapsed),
                    refused=partial(self._refuse, asking),
                )
                return
            view = self._shows.at_hand(handoff, reader=caller.agent)
        if view is None:
            self._look_up(asking, self._answers.to_wait(caller, handoff, elapsed=elapsed))
        else:
            answer = views.HandoffAnswer(handoff=view, wait_elapsed=elapsed)
            asking.tell(Reply(answer=answer))

    def _tell_ended(self, asking: Asking, handoff: Handoff, *_: object) -> None:
        if owes_outcome(handoff, asking.caller.agent):
            # The outcome leaves with this answer, and the log says so first.
            self._writing.post_outcome_delivered(
                asking.caller,
                handoff.id,
                told=partial(self._tell, asking, self._tell_ended),
                refused=partial(self._refuse, asking),
            )
            return
        answer = self._shows.ended_at_hand(handoff)
        if answer is None:
            self._look_up(asking, self._answers.to_follower(handoff))
        else:
            asking.tell(Reply(answer=answer))

    def _look_up(self, asking: Asking, answer: Coroutine[Any, Any, Reply]) -> None:
        """Answer once the store has said what the answer needs."""

        async def tell() -> None:
            try:
                asking.tell(await answer)
            except NodropError as error:
                self._refuse(asking, error)
            except Exception:
                log.exception("%s failed", asking.operation)
                asking.refuse(RelayFaultError())

        self._spawn(tell())

"""How a piece of work can end other than by its result: for handlers to raise, callers to catch.

None of these is a `NodropError`: nothing was refused, and the protocol did what it is for.
"""

from nodrop.client.shown import HandoffShown, Outcome


class Reject(Exception):  # noqa: N818  # what a handler decides, not what went wrong
    """Raised by a handler: I will not do it. Ends the handoff, or moves it to the next candidate."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Fail(Exception):  # noqa: N818  # same
    """Raised by a handler: it did not work out. Final unless `retryable`."""

    def __init__(self, reason: str = "", *, retryable: bool = False, code: str = "failed") -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable
        self.code = code


class Parked(BaseException):  # no `except Exception` of a handler may swallow it
    """Raised by `task.park`: the handler ends here; a later attempt goes on with the answer."""


class HandoffFailed(Exception):  # noqa: N818  # the protocol's word for an outcome
    """The handoff ended without a result: failed, rejected, expired or cancelled."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.handoff: HandoffShown = outcome.handoff
        self.code = outcome.code
        self.reason = outcome.reason
        why = outcome.reason or outcome.code
        super().__init__(f"{self.handoff.ref} {outcome.state}" + (f": {why}" if why else ""))


class WaitElapsed(Exception):  # noqa: N818  # no error: the work goes on, only the wait is over
    """The wait ran out. It changed nothing; `rung` says how far the handoff has come."""

    def __init__(self, handoff: HandoffShown) -> None:
        self.handoff = handoff
        self.rung = handoff.rung
        super().__init__(f"{handoff.ref} is {handoff.state} ({self.rung})")

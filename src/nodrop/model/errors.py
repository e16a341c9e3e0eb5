"""Every error a caller can meet.

NodropError
├── CallerError                 the request is at fault; repeating it as it is will not help
│   ├── InvalidRequestError         malformed, or a field is wrong
│   │   ├── UnsupportedFieldError       known to the protocol, not to this relay
│   │   ├── PayloadInvalidError         does not fit the recipient's input schema
│   │   ├── ResultInvalidError          does not fit the capability's output schema
│   │   ├── CapabilityRequiredError     the recipient has several; name one
│   │   ├── LoopDetectedError           the chain comes back to one agent too often
│   │   └── AttemptRequiredError        name the delivery this is about
│   ├── TooLargeError               over a bound of `model.limits`
│   ├── UnauthenticatedError        who are you?
│   ├── LinkInvalidError            a link that lets nobody in: unknown, used, expired, revoked
│   ├── SignatureRequiredError      this team wants it signed
│   ├── SignatureInvalidError       not signed by whom it says, or not this
│   │   └── SignatureStaleError         signed too long ago, or in the future
│   ├── ForbiddenError              not yours to do
│   ├── NotFoundError               no such thing, or not for you to know
│   ├── NoMatchError                nobody offers that, on such terms
│   ├── AmbiguousReferenceError     the prefix fits several ids
│   ├── CursorUnknownError          the log has no such entry, or another one there
│   └── ConflictError               the handoff is not in a state that admits this
│       ├── WrongStateError             the state machine says no
│       ├── StaleAttemptError           you held it once; you do not hold it now
│       ├── AlreadyFinishedError        an outcome exists
│       ├── NotFinishedError            there is no outcome yet
│       ├── AlreadyBlockedError         one open question at a time
│       ├── StaleQuestionError          that question is no longer open
│       ├── AlreadyDecidedError         a dead letter gets one decision
│       ├── IdempotencyConflictError    the key was used for another request
│       ├── InvitationUsedError         somebody has joined with it
│       ├── NameTakenError              an agent has a name that differs only in case or a dot
│       ├── ContractMismatchError       the terms are not those that the contract has
│       └── LimitReachedError           a bound of this one handoff is used up
└── UnavailableError            the relay cannot do it now; repeat the same command later
    ├── QueueFullError              more work waits than the relay takes on
    ├── RateLimitedError            one sender asks faster than it may
    ├── StoreFullError              no room on the disk
    ├── StoreUnavailableError       the store did not answer
    ├── StoreCorruptError           the database is damaged; restore a backup
    ├── CheckpointMismatchError     the log is not the one that the relay's checkpoints are of
    ├── StoreInUseError             another relay serves this database
    ├── SchemaTooNewError           a later Nodrop has changed the database
    ├── SchemaInUseError            relays that are too old still serve the database
    ├── UnreachableError            no relay answered at that address
    │   └── CertificateUntrustedError   it answered with a certificate that is not trusted
    ├── UnansweredError             sent again and again, and each time the connection ended first
    ├── NotInstalledError           it takes a part that is not installed
    └── RelayFaultError             a defect of ours

`code` is public API and never changes; the sentence is for people and may.
"""

from typing import ClassVar, Final

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong with a request, and where."""

    path: str
    message: str


class NodropError(Exception):
    """Base of every error this package raises on purpose."""

    code: ClassVar[str]
    title: ClassVar[str]
    next: ClassVar[str]
    """What to do about it, unless an instance knows better."""
    retryable: ClassVar[bool] = False
    fault: ClassVar[str] = "caller"
    suspect: str | None = None
    """Why the refusal belongs into the security log, if it does. Never told to the caller."""
    retry_after_seconds: float | None = None
    """When to come back, if that can be said better than "in a moment"."""

    def __init__(
        self, detail: str = "", *, next_step: str | None = None, errors: tuple[Problem, ...] = ()
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.next_step = next_step or self.next
        self.errors = errors

    def __str__(self) -> str:
        """Return the detail, and what is wrong where."""
        return ": ".join(filter(None, (self.detail, "; ".join(self.particulars))))

    @property
    def particulars(self) -> list[str]:
        """What is wrong, and where, as far as `detail` does not say it."""
        said = [problem for problem in self.errors if problem.message not in self.detail]
        return [f"{p.path}: {p.message}" if p.path else p.message for p in said]


def forget_frames(error: BaseException) -> None:
    """Let go of the frames that an error came through, and of those that its causes came through.

    A frame that names the error and is held by it would be freed by the garbage collector alone, with the
    request that it served.
    """
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__


class CallerError(NodropError):
    """The request is at fault."""


class InvalidRequestError(CallerError):
    """Malformed, or a field is wrong."""

    code = "invalid_request"
    title = "The request is not valid"
    next = "Correct what is wrong and send it again."


class UnsupportedFieldError(InvalidRequestError):
    """A field the protocol knows and this relay does not carry out."""

    code = "unsupported_field"
    title = "This relay does not support that field yet"
    next = "Leave the field out; it is refused rather than ignored."


class PayloadInvalidError(InvalidRequestError):
    """The payload does not fit what the capability takes."""

    code = "payload_invalid"
    title = "The payload does not fit the capability's input schema"
    next = "Correct the payload and send it again."


class ResultInvalidError(InvalidRequestError):
    """The result does not fit what the capability promises."""

    code = "result_invalid"
    title = "The result does not fit the capability's output schema"
    next = "Hand in a result that fits, or fail the handoff; it is still yours."


class CapabilityRequiredError(InvalidRequestError):
    """The recipient has several capabilities."""

    code = "capability_required"
    title = "The recipient has several capabilities"
    next = "Name one of them as `capability`."


class LoopDetectedError(InvalidRequestError):
    """The chain comes back to one agent too often."""

    code = "loop_detected"
    title = "The chain visits one agent too often"
    next = "Shorten the chain; an agent may be visited three times."


class AttemptRequiredError(InvalidRequestError):
    """The command is about a delivery, and none is named."""

    code = "attempt_required"
    title = "The command must name the delivery it is about"
    next = "Send `attempt` as it came with the delivery."


class TooLargeError(CallerError):
    """Over a bound."""

    code = "too_large"
    title = "The request is larger than this relay takes"
    next = "Send less: keep large data elsewhere and hand off a reference to it."


class UnauthenticatedError(CallerError):
    """No token, or one that is not valid."""

    code = "unauthenticated"
    title = "The request carries no valid token"
    suspect = "unauthenticated"
    next = "Send `Authorization: Bearer TOKEN`; `nodrop token NAME` prints one."


class LinkInvalidError(CallerError):
    """The code of a link that is unknown, used, expired or revoked: the answer does not say which."""

    code = "link_invalid"
    title = "This link does not sign anyone in"
    suspect = "link_invalid"
    next = "Make a new link: `nodrop open`."


class SignatureRequiredError(CallerError):
    """The team's policy is to sign, and this is not signed."""

    code = "signature_required"
    suspect = "signature_required"
    title = "This team takes signed requests only"
    next = "Join with a key (`nodrop join`, `nodrop keys rotate`); the SDK signs with it."


class SignatureInvalidError(CallerError):
    """Not signed by whom it says, or something else was signed."""

    code = "signature_invalid"
    suspect = "signature_invalid"
    title = "The signature does not hold"
    next = "Sign the request exactly as it is sent, with a current key of your own."


class SignatureStaleError(SignatureInvalidError):
    """Signed too long ago, or in the future: it could be anybody's copy."""

    code = "signature_stale"
    suspect = "signature_stale"
    title = "The request was not signed just now"
    next = "Sign it again, with the same command_id; if that does not help, set the clock."


class ForbiddenError(CallerError):
    """Known, and not allowed to do this."""

    code = "forbidden"
    title = "This is not yours to do"
    suspect = "forbidden"
    next = "Ask the party it belongs to, or an operator."


class NotFoundError(CallerError):
    """No such thing, or not for the caller to know."""

    code = "not_found"
    title = "No such thing here"
    next = (
        "Check it: `nodrop agents` lists agents, `nodrop inbox` what waits, `nodrop log` the rest."
    )


class NoMatchError(CallerError):
    """Nobody can be asked."""

    code = "no_match"
    title = "No agent of this team can be asked for that"
    next = "Name a recipient with `to`, ask for less, or start an agent that has the capability."


class AmbiguousReferenceError(CallerError):
    """A prefix that fits several ids."""

    code = "ambiguous_reference"
    title = "That prefix fits more than one handoff"
    next = "Give more characters of the id."


class CursorUnknownError(CallerError):
    """A cursor that is not a place in this log: beyond its end, or another entry is there now."""

    code = "cursor_unknown"
    title = "The log has no such entry"
    next = (
        "Read again from the beginning (`after=0`): the database was probably restored from an older"
        " copy, and the numbers after its end are used again for other entries."
    )


class ConflictError(CallerError):
    """The handoff does not admit this now."""

    code = "conflict"
    title = "The handoff does not admit this now"
    next = "Read the handoff and decide again."


class WrongStateError(ConflictError):
    """The state machine says no."""

    code = "wrong_state"
    title = "The state of the handoff does not admit this"


class StaleAttemptError(ConflictError):
    """The delivery was superseded."""

    code = "stale_attempt"
    title = "This delivery is no longer yours"
    next = "Stop working on it; whatever you did is superseded by a later delivery."


class AlreadyFinishedError(ConflictError):
    """An outcome exists."""

    code = "already_finished"
    title = "The handoff has ended"
    next = "Nothing more can be done to it; read its outcome."


class NotFinishedError(ConflictError):
    """There is no outcome yet."""

    code = "not_finished"
    title = "The handoff has no outcome yet"
    next = "Wait for the outcome, or cancel it."


class AlreadyBlockedError(ConflictError):
    """One open question at a time."""

    code = "already_blocked"
    title = "A question is open already"
    next = "Wait for its answer before you ask again."


class StaleQuestionError(ConflictError):
    """Not the question that is open now."""

    code = "stale_question"
    title = "That question is no longer open"
    next = "Read the handoff; answer the question it shows, if any."


class AlreadyDecidedError(ConflictError):
    """A dead letter gets one decision."""

    code = "already_decided"
    title = "Somebody has decided about this handoff already"
    next = "Read the handoff; a redriven one names its successor."


class IdempotencyConflictError(ConflictError):
    """The key or the command id was used for another request."""

    code = "idempotency_conflict"
    title = "That idempotency key or command id belongs to another request"
    next = "Use another one for another request, or send the same request again."


class NameTakenError(ConflictError):
    """An agent of the team has a name that differs only in case, or in dots at its end."""

    code = "name_taken"
    title = "An agent of the team has a name that is too much like this one"
    next = "Use that agent's name as it is written, or choose another one."


class InvitationUsedError(ConflictError):
    """An invitation is good for one agent, once."""

    code = "invitation_used"
    title = "Somebody has joined with this invitation"
    next = "Ask an operator for another one: `nodrop invite NAME`."


class ContractMismatchError(ConflictError):
    """Not the contract that was made: the offer or the manifest is another by now."""

    code = "contract_mismatch"
    title = "The offer is not what the contract says"
    next = "Ask for the contract again, read it, and offer under its digest."


class LimitReachedError(ConflictError):
    """A bound of this one handoff is used up."""

    code = "limit_reached"
    title = "This handoff has reached a bound"
    next = "Finish it and hand off the rest as a new one."


class UnavailableError(NodropError):
    """The relay cannot do it now."""

    code = "unavailable"
    title = "The relay cannot do this now"
    next = "Repeat the same command, with the same command_id, in a moment."
    retryable = True
    fault = "relay"


class QueueFullError(UnavailableError):
    """More work waits than the relay takes on."""

    code = "queue_full"
    title = "Too much work is waiting"


class RateLimitedError(UnavailableError):
    """One sender asks faster than it may."""

    code = "rate_limited"
    title = "You ask faster than this relay lets one agent ask"
    next = "Repeat the same command, with the same command_id, after `Retry-After`."
    fault = "caller"


class StoreFullError(UnavailableError):
    """No room on the disk."""

    code = "store_full"
    title = "The relay's disk is full"
    next = "Make room on the relay's disk, then repeat the same command; nothing stored is lost."


class StoreUnavailableError(UnavailableError):
    """The store did not answer, so nobody knows yet whether the command was kept."""

    code = "store_unavailable"
    title = "The relay's store did not answer"


class StoreCorruptError(UnavailableError):
    """The database is damaged. Repeating does not help, and writing could do more damage."""

    code = "store_corrupt"
    title = "The relay's database is damaged"
    next = "Stop the relay, keep a copy of its files, and restore a backup: `nodrop restore FILE`."
    retryable = False


class CheckpointMismatchError(UnavailableError):
    """The log is shorter than, or differs from, what the relay signed before."""

    code = "checkpoint_mismatch"
    title = "The log is not the one that the relay's own checkpoints are of"
    next = (
        "Put the newer database back. If an older one is wanted, put it in place with"
        " `nodrop restore FILE`, or move the file of checkpoints away, and start again."
    )
    retryable = False


class StoreInUseError(UnavailableError):
    """Another relay serves this database."""

    code = "store_in_use"
    title = "Another relay serves this database"
    next = "Connect to that relay instead of opening its file."

    def __init__(self, detail: str = "", *, address: str | None = None) -> None:
        super().__init__(detail)
        self.address = address


class SchemaTooNewError(UnavailableError):
    """A later Nodrop has changed the database in a way that this one cannot live with."""

    code = "schema_too_new"
    title = "The database was changed by a later version of Nodrop"
    next = "Serve it with the version of Nodrop that changed it, or a later one."


class SchemaInUseError(UnavailableError):
    """Relays serve the database that could not live with its next version."""

    code = "schema_in_use"
    title = "Relays that are too old for the next schema still serve the database"
    next = "Replace them with the version in between first; then start this one."


class UnreachableError(UnavailableError):
    """No relay answered."""

    code = "unreachable"
    title = "No relay answered at that address"
    next = "Start one with `nodrop up`, or set NODROP_URL."
    fault = "network"


class CertificateUntrustedError(UnreachableError):
    """A relay answered, with a certificate that this client does not trust."""

    code = "certificate_untrusted"
    title = "The relay's certificate is not trusted"
    next = (
        "If a CA of your own signed it, name that CA: --ca FILE, NODROP_CA, or `ca` in nodrop.toml."
    )
    retryable = False


class UnansweredError(UnavailableError):
    """Sent as often as the SDK sends a request, and the connection ended each time before the answer."""

    code = "unanswered"
    title = "The connection ended each time before the relay answered"
    next = (
        "Look at the relay's log: it may have stopped over this request. The same command_id or "
        "idempotency key makes repeating it safe."
    )
    fault = "network"


class NotInstalledError(UnavailableError):
    """It takes a part that is not installed."""

    code = "not_installed"
    title = "This takes a part of Nodrop that is not installed"
    next = "Install it where it is missing: pip install 'nodrop[relay]'."
    retryable = False


class RelayFaultError(UnavailableError):
    """A defect of ours, logged at the relay."""

    code = "relay_fault"
    title = "The relay failed to carry this out"
    next = "Repeat the same command; if it fails again, the relay's log says why."


def _tree(error: type[NodropError]) -> tuple[type[NodropError], ...]:
    below = tuple(e for child in error.__subclasses__() for e in _tree(child))
    return (error, *below) if hasattr(error, "code") else below


ALL: Final[tuple[type[NodropError], ...]] = _tree(NodropError)
"""Every error with a code, in the order of the tree."""

BY_CODE: Final[dict[str, type[NodropError]]] = {error.code: error for error in ALL}

"""The one table from error codes to every door, and the problem document (RFC 9457)."""

from typing import Any, Final

import msgspec

from nodrop.model import errors
from nodrop.model.errors import NodropError, Problem


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """How one error shows at each door."""

    http: int
    exit: int
    jsonrpc: int
    """Where a protocol on JSON-RPC, such as MCP, has no better place for it than its own error."""
    a2a: int
    """The error of A2A that comes nearest, by the code it has over JSON-RPC; `ErrorInfo` has ours."""


EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_CONFLICT: Final = 4
EXIT_TRY_AGAIN: Final = 75
_FAULT: Final = 500


INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REFUSED: Final = -32000
"""The relay's own refusals; `data` is the problem document, and its `code` says which."""


INVALID_REQUEST: Final = -32600
A2A_TASK_NOT_FOUND: Final = -32001
A2A_UNSUPPORTED_OPERATION: Final = -32004
_A2A_BY_EXIT: Final = {
    EXIT_USAGE: INVALID_PARAMS,
    EXIT_NOT_FOUND: A2A_TASK_NOT_FOUND,
    EXIT_CONFLICT: A2A_UNSUPPORTED_OPERATION,
    EXIT_FAILED: INVALID_REQUEST,
    EXIT_TRY_AGAIN: INTERNAL_ERROR,
}


def _row(http: int, exit_code: int, *, a2a: int | None = None) -> Mapping:
    wrong = exit_code in {EXIT_USAGE, EXIT_NOT_FOUND}
    fault = INTERNAL_ERROR if http == _FAULT else REFUSED
    return Mapping(
        http=http,
        exit=exit_code,
        jsonrpc=INVALID_PARAMS if wrong else fault,
        a2a=a2a or _A2A_BY_EXIT[exit_code],
    )


TABLE: Final[dict[type[NodropError], Mapping]] = {
    errors.InvalidRequestError: _row(422, EXIT_USAGE),
    errors.UnsupportedFieldError: _row(422, EXIT_USAGE),
    errors.PayloadInvalidError: _row(422, EXIT_USAGE),
    errors.ResultInvalidError: _row(422, EXIT_USAGE),
    errors.CapabilityRequiredError: _row(422, EXIT_USAGE),
    errors.LoopDetectedError: _row(422, EXIT_USAGE),
    errors.AttemptRequiredError: _row(422, EXIT_USAGE),
    errors.TooLargeError: _row(413, EXIT_USAGE),
    errors.UnauthenticatedError: _row(401, EXIT_FAILED),
    errors.LinkInvalidError: _row(403, EXIT_FAILED),
    errors.SignatureRequiredError: _row(403, EXIT_FAILED),
    errors.SignatureInvalidError: _row(403, EXIT_FAILED),
    errors.SignatureStaleError: _row(403, EXIT_FAILED),
    errors.ForbiddenError: _row(403, EXIT_FAILED),
    errors.NotFoundError: _row(404, EXIT_NOT_FOUND),
    errors.NoMatchError: _row(404, EXIT_NOT_FOUND, a2a=INVALID_PARAMS),
    errors.AmbiguousReferenceError: _row(409, EXIT_CONFLICT, a2a=INVALID_PARAMS),
    errors.CursorUnknownError: _row(410, EXIT_CONFLICT, a2a=INVALID_PARAMS),
    errors.ConflictError: _row(409, EXIT_CONFLICT),
    errors.WrongStateError: _row(409, EXIT_CONFLICT),
    errors.StaleAttemptError: _row(409, EXIT_CONFLICT),
    errors.AlreadyFinishedError: _row(409, EXIT_CONFLICT),
    errors.NotFinishedError: _row(409, EXIT_CONFLICT),
    errors.AlreadyBlockedError: _row(409, EXIT_CONFLICT),
    errors.StaleQuestionError: _row(409, EXIT_CONFLICT),
    errors.AlreadyDecidedError: _row(409, EXIT_CONFLICT),
    errors.IdempotencyConflictError: _row(409, EXIT_CONFLICT, a2a=INVALID_PARAMS),
    errors.NameTakenError: _row(409, EXIT_CONFLICT),
    errors.InvitationUsedError: _row(409, EXIT_CONFLICT),
    errors.ContractMismatchError: _row(409, EXIT_CONFLICT),
    errors.LimitReachedError: _row(409, EXIT_CONFLICT),
    errors.UnavailableError: _row(503, EXIT_TRY_AGAIN),
    errors.QueueFullError: _row(503, EXIT_TRY_AGAIN),
    errors.RateLimitedError: _row(429, EXIT_TRY_AGAIN),
    errors.StoreFullError: _row(507, EXIT_TRY_AGAIN),
    errors.StoreUnavailableError: _row(503, EXIT_TRY_AGAIN),
    errors.StoreCorruptError: _row(503, EXIT_FAILED, a2a=INTERNAL_ERROR),
    errors.CheckpointMismatchError: _row(503, EXIT_FAILED, a2a=INTERNAL_ERROR),
    errors.StoreInUseError: _row(503, EXIT_TRY_AGAIN),
    errors.SchemaTooNewError: _row(503, EXIT_FAILED, a2a=INTERNAL_ERROR),
    errors.SchemaInUseError: _row(503, EXIT_TRY_AGAIN),
    errors.UnreachableError: _row(503, EXIT_TRY_AGAIN),
    errors.CertificateUntrustedError: _row(503, EXIT_FAILED, a2a=INTERNAL_ERROR),
    errors.UnansweredError: _row(503, EXIT_TRY_AGAIN),
    errors.NotInstalledError: _row(501, EXIT_FAILED),
    errors.RelayFaultError: _row(500, EXIT_TRY_AGAIN),
}

RETRY_AFTER_SECONDS: Final = 1
"""What a refused caller is told to wait before it repeats a retryable command."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The problem document, the same over every door."""

    type: str = "about:blank"
    title: str = ""
    status: int = 500
    code: str = "relay_fault"
    detail: str = ""
    retryable: bool = False
    fault: str = "relay"
    next: str = ""
    errors: tuple[Problem, ...] = ()
    retry_after: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds until the same command may be repeated, where it may; HTTP has a header for it."""


def retry_after(error: NodropError) -> float | None:
    """Return how many seconds to wait before the same command is repeated; None: it will not help."""
    if not error.retryable:
        return None
    return error.retry_after_seconds or RETRY_AFTER_SECONDS


def document(error: NodropError, *, status: int | None = None) -> Document:
    """Return the problem document of `error`; HTTP has a `status` of its own for some."""
    wait = retry_after(error)
    return Document(
        title=error.title,
        status=TABLE[type(error)].http if status is None else status,
        code=error.code,
        detail=error.detail,
        retryable=error.retryable,
        fault=error.fault,
        next=error.next_step,
        errors=error.errors,
        retry_after=msgspec.UNSET if wait is None else wait,
    )


def from_document(problem: Document) -> NodropError:
    """Return the error that a relay answered with. A code of a later relay keeps its words."""
    kind = errors.BY_CODE.get(problem.code)
    if kind is None:
        kind = errors.UnavailableError if problem.retryable else errors.ConflictError
    error = kind(problem.detail)
    error.next_step = problem.next or error.next_step
    error.errors = problem.errors
    if isinstance(problem.retry_after, int | float):
        error.retry_after_seconds = problem.retry_after
    return error


def from_json(data: Any) -> NodropError:
    """Return the error in a decoded problem document."""
    return from_document(msgspec.convert(data, Document))

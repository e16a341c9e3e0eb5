"""What an HTTP status means where no problem document comes with it: a proxy, or no relay at all."""

from http import HTTPStatus
from typing import Final

from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    NodropError,
    NotFoundError,
    RateLimitedError,
    UnauthenticatedError,
    UnavailableError,
)

_KINDS: Final[dict[int, type[NodropError]]] = {
    HTTPStatus.UNAUTHORIZED: UnauthenticatedError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.REQUEST_TIMEOUT: UnavailableError,
    HTTPStatus.TOO_MANY_REQUESTS: RateLimitedError,
}
_CALLERS_FAULT: Final = range(400, 500)


def refusal(status: int, detail: str) -> NodropError:
    """Return what `status` means; anything but the caller's fault may be different later."""
    fallback = InvalidRequestError if status in _CALLERS_FAULT else UnavailableError
    return _KINDS.get(status, fallback)(detail)

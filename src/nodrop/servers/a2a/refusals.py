"""Refusals of the relay as errors of A2A: the table of `protocol.errors`, read once."""

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from a2a.utils import errors as a2a_errors
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError

from nodrop.model.errors import AlreadyFinishedError, NodropError, RelayFaultError
from nodrop.protocol.errors import TABLE, retry_after

log = logging.getLogger("nodrop.a2a")

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_BY_CODE: Final = {code: kind for kind, code in JSON_RPC_ERROR_CODE_MAP.items()}
_SHOWN_CHARS_MAX: Final = 1_000


def error(refusal: NodropError) -> A2AError:
    """Return what A2A calls a refusal; our own code, and what to do, are in its details."""
    kind = _BY_CODE[TABLE[type(refusal)].a2a]
    data: dict[str, Any] = {
        "code": refusal.code,
        "retryable": str(refusal.retryable).lower(),
        "next": refusal.next_step,
    }
    if (seconds := retry_after(refusal)) is not None:
        data["retryAfterSeconds"] = str(seconds)
    if refusal.errors and kind is a2a_errors.InvalidParamsError:
        data["errors"] = [
            {"field": problem.path, "message": problem.message[:_SHOWN_CHARS_MAX]}
            for problem in refusal.errors
        ]
    return kind(message=refusal.detail[:_SHOWN_CHARS_MAX], data=data)


def cancelling(refusal: NodropError) -> A2AError:
    """Return the same for a cancellation: what has ended has an error of its own there."""
    if isinstance(refusal, AlreadyFinishedError):
        return a2a_errors.TaskNotCancelableError(message=refusal.detail)
    return error(refusal)


def refused(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Let a method raise A2A's errors instead of ours."""

    @wraps(method)
    async def translated(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(self, *args, **kwargs)
        except A2AError:
            raise
        except Exception as problem:  # noqa: BLE001  # told without its words, and logged
            refusal = _refusal(problem)
            raise error(refusal) from refusal

    return translated


def refused_stream(
    method: Callable[Concatenate[S, P], AsyncGenerator[T]],
) -> Callable[Concatenate[S, P], AsyncGenerator[T]]:
    """Let a stream raise A2A's errors instead of ours."""

    @wraps(method)
    async def translated(self: S, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        stream = method(self, *args, **kwargs)
        try:
            async for item in stream:
                yield item
        except A2AError:
            raise
        except Exception as problem:  # noqa: BLE001  # told without its words, and logged
            refusal = _refusal(problem)
            raise error(refusal) from refusal
        finally:
            await stream.aclose()

    return translated


def _refusal(problem: Exception) -> NodropError:
    """Return what a caller is told. The words of a fault are for our log alone."""
    if isinstance(problem, NodropError):
        return problem
    log.error("a request over A2A could not be carried out", exc_info=problem)
    return RelayFaultError()

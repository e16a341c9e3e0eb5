"""Everything over HTTP that is no operation: health, the OpenAPI document, texts, the dashboard."""

import functools
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodrop.model.errors import InvalidRequestError, NodropError, NotFoundError, UnavailableError
from nodrop.protocol import openapi
from nodrop.protocol.errors import document
from nodrop.servers.http import dashboard
from nodrop.servers.http.parking import Parking
from nodrop.servers.http.texts import text

_TEXT_HEADERS: Final = {
    "content-security-policy": "default-src 'none'",
    "x-content-type-options": "nosniff",
}


def pages(
    parking: Parking, serves: Callable[[], Awaitable[None]], *, page: bool = True
) -> Starlette:
    """Return the application that serves them; `serves` raises why the relay cannot serve now.

    With `page` false, nothing is served at `/`.
    """

    async def ready(_: Request) -> Response:
        if parking.closed:
            return _problem(UnavailableError("the relay is stopping"))
        try:
            await serves()
        except NodropError as error:
            return _problem(error)
        return _json(b'{"status":"ready"}')

    return Starlette(
        routes=[
            *(dashboard.routes() if page else ()),
            Route("/healthz", _health),
            Route("/readyz", ready),
            Route("/openapi.json", _openapi),
            Route("/skill.md", _skill),
            Route("/llms.txt", _llms),
        ],
        exception_handlers={HTTPException: _refused},
    )


async def _health(_: Request) -> Response:
    return _json(b'{"status":"ok"}')


async def _openapi(_: Request) -> Response:
    return _json(_openapi_bytes())


async def _skill(_: Request) -> Response:
    return Response(text("skill.md"), media_type="text/markdown", headers=_TEXT_HEADERS)


async def _llms(_: Request) -> Response:
    return Response(text("llms.txt"), media_type="text/plain", headers=_TEXT_HEADERS)


@functools.cache
def _openapi_bytes() -> bytes:
    return msgspec.json.encode(openapi.document())


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        refusal = InvalidRequestError("this path is only for reading", next_step="Use GET.")
        return _problem(refusal, status=error.status_code, headers=dict(error.headers or {}))
    return _problem(NotFoundError("no such path", next_step="/openapi.json lists every path."))


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _problem(
    error: NodropError, *, status: int | None = None, headers: dict[str, str] | None = None
) -> Response:
    problem = document(error, status=status)
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type="application/problem+json",
        headers=headers,
    )

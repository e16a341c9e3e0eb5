"""Everything over HTTP that is no operation: health, the OpenAPI document, words of welcome."""

import functools
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from nodrop.core.errors import InvalidRequestError, NodropError, NotFoundError, UnavailableError
from nodrop.doors.http.parking import Parking
from nodrop.doors.http.texts import text
from nodrop.wire import openapi
from nodrop.wire.errors import document

_WELCOME: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Nodrop</title>
<style>body { font: 1rem/1.5 system-ui; max-width: 40rem; margin: 4rem auto; padding: 0 1rem }</style>
<h1>Nodrop</h1>
<p>A relay that passes work between AI agents without dropping it. Agents talk to it below
<code>/v1/</code>; people use the <code>nodrop</code> command.</p>
<ul>
<li><a href="/openapi.json">/openapi.json</a>: everything that can be asked of it</li>
<li><a href="/skill.md">/skill.md</a> and <a href="/llms.txt">/llms.txt</a>: for agents to read;
<code>/mcp</code>: tools for coding agents</li>
<li><a href="/healthz">/healthz</a> and <a href="/readyz">/readyz</a>: whether it is well</li>
</ul>
</html>
"""
# No script runs here and nothing is loaded, whatever a later edit of the page may do.
_PAGE_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}


def pages(parking: Parking, serves: Callable[[], Awaitable[None]]) -> Starlette:
    """Return the application that serves them; `serves` raises why the relay cannot serve now."""

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
            Route("/", _welcome),
            Route("/healthz", _health),
            Route("/readyz", ready),
            Route("/openapi.json", _openapi),
            Route("/skill.md", _skill),
            Route("/llms.txt", _llms),
        ],
        exception_handlers={HTTPException: _refused},
    )


async def _welcome(_: Request) -> Response:
    return HTMLResponse(_WELCOME, headers=_PAGE_HEADERS)


async def _health(_: Request) -> Response:
    return _json(b'{"status":"ok"}')


async def _openapi(_: Request) -> Response:
    return _json(_openapi_bytes())


async def _skill(_: Request) -> Response:
    return Response(text("skill.md"), media_type="text/markdown", headers=_PAGE_HEADERS)


async def _llms(_: Request) -> Response:
    return Response(text("llms.txt"), media_type="text/plain", headers=_PAGE_HEADERS)


@functools.cache
def _openapi_bytes() -> bytes:
    return msgspec.json.encode(openapi.document())


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        refusal = InvalidRequestError("this path is only for reading", next_step="Use GET.")
        return _problem(refusal, status=error.status_code, headers=dict(error.headers or {}))
    return _problem(NotFoundError("no such path"))


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

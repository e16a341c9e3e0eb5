"""The SDK's routes around our handler: JSON-RPC, REST and the card of one agent, 1.0 and 0.3.

One application for every agent: the door in front has found out who asks and whom for.
"""

from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Final

from a2a.server.context import ServerCallContext
from a2a.server.jsonrpc_models import JSONParseError
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.server.routes import (
    DefaultServerCallContextBuilder,
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.types import AgentCard
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InvalidRequestError,
    MethodNotFoundError,
)
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from nodrop.servers.a2a.handler import VISIT, Handler

CACHE: Final = "public, max-age=60"
CARD_PATH: Final = "/.well-known/agent-card.json"


class _Contexts(DefaultServerCallContextBuilder):
    """Contexts that know who asks."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[VISIT] = request.scope[VISIT]
        return context


def application(handler: Handler) -> Starlette:
    """Return what answers the methods of A2A below the address of an agent."""
    contexts = _Contexts()
    rest = create_rest_routes(handler, context_builder=contexts, enable_v0_3_compat=True)
    rpc = create_jsonrpc_routes(handler, "/", context_builder=contexts, enable_v0_3_compat=True)
    return Starlette(
        routes=[*rpc, *(route for route in rest if not isinstance(route, Mount))],
        exception_handlers={HTTPException: _no_such_path},
    )


async def serve_card(
    card: AgentCard, request: Request, *, changed_at: str | None, strict: bool
) -> Response:
    """Return a card as the SDK serves it, with an ETag and the fields that 0.3 looks for.

    Args:
        card: the card.
        request: who asks for it.
        changed_at: when it last changed, if that is known.
        strict: whether it shall have the fields of 1.0 only.
    """
    (route,) = create_agent_card_routes(card, cache_control=CACHE)
    assert isinstance(route, Route), "that is what it makes"
    answer: Response = await route.endpoint(request)
    if strict and answer.status_code == HTTPStatus.OK:
        answer = JSONResponse(MessageToDict(card), headers=_kept(answer))
    if changed_at is not None:
        changed = datetime.fromisoformat(changed_at)
        answer.headers["last-modified"] = format_datetime(changed.astimezone(UTC), usegmt=True)
    return answer


def _kept(answer: Response) -> dict[str, str]:
    return {name: answer.headers[name] for name in ("etag", "cache-control")}


def refusal(error: A2AError | None, *, rpc: bool) -> Response:
    """Return an error to somebody whose request was not let through; None: it is no text at all."""
    if rpc:
        no_text = JSONParseError(message="the body is not UTF-8")
        return JSONResponse(build_error_response(None, error or no_text))
    error = error or InvalidRequestError(message="the body is not UTF-8")
    payload = build_rest_error_payload(error)
    if isinstance(error, ContentTypeNotSupportedError):
        payload["error"]["code"] = int(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    return JSONResponse(payload, status_code=payload["error"]["code"])


async def _no_such_path(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"
    payload = build_rest_error_payload(MethodNotFoundError(message="no such path of A2A"))
    payload["error"]["code"] = error.status_code
    headers = dict(error.headers or {})
    return JSONResponse(payload, status_code=error.status_code, headers=headers)

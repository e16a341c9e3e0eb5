"""The HTTP interface as an OpenAPI 3.1 document, made from the tables that the doors read.

Pure: nothing is written here. `nodrop.app.write_schemas` puts the document into `schema/`, and a
test fails when what is there is not what this makes.
"""

from typing import Any, Final

import msgspec

from nodrop.model.contract import Manifest
from nodrop.model.errors import ALL, Problem
from nodrop.protocol import fields
from nodrop.protocol.answers import ANSWERS
from nodrop.protocol.errors import Document
from nodrop.protocol.identity.links import links
from nodrop.protocol.requests import Briefly, Command, Offer, Register
from nodrop.protocol.routes import ROUTES, Route
from nodrop.protocol.views import BriefAnswer, HandoffAnswer, OfferedAnswer

VERSION: Final = "1.0.0"
"""Of the interface, which the `v1` in every path stands for; not of the package."""

_REF: Final = "#/components/schemas/{name}"
_PATH_PARAMETERS: Final = {
    "id": "A handoff: its id, the beginning of it, or `sender/key` with the slash as %2F.",
    "name": "What it is about: an agent, a step, a chain or a token.",
}


def document() -> dict[str, Any]:
    """Return the document."""
    schemas, components = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES.values():
        operation = route.operation
        methods = paths.setdefault(f"/{operation.path}", _path_item(route))
        methods[operation.method.lower()] = _operation(route, schemas, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Nodrop",
            "version": VERSION,
            "summary": "A handoff relay for AI agents: pass work on without dropping it.",
            "description": (
                "Made from `nodrop.protocol`; not edited by hand. A duration is `4h`, `4 hours`, "
                "ISO 8601 or a number of seconds. Unknown fields are refused. A command may be "
                "repeated with the same `command_id`, and is then answered as the first time. "
                "Work is pushed over the WebSocket channel at `/v1/channel`."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [
            {"url": "/v1", "description": "The team of the token"},
            {
                "url": "/teams/{team}/v1",
                "description": "A team by its name",
                "variables": {"team": {"default": "default"}},
            },
        ],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`nodrop token NAME` prints one.",
                }
            },
            "responses": {
                "problem": {
                    "description": "Refused; `code` says why, `next` what to do about it",
                    "content": {
                        "application/problem+json": {"schema": schemas[Document]},
                    },
                }
            },
            "schemas": components,
        },
    }


_BRIEF: Final = (BriefAnswer, OfferedAnswer)
"""The answers to requests for a brief answer."""


def _schemas() -> tuple[dict[type[Any], dict[str, Any]], dict[str, Any]]:
    kinds: list[type[Any]] = [Document, Manifest, *_BRIEF, *ANSWERS.values()]
    kinds += [route.kind for route in ROUTES.values() if route.operation.request is not Register]
    kinds = list(dict.fromkeys(kinds))
    made, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    codes = [error.code for error in ALL]
    components["Document"]["properties"]["code"] = {"type": "string", "enum": codes}
    # Defaults are Python values still, tuples among them.
    components = fields.plain(msgspec.json.decode(msgspec.json.encode(components)))
    for route in ROUTES.values():
        if route.name_field is not None:  # which the path says
            components.get(route.kind.__name__, {"properties": {}})["properties"].pop(
                route.name_field, None
            )
    fields.describe(components, _sent(components))
    fields.tell_offers_apart(components)
    return dict(zip(kinds, made, strict=True)), dict(sorted(components.items()))


def _sent(components: dict[str, Any]) -> list[str]:
    """Return the names of what callers send: requests, and the structs within them."""
    answers = {kind.__name__ for kind in (Document, Problem, *_BRIEF, *ANSWERS.values())}
    return [name for name in components if name not in answers and "View" not in name]


def _path_item(route: Route) -> dict[str, Any]:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": text,
            "schema": fields.blank(route.operation.path, name),
        }
        for name, text in _PATH_PARAMETERS.items()
        if f"{{{name}}}" in route.operation.path
    ]
    return {"parameters": parameters} if parameters else {}


def _operation(
    route: Route, schemas: dict[type[Any], dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    operation = route.operation
    said = operation.request.__doc__ or ""
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": said.split("\n", 1)[0],
        "tags": [operation.path.split("/", 1)[0]],
    }
    if operation.open:
        described["security"] = []
    parameters = list(_query(route, components)) if not operation.changes else []
    if issubclass(operation.request, Command):
        parameters.append(_IDEMPOTENCY_KEY)
    if parameters:
        described["parameters"] = parameters
    if operation.changes:
        kind = Manifest if operation.request is Register else route.kind
        described["requestBody"] = {
            "required": operation.request is Register or fields.needed(components[kind.__name__]),
            "content": {"application/json": {"schema": schemas[kind]}},
        }
    described["responses"] = _responses(route, schemas)
    return described


_IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The `command_id`, for clients that would rather not put it into the body.",
    "schema": fields.header(),
}


def _query(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    properties: dict[str, Any] = components[route.kind.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, **_in_query(schema)}
        for name, schema in properties.items()
        if name != route.name_field
    ]


def _in_query(schema: dict[str, Any]) -> dict[str, Any]:
    if {"type": "object"} in schema.get("anyOf", ()):  # which an address holds as JSON text
        return {"content": {"application/json": {"schema": {"type": "object"}}}}
    return {"schema": fields.in_query(schema)}


def _responses(route: Route, schemas: dict[type[Any], dict[str, Any]]) -> dict[str, Any]:
    operation = route.operation
    answer = ANSWERS[operation.answer]
    schema = schemas[answer]
    if answer is HandoffAnswer and issubclass(operation.request, Briefly):
        brief = OfferedAnswer if operation.request is Offer else BriefAnswer
        schema = {"anyOf": [schema, schemas[brief]]}
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if operation.name == "log":
        content["text/event-stream"] = {"schema": {"type": "string"}}
    text = (answer.__doc__ or "").split("\n", 1)[0]
    responses: dict[str, Any] = {str(operation.status): {"description": text, "content": content}}
    if operation.status != 200:  # noqa: PLR2004  # a repeat is answered 200: nothing was made
        responses["200"] = {
            "description": f"As the first time. {text}",
            "headers": {"Idempotency-Replayed": {"schema": {"const": "true"}}},
            "content": content,
        }
    following = links(operation.name)
    if following:
        for response in responses.values():
            response["links"] = following
    responses["default"] = {"$ref": "#/components/responses/problem"}
    return responses

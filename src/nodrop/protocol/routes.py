"""From a path to an operation, and from what came with it to a request.

`protocol.operations` says what can be asked; this module is how the doors read it. It knows nothing of
headers, frames or connections.
"""

from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

import msgspec

from nodrop.model.errors import InvalidRequestError, NotFoundError, Problem
from nodrop.model.limits import Limits
from nodrop.protocol import canonical, requests
from nodrop.protocol.decoding import decode_query, decode_strict
from nodrop.protocol.identity import signatures
from nodrop.protocol.operations import OPERATIONS, Operation

_VERSION: Final = "/v1/"
_PATHS: Final = "/openapi.json lists every path."
_TEAMS: Final = "/teams/"
_TEAM_PARTS: Final = 5
"""`/teams/{team}/agents/{agent}`, taken apart."""
_NAME_FIELDS: Final = ("name", "agent", "token_id", "key_id", "invitation_id")
"""What a request calls the `{name}` of its path, where it has it among its fields."""


class Route:
    """One operation, and how its requests are read."""

    def __init__(self, operation: Operation) -> None:
        self.operation: Final = operation
        fields = operation.request.__struct_fields__
        self.named: Final = "{name}" in operation.path
        self.about_handoff: Final = operation.about_handoff
        self.changes: Final = operation.changes
        self.signs: Final = operation.name in signatures.SIGNABLE
        self.parks: Final = "wait" in fields
        """Whether its answer may take as long as the caller is willing to wait."""
        self.name_field: Final = (
            next((field for field in _NAME_FIELDS if field in fields), None) if self.named else None
        )
        self.kind: Final = self._fields_kind()
        """The request, with the field that the path names left to the path."""

    def _fields_kind(self) -> type[requests.Request]:
        request, field = self.operation.request, self.name_field
        if field is None:
            return request
        optional = msgspec.defstruct(
            request.__name__, [(field, str, "")], bases=(request,), frozen=True, kw_only=True
        )
        return cast("type[requests.Request]", optional)

    def from_query(self, query: bytes, *, name: str | None) -> requests.Request:
        """Return the request in a query string."""
        request = decode_query(query, self.kind) if query else self.kind()
        return request if self.name_field is None else self.with_name(request, name)

    def from_body(
        self, data: bytes, *, name: str | None, limits: Limits, command_id: str | None = None
    ) -> requests.Request:
        """Return the request whose fields are the JSON object `data`. No data is an empty object."""
        request = decode_strict(data or b"{}", self.kind, limits)
        if self.name_field is not None:
            request = self.with_name(request, name)
        if self.signs and getattr(request, "signature", None) is not None:
            request = self.signed(request, data)
        return request if command_id is None else _with_command_id(request, command_id)

    def signed(self, request: requests.Request, data: bytes) -> requests.Request:
        """Return `request`; a signature in it with the fields as they were sent in `data`."""
        if not self.signs or (signature := getattr(request, "signature", None)) is None:
            return request
        sent = signatures.as_sent(signature, canonical.loads(data))
        return self.exact(request, signature=sent)

    def with_name(self, request: requests.Request, name: str | None) -> requests.Request:
        """Return `request` with the path's name where it belongs; both may say it if they agree."""
        field = self.name_field
        if field is None:
            return request
        said: str = getattr(request, field)
        if said and name and said != name:
            problem = Problem(path=field, message=f"differs from {name!r}, which the path names")
            raise InvalidRequestError(f"{field}: {problem.message}", errors=(problem,))
        return self.exact(request, **{field: name or said})

    def exact(self, request: requests.Request, **changes: Any) -> requests.Request:
        """Return `request` as nothing but the operation's own struct, with `changes`."""
        kind = self.operation.request
        fields = {field: getattr(request, field) for field in kind.__struct_fields__}
        return kind(**fields | changes)

    def name_in(self, request: requests.Request) -> str | None:
        """Return the path's name as `request` has it."""
        return getattr(request, self.name_field) if self.name_field else None

    def check_address(self, *, reference: str | None, name: str | None) -> None:
        """Refuse a request that does not say what it is about. Paths always do; frames may not."""
        if self.about_handoff and not reference:
            problem = Problem(path="handoff_id", message="required: the handoff this is about")
            raise InvalidRequestError(f"handoff_id: {problem.message}", errors=(problem,))
        if self.named and not name:
            problem = Problem(path="name", message="required, and missing")
            raise InvalidRequestError(f"name: {problem.message}", errors=(problem,))


class Found(msgspec.Struct, frozen=True):
    """What a path leads to."""

    methods: Mapping[str, Route]
    reference: str | None = None
    name: str | None = None


def _with_command_id(request: requests.Request, command_id: str) -> requests.Request:
    if not isinstance(request, requests.Command):
        return request
    if request.command_id not in {None, command_id}:
        problem = Problem(path="command_id", message="differs from the Idempotency-Key header")
        raise InvalidRequestError(f"command_id: {problem.message}", errors=(problem,))
    return msgspec.structs.replace(request, command_id=command_id)


ROUTES: Final[dict[str, Route]] = {name: Route(op) for name, op in OPERATIONS.items()}
"""Every operation's route, by the operation's name."""


class _Node:
    """One segment of the tree of paths."""

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.blank: tuple[str, _Node] | None = None
        """`{id}` or `{name}`, and what follows it."""
        self.methods: dict[str, Route] = {}
        self.found = Found(self.methods)
        """What a path leads to that ends here, where nothing in it is blank."""


def _plant() -> _Node:
    root = _Node()
    for route in ROUTES.values():
        node = root
        for segment in route.operation.path.split("/"):
            if segment.startswith("{"):
                node.blank = node.blank or (segment, _Node())
                assert node.blank[0] == segment, "one place in a path has one meaning"
                node = node.blank[1]
            else:
                node = node.below.setdefault(segment, _Node())
        node.methods[route.operation.method] = route
    return root


_TREE: Final = _plant()


def split_team(raw_path: bytes) -> tuple[str | None, str | None]:
    """Return the team that a path names, if any, and what it names below `/v1/`, if anything."""
    path = raw_path.decode("latin-1")
    team = None
    if path.startswith(_TEAMS):
        name, slash, below = path.removeprefix(_TEAMS).partition("/")
        team, path = _unquote(name), slash + below
    return team, path.removeprefix(_VERSION) if path.startswith(_VERSION) else None


def manifest_of(raw_path: bytes) -> tuple[str | None, str] | None:
    """Return the team and the agent whose manifest a path is the address of, if it is one."""
    parts = raw_path.decode("latin-1").split("/")
    if parts[1:2] == ["teams"] and len(parts) == _TEAM_PARTS:
        team, parts = _unquote(parts[2]), ["", *parts[3:]]
    else:
        team = None
    match parts:
        case ["", "agents", agent] if agent:
            return team, _unquote(agent)
        case _:
            return None


def find(path: str) -> Found:
    """Return what `path`, as it was sent and below `/v1/`, leads to.

    Segments are taken apart before they are unquoted, so a reference may hold a quoted slash.

    Raises:
        NotFoundError: nothing.
    """
    node = _TREE
    reference = name = None
    for segment in path.split("/"):
        following = node.below.get(segment)
        if following is None:
            if node.blank is None or not segment:
                raise NotFoundError("no such path", next_step=_PATHS)
            blank, following = node.blank
            said = _unquote(segment) if "%" in segment else segment
            if blank == "{id}":
                reference = said
            else:
                name = said
        node = following
    if not node.methods:
        raise NotFoundError("no such path", next_step=_PATHS)
    if reference is None and name is None:
        return node.found
    return Found(node.methods, reference, name)


def _unquote(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise NotFoundError("no such path", next_step=_PATHS) from None

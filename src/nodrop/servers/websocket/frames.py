"""What is said on the channel: the client's frames, and the relay's messages.

A frame is flat: `{"id": 1, "op": "ack", "handoff_id": "0199…", "attempt": 1}`. A message in which
nothing needs a closer look is read at once, frame by frame, as the structs of their operations. In
any other, each frame is read first for what every frame has, then as the struct of its operation,
so that unknown fields are refused here as everywhere, and only with the frame that has them.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, NamedTuple, Union, cast

import msgspec

from nodrop.model.errors import InvalidRequestError, NodropError, NotFoundError, Problem
from nodrop.model.limits import Limits
from nodrop.protocol import routes
from nodrop.protocol.decoding import decode_strict, peek
from nodrop.protocol.errors import Document, document
from nodrop.protocol.requests import Request
from nodrop.protocol.routes import ROUTES, Route
from nodrop.protocol.views import (
    ItemView,
    OfferedView,
    OutcomeView,
    PushView,
    WaitingView,
)

Id = int | str | None


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What every frame of a client has."""

    id: Id = None
    op: str
    handoff_id: str | None = None
    name: str | None = None


class _Identified(msgspec.Struct, frozen=True, kw_only=True):
    id: Id = None


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first frame of a connection: who is there, and what it wants to hear."""

    id: Id = None
    op: str = "hello"
    token: str | None = None
    resume: str | None = None
    """The process that this connection goes on for."""
    heartbeat_seconds: float | None = None
    batch: bool = False
    """Whether the client takes several messages in one frame."""
    inbox: bool = False
    """Whether the client wants to be told of outcomes and notices."""


class Credit(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="op",
    tag="credit",
):
    """So many more deliveries may come."""

    id: Id = None
    n: int


class Flush(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="op",
    tag="flush",
):
    """Answer once every quiet command before this one was carried out, or refused."""

    id: Id = None


class Call(msgspec.Struct, frozen=True, gc=False):
    """A frame that asks for an operation."""

    id: Id
    operation: str
    request: Request
    reference: str | None
    name: str | None
    follow: bool = False
    """Of an offer: the outcome shall follow under the same id."""
    quiet: bool = False
    """Answered only if it is refused."""
    bare: bool = False
    """Answered with nothing but that it is durable."""


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a hello."""

    team: str
    agent: str
    process: str


class _Ok(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    id: Id
    ok: Any
    follows: bool = False


class Ended(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The second answer to an offer that is followed."""

    id: Id
    handoff: OfferedView
    outcome: OutcomeView


class _Refused(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    error: Document


class _Delivery(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="push", tag="delivery", gc=False
):
    delivery: PushView


class _Offered(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="push", tag="offered", gc=False
):
    offered: WaitingView


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    push: str
    item: ItemView


_ENCODER: Final = msgspec.json.Encoder()
encode: Final = _ENCODER.encode
_FRAMES: Final = msgspec.json.Decoder(list[msgspec.Raw])


# --- reading -------------------------------------------------------------------------------------


def split(data: bytes) -> Iterable[bytes]:
    """Return the frames in a WebSocket message: itself, or the elements of an array.

    Raises:
        InvalidRequestError: it is no JSON.
    """
    if data.lstrip()[:1] != b"[":
        return (data,)
    try:
        return [bytes(frame) for frame in _FRAMES.decode(data)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        problem = Problem(path="", message="the frame is not an array of JSON objects")
        raise InvalidRequestError(problem.message, errors=(problem,)) from None


def read_id(data: bytes, limits: Limits) -> Id:
    """Return the id of a frame that is wrong, as far as it can be read: somebody waits under it."""
    try:
        return peek(data, _Identified, limits).id
    except NodropError:
        return None


def read_call(frame: Frame, data: bytes, limits: Limits) -> Call:
    """Return the operation that a frame asks for.

    Raises:
        NodropError: there is no such operation, or this is no request for it.
    """
    route, reference, name = _route(frame)
    said = decode_strict(data, _KINDS[route.operation.name], limits)
    # The engine sees requests only, whatever a frame has besides.
    request = route.signed(route.with_name(route.exact(said), name), data)
    name = name or route.name_in(request)
    route.check_address(reference=reference, name=name)
    return Call(
        id=frame.id,
        operation=route.operation.name,
        request=request,
        reference=reference,
        name=name,
        follow=getattr(said, "follow", False),
        quiet=getattr(said, "quiet", False),
        bare=getattr(said, "bare", False),
    )


def _route(frame: Frame) -> tuple[Route, str | None, str | None]:
    """Return the operation called `op`, and what the frame is about; a path may say both."""
    route = ROUTES.get(frame.op)
    if route is not None:
        return route, frame.handoff_id, frame.name if route.named else None
    try:
        found = routes.find(frame.op)
        route = found.methods.get("POST")
    except NotFoundError:
        route = found = None
    if route is None or found is None:
        raise NotFoundError(f"no operation is called {frame.op[:100]!r}")
    return route, found.reference or frame.handoff_id, found.name


_ENVELOPE: Final[list[tuple[str, Any, Any]]] = [
    ("id", Id, None),
    ("op", str, ""),
    ("handoff_id", str | None, None),
    ("name", str | None, None),
    ("quiet", bool, False),
    ("bare", bool, False),
]
FOLLOWED: Final = "offer"
"""The operation whose frame may ask for the outcome too."""
_FOLLOW: Final = ("follow", bool, False)


def _kind(route: Route) -> type[Request]:
    """Return the struct of a frame for `route`: its request's fields, and what every frame has."""
    own = set(route.kind.__struct_fields__)
    fields = [field for field in _ENVELOPE if field[0] not in own]
    if route.operation.name == FOLLOWED:
        fields.append(_FOLLOW)
    name = route.kind.__name__
    kind = msgspec.defstruct(name, fields, bases=(route.kind,), frozen=True, kw_only=True)
    return cast("type[Request]", kind)


_KINDS: Final = {name: _kind(route) for name, route in ROUTES.items()}


def _plain_kind(route: Route) -> Any:
    """Return the same, known by its `op`, for a frame that is not signed and names but its handoff."""
    fields: list[Any] = [("id", Id, None), ("quiet", bool, False), ("bare", bool, False)]
    if route.operation.about_handoff:
        fields.append(("handoff_id", Annotated[str, msgspec.Meta(min_length=1)]))
    if route.signs:
        fields.append(("signature", None, None))
    if route.operation.name == FOLLOWED:
        fields.append(_FOLLOW)
    return msgspec.defstruct(
        route.kind.__name__,
        fields,
        bases=(route.kind,),
        frozen=True,
        kw_only=True,
        tag_field="op",
        tag=route.operation.name,
    )


class Plain(NamedTuple):
    """What a frame of one kind asks for."""

    operation: str
    about_handoff: bool
    exact: Callable[[Request], Request] | None
    """Makes a frame its request; None: it serves as one as it is, which is so for what is asked for most."""


_AS_READ: Final = frozenset({"offer", "ack", "complete", "settle", "get_handoff"})
PLAIN: Final = {
    _plain_kind(route): Plain(
        name, route.operation.about_handoff, None if name in _AS_READ else route.exact
    )
    for name, route in ROUTES.items()
    if not route.named
}
"""The kinds of frames that are read at once, besides `Credit` and `Flush`."""
_FRAME: Final[Any] = Union[(Credit, Flush, *PLAIN)]  # made from the table
READER: Final = msgspec.json.Decoder[list[Any]](list[_FRAME], float_hook=float)
"""Reads messages in which nothing needs a closer look (`decode_plainly`)."""


# --- writing -------------------------------------------------------------------------------------


def ok(frame_id: Id, answer: object, *, follows: bool = False) -> bytes:
    """Return the message that answers a frame; `follows`: the outcome will come under its id."""
    return _ENCODER.encode(_Ok(id=frame_id, ok=answer, follows=follows))


def refusal(frame_id: Id, error: NodropError) -> bytes:
    """Return the message that refuses a frame."""
    return _ENCODER.encode(_Refused(id=frame_id, error=document(error)))


def delivery(view: PushView) -> bytes:
    """Return the message that pushes a delivery."""
    return _ENCODER.encode(_Delivery(delivery=view))


def offered(view: WaitingView) -> bytes:
    """Return the message that tells of an offer which waits without credit."""
    return _ENCODER.encode(_Offered(offered=view))


def item(view: ItemView) -> bytes:
    """Return the message that pushes an inbox item."""
    push = "outcome" if view.kind == "outcome" else "notice"
    return _ENCODER.encode(_Item(push=push, item=view))

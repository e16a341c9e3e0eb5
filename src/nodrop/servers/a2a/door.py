"""What a request for an agent meets: finds out who asks, whom for, and in which version.

The SDK is loaded by the first request, or by what an earlier run left to be pushed or delivered: a
relay that nobody speaks A2A with does without it.
"""

import asyncio
import importlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import msgspec
from starlette.types import Message, Receive, Scope, Send

from nodrop.model.errors import (
    InvalidRequestError,
    NodropError,
    NotFoundError,
    RelayFaultError,
    TooLargeError,
    UnavailableError,
)
from nodrop.model.limits import Limits
from nodrop.model.names import AGENT_ID
from nodrop.protocol import extras
from nodrop.protocol.asgi import Headers, address_of, bearer_in, prove, refuse
from nodrop.protocol.decoding import peek
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.a2a.calling.visit import Visit, WorkWay
from nodrop.servers.a2a.pushers import Pushers

if TYPE_CHECKING:
    from nodrop.servers.a2a.pushing import Pushing
    from nodrop.servers.a2a.service import Service

log = logging.getLogger("nodrop.a2a")

_PATH: Final = re.compile(
    rf"(?:/teams/(?P<team>[^/]+))?/agents/(?P<agent>{AGENT_ID})(?P<rest>/.*)?"
)
_FRONT_DESK: Final = re.compile(r"/a2a(?P<rest>/.*)?")
_VERSION: Final = b"a2a-version"
_CURRENT: Final = b"1.0"
_BODY_SECONDS_MAX: Final = 30.0
_CLOSE: Final = (b"connection", b"close")


_LONG_NUMBER: Final = re.compile(rb"[0-9]{1000}")
"""Digits of a number that the SDK's decoder may refuse with an internal error."""
_NO_JSON: Final = InvalidRequestError("the body holds a number of too many digits")


class _Called(msgspec.Struct):
    """As much of a JSON-RPC request as the door looks at."""

    method: Any = None
    params: msgspec.Raw = msgspec.Raw(b"null")


class _Filter(msgspec.Struct):
    """As much of the parameters of a list."""

    status: str | int | None = None


class A2ADoor:
    """Every agent of one relay, to those who speak A2A."""

    def __init__(
        self,
        relay: Relay,
        way: Callable[[Caller], WorkWay],
        *,
        team: str,
        keys: Callable[[], Sequence[Any]],
        allowed: Collection[str] = (),
        strict: bool = False,
    ) -> None:
        """Open a door.

        Args:
            relay: whose agents they are.
            way: leads a caller to the relay.
            team: whose agents are meant by an address that names no team, and no token says.
            keys: the private keys that cards are signed with.
            allowed: addresses that are not public and may be called all the same.
            strict: whether cards leave out what clients of 0.3 look for.
        """
        self._relay = relay
        self._way = way
        self._team = team
        self._keys = keys
        self._allowed = allowed
        self._strict = strict
        self.grpc: str | None = None
        """HOST:PORT at which gRPC is spoken too, while it is."""
        self._service: asyncio.Future[Service] = asyncio.get_running_loop().create_future()
        self._loading: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Answer requests while the block runs, and go on with what an earlier run left."""
        if self._relay.reaches.elsewhere():
            self._load_soon()
        pushers = Pushers(self._relay, self._pushing)
        watching = asyncio.create_task(pushers.watch(), name="nodrop pushers")
        try:
            with self._relay.reaches.carried(self):
                yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            if self._loading is not None:
                loaded = await asyncio.gather(self._service, return_exceptions=True)
                if not isinstance(loaded[0], BaseException):
                    await loaded[0].close()

    def close(self) -> None:
        """Let nobody wait any longer: the relay is about to stop."""
        self._closed = True
        if self._service.done() and self._service.exception() is None:
            self._service.result().following.close()

    def reach_changed(self) -> None:
        """Look at the agents elsewhere, of which one was added, moved or dropped."""
        if self._service.done() and self._service.exception() is None:
            self._service.result().couriers.look()
        else:
            self._load_soon()

    async def check(self, address: str) -> None:
        """Refuse the address of an agent that would not be called."""
        service = await self.service()
        await service.couriers.check(address)

    def _load_soon(self) -> None:
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(), name="nodrop a2a")

    async def _load(self) -> None:
        try:
            self._service.set_result(await self._loaded())
        except ImportError as error:
            refusal = extras.missing_at_relay(f"A2A ({error})")
            self._service.set_exception(refusal)
        except Exception:
            log.exception("A2A cannot be spoken")
            self._service.set_exception(RelayFaultError())
        self._service.exception()  # whoever asks hears of it; nobody has to

    async def _loaded(self) -> "Service":
        await asyncio.to_thread(_import)
        from nodrop.servers.a2a.service import Service  # noqa: PLC0415  # needs the extra

        service = Service(
            self._relay,
            self._way,
            team=self._team,
            keys=self._keys(),
            allowed=self._allowed,
            strict=self._strict,
        )
        service.start()
        if self._closed:
            service.following.close()
        return service

    async def service(self) -> "Service":
        """Return what answers, loaded.

        Raises:
            NotInstalledError: it takes the extra.
        """
        self._load_soon()
        return await asyncio.shield(self._service)

    async def _pushing(self) -> "Pushing":
        return (await self.service()).pushing

    # --- one request ---

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._answer(scope, receive, send)
        except NodropError as error:
            await refuse(send, error)
        except _Refused as refused:
            await refuse(send, refused.error, status=refused.status, headers=[_CLOSE])
        except _GoneError:
            pass  # nobody is there to be answered
        except Exception:
            log.exception("a request could not be carried out")
            await refuse(send, RelayFaultError())

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._closed:
            raise UnavailableError("the relay is stopping")
        headers = Headers(scope["headers"])
        base = f"{scope['scheme']}://{headers.get(b'host', b'').decode('latin-1')}"
        service = await self.service()
        found = _PATH.fullmatch(scope["path"]) or _FRONT_DESK.fullmatch(scope["path"])
        if found is None:
            caller = await self._caller(headers, scope) if b"authorization" in headers else None
            await service.discovery(scope, receive, send, caller=caller, base=base)
            return
        named = found.groupdict()
        team, agent, rest = named.get("team"), named.get("agent") or "", named["rest"] or "/"
        if rest == service.card_path and scope["method"] in {"GET", "HEAD"}:
            await service.card(
                scope,
                receive,
                send,
                team=team or self._team,
                agent=agent,
                base=base,
                grpc=self.grpc,
            )
            return
        authorization = headers.get(b"authorization")
        visit = await self.visit(authorization, agent, team=team, base=base, scope=scope)
        with self._relay.incoming.counting((visit.caller.team, visit.caller.agent)) as counted:
            body = await _body(receive, headers, self.request_bytes_max(visit), counted)
        rpc = rest == "/"
        refused = service.refusal_of_form(headers, body, rpc=rpc)
        called = _Called()
        try:
            called = peek(body, _Called, self._relay.limits) if body else called
        except TooLargeError as error:
            refused = refused or service.refusal(error, rpc=rpc)
        except NodropError:
            pass  # the SDK says what is wrong with it, in JSON-RPC's own codes
        if refused is None and _LONG_NUMBER.search(body) is not None and not _is_json(body):
            refused = service.refusal(_NO_JSON, rpc=rpc)
        if refused is not None:
            await refused({**scope, "path": rest}, _Replay(body, receive), send)
            return
        query = scope["query_string"]
        versioned = _versioned(headers, query, rest, called.method)
        visit = msgspec.structs.replace(visit, listed=_listed(rest, query, called))
        inner = {
            **scope,
            "path": rest,
            "raw_path": rest.encode("latin-1", "replace"),
            "headers": versioned,
            service.visit_key: visit,
        }
        await service.application(inner, _Replay(body, receive), send)

    @property
    def limits(self) -> Limits:
        """The bounds of the relay."""
        return self._relay.limits

    def request_bytes_max(self, visit: Visit) -> int:
        """Return how large a request of a visit may be."""
        anonymous, member = self.limits.anonymous_request_bytes_max, self.limits.frame_bytes_max
        return anonymous if visit.anonymous else member

    def note_refusal(self, error: NodropError, address: str | None) -> None:
        """Put the refusal of an unknown caller into the security log, if it is about who asks."""
        self._relay.refusals.note(error, operation="a2a", address=address)

    async def visit(
        self,
        authorization: bytes | None,
        agent: str,
        *,
        team: str | None = None,
        base: str = "",
        scope: Scope | None = None,
    ) -> Visit:
        """Return who asks, at an agent that there is.

        Raises:
            UnauthenticatedError: nobody, and the agent is not a public one.
            NotFoundError: there is no such agent, or somebody of another team asks.
            RateLimitedError: nobody is known, and its address asks too often.
        """
        caller = await self._admitted(authorization, team, agent, scope)
        if agent:
            await (await self.service()).publishing.agent(caller.team, agent)
        way = self._way(caller)
        return Visit(caller=caller, agent=agent, base=base, way=way, grpc=self.grpc)

    async def _admitted(
        self, authorization: bytes | None, team: str | None, agent: str, scope: Scope | None
    ) -> Caller:
        if authorization is None and agent:
            ours = team or self._team
            if self._relay.reaches.get(ours, agent).public:
                return self._relay.admit_anonymous(ours, address=address_of(scope or {}))
        caller = await self._caller({b"authorization": authorization or b""}, scope)
        if team is not None and team != caller.team:
            foreign = NotFoundError("no such team")
            foreign.suspect = "foreign_team"
            self._relay.refuse(caller, "a2a", foreign)
            raise foreign
        return caller

    async def _caller(self, headers: Headers, scope: Scope | None) -> Caller:
        address = address_of(scope or {})
        secret = bearer_in(headers)
        caller = await self._relay.authenticate(secret, address=address, operation="a2a")
        prove(scope or {}, caller.team, caller.agent)
        return caller


class _Refused(Exception):  # noqa: N818  # as a refusal is called everywhere here
    def __init__(self, error: NodropError, status: int) -> None:
        super().__init__(error.detail)
        self.error = error
        self.status = status


class _GoneError(Exception):
    """The client went away."""


class _Replay:
    """A body that was read, to be read again, and then whatever comes."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _body(
    receive: Receive, headers: Headers, bytes_max: int, counted: Callable[[int], None]
) -> bytes:
    too_large = TooLargeError(f"the body is larger than {bytes_max} bytes")
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > bytes_max:
        raise _Refused(too_large, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    chunks: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(_BODY_SECONDS_MAX):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _GoneError
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > bytes_max:
                    raise _Refused(too_large, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                counted(len(chunks[-1]))
                more = message.get("more_body", False)
    except TimeoutError:
        slow = InvalidRequestError(
            f"the body did not arrive within {_BODY_SECONDS_MAX:g} s",
            next_step="Send the whole body at once.",
        )
        raise _Refused(slow, HTTPStatus.REQUEST_TIMEOUT) from None
    return b"".join(chunks)


def _versioned(
    headers: Headers, query: bytes, rest: str, method: object
) -> list[tuple[bytes, bytes]]:
    """Return the headers with the version that is spoken.

    Without one A2A means 0.3. Clients of 1.0 forget it, and what they call tells: no method and no
    path is the same in both versions.
    """
    said = headers.get(_VERSION, b"").strip()
    if not said and (found := re.search(rb"(?i)(?:^|&)a2a-version=([^&]*)", query)):
        said = found[1]
    if not said:
        modern = (
            not rest.startswith("/v1/")
            if rest != "/"
            else isinstance(method, str) and method[:1].isupper()
        )
        said = _CURRENT if modern else b""
    kept = [(name, value) for name, value in headers.items() if name != _VERSION]
    return [*kept, (_VERSION, said)] if said else kept


def _listed(rest: str, query: bytes, called: _Called) -> str | None:
    """Return the state that a list is asked for, in the caller's own words."""
    if rest == "/tasks":
        found = parse_qs(query.decode("latin-1")).get("status", [])
        return found[-1] if found else None
    if rest != "/" or called.method != "ListTasks":
        return None
    try:
        status = msgspec.json.decode(called.params, type=_Filter).status
    except msgspec.MsgspecError:
        return None  # the SDK says what is wrong with it
    return None if status is None else str(status)


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return False
    return True


def _import() -> None:
    importlib.import_module("nodrop.servers.a2a.service")  # takes a while, and needs the extra

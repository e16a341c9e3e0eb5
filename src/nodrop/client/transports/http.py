"""The HTTP transport: a request per call, and long polls for deliveries.

For networks that do not let a WebSocket through. Slower, and otherwise the same.
"""

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from nodrop.client.auth.tokens import Tokens
from nodrop.client.durations import asked_seconds
from nodrop.client.ids import new_id
from nodrop.client.shown import HandoffShown
from nodrop.client.statuses import refusal
from nodrop.client.transports import retrying, trust
from nodrop.client.transports.connection_log import ConnectionLog
from nodrop.client.transports.retrying import Retrying
from nodrop.client.values import given
from nodrop.model.errors import (
    CursorUnknownError,
    InvalidRequestError,
    NodropError,
    UnansweredError,
    UnauthenticatedError,
    UnavailableError,
    UnreachableError,
)
from nodrop.model.handoff import State
from nodrop.model.limits import DEFAULT
from nodrop.protocol.decoding import encode_strict
from nodrop.protocol.errors import from_json
from nodrop.protocol.operations import OPERATIONS, Operation
from nodrop.protocol.routes import ROUTES

FIRST_SECONDS_MAX: Final = 2.0
"""How long a person waits to hear that no relay is there."""
CONNECT_SECONDS_MAX: Final = 10.0
ANSWER_SECONDS_MAX: Final = 20.0
"""How long an answer may take beyond the wait that was asked for."""
HEARTBEAT_SECONDS_MIN: Final = 1.0
"""No answer to a heartbeat is waited for less than this."""
POLL_SECONDS: Final = 20.0
"""How long one long poll for deliveries waits."""
CONNECTIONS_MAX: Final = 1_000
"""Every wait takes a connection, and must not keep a heartbeat waiting for one."""
PIECE_BYTES: Final = 1_048_576

_UNREACHED: Final = (OSError, aiohttp.ClientError)
_NOT_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_ANSWER: Final = msgspec.json.Decoder(dict[str, Any])


class HttpTransport:
    """Calls and deliveries over `/v1/…`."""

    def __init__(
        self,
        url: str,
        tokens: Tokens,
        *,
        ca: Path | None = None,
        first_seconds_max: float | None = FIRST_SECONDS_MAX,
        policy: Retrying = retrying.DEFAULT,
    ) -> None:
        """Prepare a transport to the operations below `url`; nothing is sent yet.

        Args:
            url: `http(s)://…/v1`.
            tokens: where the token comes from.
            ca: certificates of the CAs to trust, if not the system's.
            first_seconds_max: how long to try for a first answer; None tries for ever.
            policy: how to try again.
        """
        self._url = url
        self._tokens = tokens
        self._trusted = trust.context(ca)
        self._first_seconds_max = first_seconds_max
        self._policy = policy
        self._connection_log = ConnectionLog(url, now=policy.now)
        self._reached = False
        self.breaks = 0
        """How often no relay answered."""
        self._heartbeat_seconds: float | None = None
        self._closed = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None
        self._waiting: set[asyncio.Timeout] = set()
        """Those who wait for an answer, and until when."""

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Return the answer; see `transport.Transport`."""
        request = _Request(OPERATIONS[operation], fields, handoff=handoff, name=name)
        try:
            return await self._answered(request)
        except (UnansweredError, UnreachableError):
            raise
        except UnavailableError:
            if not retrying.is_repeatable(operation, fields):
                raise
        return await self._policy.until_taken(lambda: self._answered(request))

    async def deliveries(self, *, process: str, heartbeat_seconds: float, credit: int) -> "_Polled":
        """Take work as `process`; see `transport.Transport`."""
        self._heartbeat_seconds = heartbeat_seconds
        return _Polled(self, process=process, heartbeat_seconds=heartbeat_seconds, credit=credit)

    async def take(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return deliveries, whenever the relay is able to make any: a worker has time."""
        return await self._policy.endlessly(lambda: self.call("take", fields), what="take")

    async def close(self) -> None:
        """Give up the connections."""
        self._closed.set()
        await self._give_up()

    async def _answered(self, request: "_Request") -> dict[str, Any]:
        """Send `request` until some relay answers it, for as long as it takes to reach one.

        Raises:
            UnansweredError: it was sent too often, and each time the connection ended first.
        """
        delays = self._policy.delays()
        lost = 0
        patience = None if self._reached else self._first_seconds_max
        give_up_at = None if patience is None else self._policy.now() + patience
        delay = next(delays)
        while True:
            self._require_open()
            if delay:
                await self._policy.sleep(delay)
            try:
                return await self._authenticated(request)
            except _UNREACHED as error:
                self.breaks += 1
                self._require_open()
                lost += not (request.wait_seconds or isinstance(error, _NOT_SENT))
                if lost >= self._policy.unanswered_max:
                    raise UnansweredError(
                        f"{lost} connections ended before the relay answered"
                    ) from error
                if give_up_at is not None and (
                    trust.is_untrusted(error) or self._policy.now() >= give_up_at
                ):
                    raise trust.unreached(self._url, error) from error
                delay = next(delays)
                patient = give_up_at is None
                self._connection_log.failed(error, again_in=delay, patient=patient)

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise InvalidRequestError("the connection was closed", next_step="Connect again.")

    async def _authenticated(self, request: "_Request") -> dict[str, Any]:
        token = await self._tokens.current()
        try:
            answer = await self._send(request, token)
        except UnauthenticatedError:
            token = await self._tokens.renewed(token)
            if token is None:
                raise
            answer = await self._send(request, token)
        return answer

    async def _send(self, request: "_Request", token: str | None) -> dict[str, Any]:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX, ssl=self._trusted)
            self._session = aiohttp.ClientSession(connector=connector)
        session = self._session
        headers = dict(request.headers)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        asking = session.request(
            request.operation.method,
            URL(f"{self._url}/{request.path}", encoded=True),
            params=request.query,
            data=request.data(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(
                sock_connect=CONNECT_SECONDS_MAX, sock_read=self._patience(request)
            ),
        )
        try:
            async with self._until_given_up(), asking as response:
                body = await response.read()
                self._reached = True
                self._connection_log.connected()
                if response.ok:
                    return self._answer(body)
                raise _refusal(response.status, body)
        except aiohttp.SocketTimeoutError:
            # Where one connection went silent, those on the others may wait for nothing too.
            if self._session is session:
                await self._give_up()
            raise

    def _answer(self, body: bytes) -> dict[str, Any]:
        try:
            return _ANSWER.decode(body)
        except msgspec.MsgspecError:
            # Such as the page of a network that wants to be signed in to first.
            raise UnreachableError(f"{self._url}: what answers there is no relay") from None

    @asynccontextmanager
    async def _until_given_up(self) -> AsyncGenerator[None]:
        """End the block when the connections are given up; aiohttp lets who reads a body wait."""
        async with asyncio.timeout(None) as until:
            self._waiting.add(until)
            try:
                yield
            finally:
                self._waiting.discard(until)

    def _patience(self, request: "_Request") -> float:
        """Return for how many seconds the relay may be silent before `request` is repeated.

        A heartbeat is repeated while the lease that it is to keep still runs.
        """
        if request.operation.name == "heartbeat" and self._heartbeat_seconds is not None:
            return min(max(self._heartbeat_seconds, HEARTBEAT_SECONDS_MIN), ANSWER_SECONDS_MAX)
        return request.wait_seconds + ANSWER_SECONDS_MAX

    async def _give_up(self) -> None:
        """Give up every connection; what waits for an answer is repeated over others."""
        session, self._session = self._session, None
        for until in self._waiting:
            if not until.expired():
                until.reschedule(0)
        if session is not None:
            await session.close()


class _Request:
    """One operation as HTTP asks for it."""

    def __init__(
        self,
        operation: Operation,
        fields: Mapping[str, Any],
        *,
        handoff: str | None,
        name: str | None,
    ) -> None:
        ROUTES[operation.name].check_address(reference=handoff, name=name)
        self.operation = operation
        self.path = operation.path.replace("{id}", quote(handoff or "", safe="")).replace(
            "{name}", quote(name or "", safe="")
        )
        self.headers: dict[str, str] = {}
        self.query: dict[str, str] | None = None
        self.body: bytes | None = None
        self.wait_seconds = asked_seconds(fields.get("wait") or 0, "wait")
        if operation.method == "GET":
            self.query = {key: _text(value) for key, value in fields.items() if value is not None}
            return
        body = dict(fields)
        if operation.name == "register":  # the body is the manifest itself
            body = fields["manifest"]
        if operation.method in {"PUT", "DELETE"} and fields.get("command_id"):
            self.headers["Idempotency-Key"] = fields["command_id"]
        self.headers["Content-Type"] = "application/json"
        self.body = encode_strict(body)

    def data(self) -> bytes | io.BytesIO | None:
        """Return the body for one sending: a large one goes in pieces and holds nobody up."""
        if self.body is None or len(self.body) <= PIECE_BYTES:
            return self.body
        return io.BytesIO(self.body)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _refusal(status: int, body: bytes) -> NodropError:
    """Return the error that a problem document names; something in between may send none."""
    if status == HTTPStatus.REQUEST_TIMEOUT:
        # Whatever kept the request from arriving, it was not the request.
        return UnavailableError("the relay did not get the whole request in time")
    try:
        document = _ANSWER.decode(body)
        if "code" in document:  # else it is somebody else's
            return from_json(document)
    except msgspec.MsgspecError:
        pass
    return refusal(status, f"the relay, or something before it, answered {status}")


class _Polled:
    """Deliveries by long poll: as many as the credit allows, each poll once."""

    def __init__(
        self, transport: HttpTransport, *, process: str, heartbeat_seconds: float, credit: int
    ) -> None:
        self._transport = transport
        self._process = process
        self._heartbeat_seconds = heartbeat_seconds
        self._credit = credit
        self._changed = asyncio.Event()
        self._busy = asyncio.Event()
        """Set while no more deliveries may come."""
        self._closed = False
        self._poll: asyncio.Task[dict[str, Any]] | None = None

    @property
    def breaks(self) -> int:
        """How often no relay answered."""
        return self._transport.breaks

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while not self._closed:
            if self._credit <= 0:
                self._changed.clear()
                await self._changed.wait()
                continue
            for delivery in await self._take():
                self._credit -= 1
                if self._credit <= 0:
                    self._busy.set()
                yield delivery

    async def hand_to(self, take: Callable[[dict[str, Any]], None]) -> None:
        """Hand deliveries to `take`, until closed."""
        async for delivery in self:
            take(delivery)

    async def waiting(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what comes into the inbox while nothing more may be taken, until closed."""
        after: dict[str, Any] = {}
        while not self._closed:
            await self._busy.wait()
            page = {"wait": POLL_SECONDS, **after}
            try:
                answer = await self._transport.call("inbox", page)
            except CursorUnknownError:  # another log has taken the place of the one that was read
                after = {}
                continue
            after = given(after=answer["after"], after_hash=answer.get("after_hash"))
            for item in answer["items"]:
                if (item["kind"], item["state"]) == ("handoff", State.OFFERED.value):
                    shown = await self._transport.call(
                        "get_handoff", {}, handoff=item["handoff_id"]
                    )
                    handoff = HandoffShown(shown["handoff"])
                    if handoff.ack is None or not handoff.ack.queued:  # else another process has it
                        yield {"id": handoff.id, "capability": handoff.capability}

    def grant(self, n: int) -> None:
        """Let `n` more come, with the next poll."""
        self._credit += n
        if self._credit > 0:
            self._busy.clear()
        self._changed.set()

    def show_life(self) -> None:
        """Do nothing: every poll is a sign of life."""

    async def close(self) -> None:
        """Stop taking: a poll that waits is given up."""
        self._closed = True
        self._changed.set()
        if self._poll is not None:
            self._poll.cancel()

    async def _take(self) -> list[dict[str, Any]]:
        fields = {
            "max": min(self._credit, DEFAULT.deliveries_max),
            "wait": POLL_SECONDS,
            "heartbeat_seconds": self._heartbeat_seconds,
            "process": self._process,
            "command_id": new_id(),
        }
        self._poll = asyncio.create_task(self._transport.take(fields))
        try:
            await asyncio.wait([self._poll])
        finally:
            self._poll.cancel()
        if self._closed and self._poll.cancelled():
            return []
        return self._poll.result()["deliveries"]

"""Everything of the A2A door that needs the SDK, put together once."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from a2a.utils.errors import ContentTypeNotSupportedError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nodrop.model.errors import NodropError
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.a2a import catalog, refusals
from nodrop.servers.a2a.addresses import Addresses
from nodrop.servers.a2a.application import CARD_PATH, application, refusal, serve_card
from nodrop.servers.a2a.calling.couriers import Couriers
from nodrop.servers.a2a.calling.visit import WorkWay
from nodrop.servers.a2a.following import Following
from nodrop.servers.a2a.handler import VISIT, Handler
from nodrop.servers.a2a.publishing import Publishing
from nodrop.servers.a2a.pushing import Pushing
from nodrop.servers.a2a.signing import CardKeys, PrivateKey


class Service:
    """What answers requests, pushes and delivers, for one relay."""

    card_path: Final = CARD_PATH
    visit_key: Final = VISIT

    def __init__(
        self,
        relay: Relay,
        way: Callable[[Caller], WorkWay],
        *,
        team: str,
        keys: Sequence[PrivateKey],
        allowed: Collection[str],
        strict: bool,
    ) -> None:
        addresses = Addresses(allowed)
        self.following = Following()
        self.publishing = Publishing(relay, way, CardKeys(keys), team=team)
        self.pushing = Pushing(relay, way, following=self.following, addresses=addresses)
        self.couriers = Couriers(relay, way, addresses=addresses)
        self.handler = Handler(
            following=self.following,
            publishing=self.publishing,
            pushing=self.pushing,
            limits=relay.limits,
            refuse=relay.refuse,
        )
        self.application: Starlette = application(self.handler)
        self._team = team
        self._strict = strict

    def start(self) -> None:
        """Go on with what an earlier run left."""
        self.couriers.look()

    async def close(self) -> None:
        """Stop pushing and delivering; the next run goes on."""
        self.following.close()
        await self.couriers.close()
        await self.pushing.close()

    async def card(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        team: str,
        agent: str,
        base: str,
        grpc: str | None,
    ) -> None:
        """Serve the card of an agent, or of the relay itself."""
        changed_at: str | None = None
        if agent:
            card, changed_at = await self.publishing.card(team, agent, base=base, grpc=grpc)
        else:
            card = await self.publishing.front_desk(team, base=base, public_only=True)
        request = Request(scope, receive)
        answer = await serve_card(card, request, changed_at=changed_at, strict=self._strict)
        await answer(scope, receive, send)

    async def discovery(
        self, scope: Scope, receive: Receive, send: Send, *, caller: Caller | None, base: str
    ) -> None:
        """Serve what tells strangers, or members, who is there."""
        request = Request(scope, receive)
        seen = catalog.Seen(
            team=caller.team if caller else self._team, public_only=caller is None, base=base
        )
        answer = await catalog.answer(request, self.publishing, seen, strict=self._strict)
        await answer(scope, receive, send)

    @staticmethod
    def refusal(error: NodropError, *, rpc: bool) -> Response:
        """Return a refusal as A2A has it."""
        return refusal(refusals.error(error), rpc=rpc)

    @staticmethod
    def refusal_of_form(
        headers: Mapping[bytes, bytes], body: bytes, *, rpc: bool
    ) -> Response | None:
        """Return the refusal of a body that is no text, or not JSON by its own account."""
        try:
            body.decode()
        except UnicodeDecodeError:
            return refusal(None, rpc=rpc)
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if not body or not kind or kind == b"application/json" or kind.endswith(b"+json"):
            return None
        error = ContentTypeNotSupportedError(message="the body is not JSON by its own account")
        return refusal(error, rpc=rpc)

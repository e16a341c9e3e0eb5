"""The other way round: an executor of the A2A SDK hands work to an agent of the team, over A2A.

It is a client of the relay's endpoint `/agents/NAME/`, as any other, that passes on what the executor's
own request is part of, and names what it sends: the same words said again within one run are the
same task.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypedDict
from urllib.parse import quote

from nodrop.adapters.a2a import tasks
from nodrop.adapters.a2a.handed import Handed
from nodrop.adapters.a2a.incoming import Incoming, incoming
from nodrop.adapters.a2a.messages import EXTENSION
from nodrop.adapters.a2a.outcomes import Question
from nodrop.adapters.port.events import TASK
from nodrop.adapters.port.handing import WAIT, Answer
from nodrop.adapters.port.installed import needs
from nodrop.client.durations import Due, Duration, spelled_if
from nodrop.client.settings import Address, CaFile, load
from nodrop.client.transports import trust
from nodrop.client.transports.address import Remote, parse
from nodrop.client.transports.connecting import tokens_for
from nodrop.client.values import given, plain
from nodrop.model.errors import InvalidRequestError

with needs("a2a-sdk", "1.3", extra="a2a"):
    import httpx
    from a2a.client import Client, ClientConfig, create_client
    from a2a.extensions.common import HTTP_EXTENSION_HEADER
    from a2a.helpers import new_data_part
    from a2a.server.agent_execution import RequestContext
    from a2a.types import Message, Role


class Handing(TypedDict, total=False):
    """On what terms an executor hands work on."""

    capability: str | None
    wait: Duration
    """How long to wait for the result; the work goes on after that."""
    deadline: Due | None
    """Where none came in: otherwise that one holds."""
    attempts_max: int | None
    agent: str | None
    """Who hands it on: the name that the executor works under."""
    address: Address | None
    """Where the relay is; this and the three around it are found as `nodrop.connect` finds them."""
    token: str | None
    ca: CaFile | None


class HandOff:
    """A way to hand work to one agent."""

    def __init__(self, to: str, terms: Handing) -> None:
        self._to = to
        self._terms = terms

    async def __call__(
        self,
        context: RequestContext,
        task: Any = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Answer | Question:
        """Hand a task over and wait for what becomes of it.

        Args:
            context: what the executor was called with.
            task: what to do; what the executor's own task began with, where left out.
            fields: further fields of the payload.

        Raises:
            UnavailableError: it could not be stored, such as `unreachable`: no relay answered.
        """
        came = incoming(context)
        payload = plain({TASK: came.task if task is None else task, **(fields or {})})
        async with self._connected(came.traceparent) as client:
            handed = Handed(client, came, self._offer(came, payload))
            return await handed.rested(self._terms.get("wait", WAIT))

    async def cancel(self, context: RequestContext) -> None:
        """Withdraw what waits for an answer of this task; what runs is withdrawn with `execute`."""
        came = incoming(context)
        if came.answers is not None:
            async with self._connected(came.traceparent) as client:
                await tasks.cancelled(client, came.answers[0])

    def _offer(self, came: Incoming, payload: dict[str, Any]) -> Message:
        capability = self._terms.get("capability")
        key = came.key(self._to, capability, payload)
        ours = given(
            capability=capability,
            attemptsMax=self._terms.get("attempts_max"),
            deadline=came.deadline or spelled_if(self._terms.get("deadline")),
            parentId=came.parent_id,
            idempotencyKey=key,
        )
        return Message(
            message_id=key,
            context_id=came.correlation_id,
            role=Role.ROLE_USER,
            parts=[new_data_part(payload)],
            metadata={EXTENSION: ours},
            extensions=[EXTENSION],
        )

    @asynccontextmanager
    async def _connected(self, traceparent: str | None) -> AsyncGenerator[Client]:
        terms = self._terms
        settings = load(
            terms.get("address"),
            agent=terms.get("agent"),
            token=terms.get("token"),
            ca=terms.get("ca"),
        )
        place = parse(settings.address, team=settings.team)
        if not isinstance(place, Remote):
            raise InvalidRequestError(
                f"{settings.address} is a database: A2A takes a relay that listens",
                next_step="Start one with `nodrop up`, or set NODROP_URL.",
            )
        token = await tokens_for(place, settings).current()
        bearer = None if token is None else f"Bearer {token}"
        headers = given(authorization=bearer, traceparent=traceparent)
        headers[HTTP_EXTENSION_HEADER] = EXTENSION
        team = "" if place.team is None else f"/teams/{quote(place.team, safe='')}"
        card = tasks.endpoint(f"{place.base}{team}/agents/{quote(self._to, safe='')}/")
        async with (
            httpx.AsyncClient(
                headers=headers,
                timeout=tasks.REQUEST_SECONDS_MAX,
                verify=trust.context(settings.ca),
            ) as http,
            await create_client(card, ClientConfig(httpx_client=http)) as client,
        ):
            yield client

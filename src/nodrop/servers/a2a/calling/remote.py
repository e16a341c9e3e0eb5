"""An A2A agent elsewhere, as the SDK's client reaches it. Knows nothing of handoffs."""

from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Final

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.client import ClientCallContext
from a2a.client.client_factory import minimal_agent_card
from a2a.client.errors import A2AClientError, AgentCardResolutionError
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
)
from a2a.utils.errors import A2AError, InternalError, TaskNotFoundError

from nodrop.relay.directory.reach import Reach
from nodrop.servers.a2a import extension
from nodrop.servers.a2a.addresses import Addresses

TIMEOUT_SECONDS: Final = 30.0
_BINDINGS: Final = ["JSONRPC", "HTTP+JSON"]
_NO_CARD: Final = frozenset({401, 403, 404, 405})


class AwayError(Exception):
    """It cannot be reached, or makes no sense: whether it heard what was said is not known."""


class RefusedError(Exception):
    """It answered, and said no."""

    def __init__(self, error: A2AError) -> None:
        super().__init__(error.message)
        self.forgotten = isinstance(error, TaskNotFoundError)
        """It does not know the task: some keep theirs in memory, and were started again."""
        self.retryable = self.forgotten or isinstance(error, InternalError)
        """Another attempt may do better."""


class Remote:
    """One agent elsewhere."""

    def __init__(self, reach: Reach, addresses: Addresses) -> None:
        assert reach.a2a is not None, "it lives elsewhere"
        self._url = reach.a2a
        allowed = addresses.also(reach.a2a) if reach.private else addresses
        headers = {"authorization": f"Bearer {reach.token}"} if reach.token else {}
        self._http = allowed.client(timeout_seconds=TIMEOUT_SECONDS, headers=headers)
        self._client: Client | None = None
        self.card = AgentCard()

    async def close(self) -> None:
        """Let go of its connections."""
        await self._http.aclose()

    async def look(self) -> AgentCard:
        """Return its card, and know how to speak to it from now on.

        An address without a card is taken for that of a JSON-RPC endpoint.

        Raises:
            AwayError: it is not there.
        """
        direct = self._url.endswith(".json")
        resolver = A2ACardResolver(self._http, self._url)
        with _reaching():
            try:
                self.card = await resolver.get_agent_card("/" if direct else None)
            except AgentCardResolutionError as error:
                no_card = error.status_code in _NO_CARD or isinstance(error.__cause__, ValueError)
                if direct or not no_card:  # a page that is no JSON is none either
                    raise
                self.card = minimal_agent_card(self._url, ["JSONRPC"])
                self.card.supported_interfaces[0].protocol_version = "1.0"
            config = ClientConfig(
                streaming=False,
                polling=True,
                httpx_client=self._http,
                supported_protocol_bindings=_BINDINGS,
            )
            try:
                self._client = ClientFactory(config).create(self.card)
            except ValueError as error:
                raise AwayError(f"it speaks nothing that we do: {error}") from error
        return self.card

    @property
    def speaks_ours(self) -> bool:
        """Whether it knows our extension."""
        return any(known.uri == extension.URI for known in self.card.capabilities.extensions)

    @property
    def streams(self) -> bool:
        """Whether it tells of changes by itself."""
        return self.card.capabilities.streaming

    async def send(self, message: Message, *, traceparent: str) -> Task | Message:
        """Say something, as part of a trace, and return what it became, at once.

        Raises:
            AwayError: nobody knows whether it arrived.
            RefusedError: it did, and was refused.
        """
        configuration = SendMessageConfiguration(return_immediately=True)
        request = SendMessageRequest(message=message, configuration=configuration)
        ours = {"A2A-Extensions": extension.URI} if self.speaks_ours else {}
        parameters = {"traceparent": traceparent, **ours}
        context = ClientCallContext(service_parameters=parameters)
        with _reaching():
            async for answer in self._known.send_message(request, context=context):
                return answer.task if answer.HasField("task") else answer.message
        raise AwayError("it answered nothing")

    async def task(self, task_id: str) -> Task:
        """Return a task as it is there."""
        with _reaching():
            return await self._known.get_task(GetTaskRequest(id=task_id))

    async def changes(self, task_id: str) -> AsyncGenerator[StreamResponse]:
        """Yield what it tells of a task, for as long as it does."""
        with _reaching():
            async for change in self._known.subscribe(SubscribeToTaskRequest(id=task_id)):
                yield change

    async def cancel(self, task_id: str) -> None:
        """Ask it to stop."""
        with _reaching():
            await self._known.cancel_task(CancelTaskRequest(id=task_id))

    @property
    def _known(self) -> Client:
        assert self._client is not None, "its card was looked at first"
        return self._client


@contextmanager
def _reaching() -> Generator[None]:
    """Tell those that are away from those that said no."""
    try:
        yield
    except (A2AClientError, httpx.HTTPError, httpx.InvalidURL) as error:
        raise AwayError(str(error)) from error
    except A2AError as error:
        raise RefusedError(error) from error
    except (ValueError, KeyError, TypeError) as error:
        # What the SDK raises where an answer is not shaped as A2A has it.
        raise AwayError(f"its answer makes no sense: {error!r}") from error

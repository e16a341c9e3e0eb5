"""An agent: what it can do, and how it is set to work."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from nodrop.client.durations import Duration, seconds
from nodrop.client.ids import new_id
from nodrop.client.settings import Address
from nodrop.client.transports.connecting import Process, TransportName, open_client
from nodrop.client.transports.transport import Transport
from nodrop.client.values import given, listed, plain
from nodrop.client.working.capability import Capability
from nodrop.client.working.loop import fastest_loop
from nodrop.client.working.worker import Pace, Worker
from nodrop.model.limits import DEFAULT

CONCURRENCY: Final = 8
"""How many of one capability run at once where nobody says."""
GRACE_SECONDS: Final = 10.0

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Agent:
    """An agent that works: functions become its capabilities.

    Acknowledgement, heartbeats, validation, retries and an orderly end are taken care of.
    """

    def __init__(
        self,
        name: str,
        *,
        description: str | None = None,
        tags: Iterable[str] = (),
        concurrency: int | None = None,
        availability: Mapping[str, Any] | None = None,
        discovery_endpoint: str | None = None,
    ) -> None:
        """Describe an agent.

        Args:
            name: its id in the team.
            description: what it is for.
            tags: words to find it by.
            concurrency: how many handoffs it works on at once, over all capabilities.
            availability: when to expect it: `mode` (always, scheduled or on_demand),
                `next_active_at`, `heartbeat_seconds`.
            discovery_endpoint: where its manifest is found, if not at the relay alone.
        """
        self.name = name
        self._description = description
        self._tags = listed(tags, "tags")
        self._concurrency = concurrency
        self._availability = plain(availability)
        self._discovery_endpoint = discovery_endpoint
        self._capabilities: dict[str | None, Capability] = {}
        self._stops: set[Callable[[], None]] = set()

    def capability(
        self,
        name: str,
        *,
        description: str | None = None,
        timeout: Duration | None = None,
        reliability_sla: float | None = None,
        concurrency: int | None = None,
        tags: Iterable[str] = (),
        input_schema: Any = None,
        output_schema: Any = None,
    ) -> Callable[[F], F]:
        """Make a function, async or plain, the handler of a capability.

        Its type hints become the schemas of payload and result; see `handlers`.

        Args:
            name: the capability.
            description: what it does; the first line of the docstring where left out.
            timeout: the longest an attempt may take, time spent blocked apart. An async handler
                is cancelled then; a plain function runs on in its thread, and its task is gone.
            reliability_sla: the share of handoffs the agent claims to complete.
            concurrency: how many run at once.
            tags: words to find it by.
            input_schema: what payloads look like, where the hints do not say: a schema or a type.
            output_schema: what results look like, likewise.

        Raises:
            TypeError: a parameter or the result has no JSON form.
        """

        def add(function: F) -> F:
            capability = Capability(
                function,
                name=name,
                description=description,
                timeout=timeout,
                reliability_sla=reliability_sla,
                concurrency=concurrency,
                tags=tags,
                input_schema=input_schema,
                output_schema=output_schema,
            )
            self._add(capability)
            return function

        return add

    def handler(self, function: F) -> F:
        """Make a function the handler of handoffs that name no capability."""
        self._add(Capability(function))
        return function

    def _add(self, capability: Capability) -> None:
        if capability.name in self._capabilities:
            what = capability.name or "untyped handoffs"
            raise ValueError(f"{self.name} has a handler for {what} already")
        self._capabilities[capability.name] = capability

    def manifest(self) -> dict[str, Any]:
        """Return what the agent publishes about itself: only what was said."""
        declared = [c.declared() for name, c in self._capabilities.items() if name is not None]
        return {
            "agent_id": self.name,
            **given(description=self._description, tags=self._tags or None),
            "capabilities": declared,
            **given(
                concurrency=self._concurrency,
                availability=self._availability,
                discovery_endpoint=self._discovery_endpoint,
            ),
        }

    @property
    def slots(self) -> int:
        """How many handoffs it works on at once."""
        if self._concurrency is not None:
            return self._concurrency
        return sum(c.concurrency or CONCURRENCY for c in self._capabilities.values())

    def find(self, capability: str | None) -> Capability | None:
        """Return what is asked for. Who asks for nothing in particular means the only thing."""
        found = self._capabilities.get(capability)
        if found is None and capability is None and len(self._capabilities) == 1:
            return next(iter(self._capabilities.values()))
        return found

    async def serve(
        self,
        address: Address | None = None,
        *,
        token: str | None = None,
        team: str | None = None,
        transport: TransportName | Transport | None = None,
        home: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
        heartbeat_seconds: float = DEFAULT.heartbeat_seconds,
        grace: Duration = GRACE_SECONDS,
    ) -> None:
        """Work until stopped or cancelled. A relay that is not there yet is waited for.

        Args:
            address: as for `nodrop.connect`.
            token: the agent's token; see `nodrop.connect`.
            team: the team.
            transport: "websocket", "http", or one that is open already.
            home: where this user's credentials are, if not in `NODROP_HOME`.
            ca: a file with the certificates of the CAs to trust (PEM), if not the system's.
            heartbeat_seconds: how often to give a sign of life; missing three is taken for a crash.
            grace: how long running handlers may go on once stopped.

        Raises:
            NodropError: the relay does not let this agent in.
        """
        if not self._capabilities:
            raise ValueError(f"{self.name} can do nothing: give it a capability or a handler")
        least, most = DEFAULT.heartbeat_seconds_min, DEFAULT.heartbeat_seconds_max
        if not least <= heartbeat_seconds <= most:
            raise ValueError(f"heartbeat_seconds must be between {least:g} and {most:g}")
        process = Process(id=new_id(), heartbeat_seconds=heartbeat_seconds)
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.call_soon_threadsafe(stopping.set)

        self._stops.add(stop)
        opening = open_client(
            address,
            agent=self.name,
            token=token,
            team=team,
            transport=transport,
            home=home,
            ca=ca,
            process=process,
        )
        try:
            client = await _unless(stopping, opening)
            if client is None:
                return
            try:
                pace = Pace(heartbeat_seconds=heartbeat_seconds, grace_seconds=seconds(grace))
                await Worker(self, client, process=process.id, pace=pace).run(stopping)
            finally:
                await client.close()
        finally:
            self._stops.discard(stop)

    def stop(self) -> None:
        """Have every `serve` of this agent finish what runs and end. From any thread."""
        for stop in list(self._stops):
            stop()

    def run(
        self,
        address: Address | None = None,
        *,
        token: str | None = None,
        team: str | None = None,
        transport: TransportName | None = None,
        home: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
        heartbeat_seconds: float = DEFAULT.heartbeat_seconds,
        grace: Duration = GRACE_SECONDS,
    ) -> None:
        """Work until the program is told to stop: `serve`, for programs that do nothing else.

        The first SIGINT or SIGTERM lets running handlers finish; the second does not.
        """
        serving = self.serve(
            address,
            token=token,
            team=team,
            transport=transport,
            home=home,
            ca=ca,
            heartbeat_seconds=heartbeat_seconds,
            grace=grace,
        )
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(_until_signalled(serving, self.stop))


async def serve(
    *agents: Agent,
    address: Address | None = None,
    team: str | None = None,
    transport: TransportName | None = None,
    home: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    heartbeat_seconds: float = DEFAULT.heartbeat_seconds,
    grace: Duration = GRACE_SECONDS,
) -> None:
    """Have several agents work in one process until stopped or cancelled; see `Agent.serve`.

    If one of them cannot go on, the others finish what they do, and its error is raised in a group.
    """
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            work = agent.serve(
                address,
                team=team,
                transport=transport,
                home=home,
                ca=ca,
                heartbeat_seconds=heartbeat_seconds,
                grace=grace,
            )
            group.create_task(work, name=agent.name)


async def _unless(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` returns; None if we are to stop before it is done."""
    doing, told = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({doing, told}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        told.cancel()
        doing.cancel()
        await asyncio.wait([doing])


async def _until_signalled(serving: Coroutine[Any, Any, None], stop: Callable[[], None]) -> None:
    """Serve; the first signal stops, the second ends the process as if nobody listened."""
    loop = asyncio.get_running_loop()
    heard: list[int] = []

    def on_signal(number: int) -> None:
        if heard:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        heard.append(number)
        stop()

    # Elsewhere than in the main thread, or on Windows, signals are somebody else's.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
    await serving

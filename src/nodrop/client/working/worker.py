"""One agent at work in this process: takes deliveries, runs handlers, gives signs of life, stops.

What is done with one delivery is `running`; what an agent can do is `agent`.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import msgspec

from nodrop.client.client import Client
from nodrop.client.transports import retrying
from nodrop.client.transports.retrying import Retrying
from nodrop.client.transports.transport import DeliveryStream
from nodrop.client.working.capability import Capability
from nodrop.client.working.lease import Lease, seconds_since_boot
from nodrop.client.working.queueing import Queueing
from nodrop.client.working.running import Key, Running, Slot
from nodrop.model.errors import NodropError, NotFoundError, UnavailableError

CANCEL_SECONDS_MAX: Final = 2.0
"""How long cancelled handlers may take to clean up before their work is given back."""
RELEASE_SECONDS_MAX: Final = 5.0
"""How long giving back may take; after that the leases lapse by themselves."""

_LOG: Final = logging.getLogger("nodrop.worker")


class Able(Protocol):
    """What a worker needs to know of its agent."""

    @property
    def slots(self) -> int:
        """How many deliveries may be here at once."""
        ...

    def manifest(self) -> dict[str, Any]:
        """Return what the agent publishes."""
        ...

    def find(self, capability: str | None) -> Capability | None:
        """Return what is asked for, if the agent can do it."""
        ...


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The times a worker goes by."""

    heartbeat_seconds: float
    grace_seconds: float
    """How long running handlers may go on once the worker is to stop."""
    policy: Retrying = retrying.DEFAULT
    now: Callable[[], float] = seconds_since_boot
    """What leases are counted by."""


class Worker:
    """A process that works for an agent."""

    def __init__(self, able: Able, client: Client, *, process: str, pace: Pace) -> None:
        self._able = able
        self.client = client
        self.policy = pace.policy
        self._process = process
        self._pace = pace
        self._running: dict[Key, Running] = {}
        self._latest: dict[str, Running] = {}
        """The last delivery of each handoff that is being worked on."""
        self._stream: DeliveryStream | None = None
        self._slots: dict[Capability | None, Slot] = {}
        self._queueing = Queueing(
            client, slots=lambda: able.slots, able=lambda asked: able.find(asked) is not None
        )
        self._new_lease = functools.partial(
            Lease,
            heartbeat_seconds=pace.heartbeat_seconds,
            now=pace.now,
            renew=self._renew,
            renewing=asyncio.Lock(),
        )
        self._stirred = True
        """Whether anything may be here that no heartbeat has told of; an earlier life may have left some."""
        self._version = 0
        """Of the manifest that was published."""
        self._breaks = 0
        """After how many breaks of the connection the relay was last seen to know it."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set or we are cancelled; then finish, and give back the rest.

        Raises:
            NodropError: the relay no longer lets this agent in.
        """
        taking = asyncio.create_task(self._take())
        beating = asyncio.create_task(self._beat())
        told = asyncio.create_task(stopping.wait())
        try:
            ended, _ = await asyncio.wait(
                {taking, beating, told}, return_when=asyncio.FIRST_COMPLETED
            )
            for task in ended:
                task.result()
        finally:
            try:
                taking.cancel()
                await self._wind_up()
            finally:
                for task in (taking, beating, told):
                    task.cancel()
                self._stop_all()

    async def _take(self) -> None:
        published = await self.policy.endlessly(
            lambda: self.client.register(self._able.manifest()), what="register"
        )
        self._version = published.version
        _LOG.info(
            "%s works for the relay now: manifest version %d, %d handoffs at a time",
            published.agent_id,
            published.version,
            self._able.slots,
        )
        self._stream = stream = await self.client.transport.deliveries(
            process=self._process,
            heartbeat_seconds=self._pace.heartbeat_seconds,
            credit=self._able.slots,
        )
        self._breaks = stream.breaks
        queueing = asyncio.create_task(self._queueing.run(stream))
        try:
            await stream.hand_to(self._begin)
        finally:
            queueing.cancel()
        raise AssertionError("a stream of deliveries ends only after us")

    def _begin(self, delivery: dict[str, Any]) -> None:
        handoff = delivery["handoff"]
        handoff_id: str = handoff["id"]
        key = handoff_id, delivery["attempt"]
        if key in self._running:
            self.free()  # it came again after a reconnect
            return
        self._queueing.begun(handoff_id)
        earlier = self._latest.get(handoff_id)
        if earlier is not None:
            earlier.lease.lose()
        asked = self._able.find(handoff.get("capability"))
        slot = self._slots.get(asked) or self._slot(asked)
        handler = asked.handler if asked else None
        running = Running(key, delivery, handler, self._new_lease(), slot, host=self)
        self._running[key] = self._latest[handoff_id] = running
        self._stirred = True
        running.start()

    def _slot(self, asked: Capability | None) -> Slot:
        """Make what bounds how many handlers of a capability run at once."""
        slots = asked.concurrency if asked else None
        slot = self._slots[asked] = Slot(slots or self._able.slots)
        return slot

    def free(self) -> None:
        """Let another delivery come."""
        if self._stream is not None:
            self._stream.grant(1)

    def ended(self, running: Running) -> None:
        """Forget a delivery of which nothing is left to do."""
        lease, key = running.lease, running.key
        capability = running.task.view.get("capability")
        self._queueing.observe(capability, lease.now() - lease.arrived_at)
        del self._running[key]
        self._stirred = True  # the next heartbeat tells if the relay has it as ours still
        if self._latest.get(key[0]) is running:
            del self._latest[key[0]]

    # --- signs of life --------------------------------------------------------------------------

    async def _beat(self) -> None:
        astray: set[Key] = set()
        while True:
            await self.policy.sleep(self._pace.heartbeat_seconds)
            if not (self._running or astray or self._stirred):
                if self._stream is not None:  # nothing is held, so there is no lease to renew
                    self._stream.show_life()
                await self._stay_known()
                continue
            self._stirred = False
            try:
                held = await self._keep()
            except UnavailableError as error:
                _LOG.warning("a heartbeat was not answered, the next one follows: %s", error)
                self._stirred = True
                continue
            # What is merely on its way is here by the next time.
            unknown = held - self._running.keys()
            await self._give_back(unknown & astray, "it never arrived")
            astray = unknown
            await self._stay_known()  # what is held comes first: its time runs out

    async def _renew(self) -> None:
        """Renew the leases of this process, however long the relay is away."""
        await self.policy.endlessly(self._keep, what="heartbeat")

    async def _keep(self) -> set[Key]:
        """Give a sign of life; return what this process holds, and stop the work on the rest."""
        # Only what was here before: the relay may deliver more before it answers.
        known = [running for running in self._running.values() if not running.reporting]
        asked_at = self._pace.now()
        held = await self._heartbeat()
        for running in known:
            if running.key in held:
                running.lease.confirmed(asked_at)
            elif not running.reporting:
                _LOG.info(
                    "%s: the lease of attempt %d lapsed or was ended; its handler is cancelled",
                    running.task.ref,
                    running.task.attempt,
                )
                running.lease.lose()
        return held

    async def _heartbeat(self) -> set[Key]:
        """Keep what this process holds, and return it."""
        answer = await self.client.call("heartbeat", {"process": self._process})
        return {(handoff_id, attempt) for handoff_id, attempt in answer["held"]}

    async def _stay_known(self) -> None:
        """Publish the manifest again where the relay came back without it: empty, or restored.

        A later version than ours is somebody's newer manifest, and stays.
        """
        breaks = 0 if self._stream is None else self._stream.breaks
        if breaks == self._breaks:
            return
        manifest = self._able.manifest()
        try:
            if await self._known_version(manifest["agent_id"]) < self._version:
                _LOG.warning("the relay no longer knows our manifest, which is published again")
                self._version = (await self.client.register(manifest)).version
        except UnavailableError as error:
            _LOG.warning("whether the relay knows our manifest will be asked again: %s", error)
            return
        except NodropError as error:
            _LOG.error("our manifest cannot be published again: %s", error)  # it says it all
        self._breaks = breaks

    async def _known_version(self, agent_id: str) -> int:
        try:
            answer = await self.client.call("get_agent", name=agent_id)
        except NotFoundError:
            return 0
        return answer["agent"].get("version", 0)

    # --- the end --------------------------------------------------------------------------------

    async def _wind_up(self) -> None:
        """Take no more, let handlers finish, then give back what is unfinished."""
        if self._stream is None:
            return
        await self._stream.close()
        if working := self._working():
            await asyncio.wait(working, timeout=self._pace.grace_seconds)
        for timeout in (CANCEL_SECONDS_MAX, 0):  # the second time leaves threads behind
            if working := self._working():
                self._stop_all()
                await asyncio.wait(working, timeout=timeout)
        try:
            async with asyncio.timeout(RELEASE_SECONDS_MAX):
                await self._release()
        except (NodropError, TimeoutError) as error:
            _LOG.warning("not everything was given back; its leases will lapse: %r", error)

    def _working(self) -> "set[asyncio.Task[None]]":
        return {running.working for running in self._running.values()}

    def _stop_all(self) -> None:
        for running in self._running.values():
            running.stop()

    async def _release(self) -> None:
        """Give back whatever the relay says this process still holds, arrived or not."""
        await self._give_back(await self._heartbeat(), "the worker stopped")

    async def _give_back(self, held: Iterable[Key], reason: str) -> None:
        for handoff_id, attempt in held:
            fields = {"attempt": attempt, "reason": reason}
            try:
                await self.client.call("release", fields, handoff=handoff_id)
            except NodropError as error:  # it went on without us, or its lease will lapse
                _LOG.warning("%s could not be given back: %s", handoff_id, error)

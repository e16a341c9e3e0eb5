"""A courier: takes what is handed to one agent that lives elsewhere, and carries it there.

To the relay it is a process of that agent like any other: it takes while the agent is there, gives
signs of life, and holds on over a restart to what it had. While the agent is away it takes nothing,
and its mail is kept as anybody's is.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from a2a.types import AgentCard

from nodrop.model.errors import NodropError
from nodrop.model.limits import DEFAULT, SECOND
from nodrop.relay.directory.reach import Reach
from nodrop.relay.ports import Clock
from nodrop.servers.a2a import extension
from nodrop.servers.a2a.calling.errand import Delivery, Errand
from nodrop.servers.a2a.calling.remote import AwayError, Remote
from nodrop.servers.a2a.calling.visit import Deliveries, View, WorkWay
from nodrop.servers.a2a.cards import ANY_SKILL

log = logging.getLogger("nodrop.a2a")

PROBE_MS: Final = 1_000
PROBE_MS_MAX: Final = 60_000
TOGETHER_MAX: Final = 16
"""Handoffs that are elsewhere at a time, for one agent."""
HEARTBEAT_SECONDS: Final = 10.0
_NAME_CHARS_MAX: Final = DEFAULT.name_chars_max
_STEPS: Final = "a2a."


class Courier:
    """Carries for one agent."""

    def __init__(self, reach: Reach, way: WorkWay, remote: Remote, clock: Clock) -> None:
        self.reach = reach
        self._way = way
        self._remote = remote
        self._clock = clock
        self._process = f"a2a-{reach.agent}"
        self._running: dict[tuple[str, int], tuple[Errand, asyncio.Task[None]]] = {}
        self._away = asyncio.Event()
        self._idle = asyncio.Event()
        """Nothing is taken."""
        self._wait_ms = PROBE_MS

    async def run(self) -> None:
        """Carry for as long as nobody stops it."""
        try:
            while True:
                await self._publish(await self._found())
                self._away.clear()
                await self._work()
                await self._pause()
        finally:
            await self._stop_all()
            await self._remote.close()

    async def _found(self) -> AgentCard:
        """Return the agent's card once the agent is there."""
        while True:
            try:
                return await self._remote.look()
            except AwayError as error:
                log.info("%s is away: %s", self.reach.agent, error)
            await self._pause()

    async def _pause(self) -> None:
        """Leave the agent alone for a while, longer each time until something arrives again."""
        wait_ms, self._wait_ms = self._wait_ms, min(self._wait_ms * 2, PROBE_MS_MAX)
        await self._clock.sleep_until(self._clock.now() + wait_ms)

    async def _publish(self, card: AgentCard) -> None:
        """Let the agent be found by what its card says, unless somebody said more about it."""
        name = self.reach.agent
        agent = (await self._way.call("get_agent", {}, name=name))["agent"]
        ours = agent["manifest"].get("discovery_endpoint") == self.reach.a2a
        manifest = _manifest(name, card, self.reach.a2a or "")
        if (agent["version"] == 0 or ours) and agent["manifest"] != manifest:
            try:
                await self._way.call("register", {"manifest": manifest}, name=name)
            except NodropError as error:
                log.warning("the card of %s makes no manifest: %s", name, error)

    async def _work(self) -> None:
        """Take and carry until the agent is away."""
        for delivery in await self._held():
            self._begin(delivery)
        self._idle.clear()
        stream = await self._way.deliveries(
            process=self._process, heartbeat_seconds=HEARTBEAT_SECONDS, credit=TOGETHER_MAX
        )
        parts: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._take(stream)),
            asyncio.create_task(self._beat()),
            asyncio.create_task(self._away.wait()),
        ]
        try:
            ended, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in ended:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await stream.close()
            self._idle.set()

    async def _take(self, stream: Deliveries) -> None:
        async for found in stream:
            self._begin(
                Delivery(
                    handoff=found["handoff"],
                    attempt=found["attempt"],
                    steps=found.get("steps", {}),
                    answers=found.get("answers", {}),
                ),
                free=lambda: stream.grant(1),
            )

    async def _held(self) -> list[Delivery]:
        """Return what this process had before the relay was stopped, or killed."""
        kept = (await self._way.call("heartbeat", {"process": self._process}))["held"]
        found: list[Delivery] = []
        for handoff_id, attempt in kept:
            if (handoff_id, attempt) in self._running:
                continue
            handoff = (await self._way.call("get_handoff", {}, handoff=handoff_id))["handoff"]
            steps = await self._recorded(handoff_id)
            found.append(
                Delivery(handoff=handoff, attempt=attempt, steps=steps, answers=handoff["answers"])
            )
        return found

    async def _recorded(self, handoff_id: str) -> Mapping[str, Any]:
        """Return the steps that errands have recorded."""
        fields = {"handoff_id": handoff_id, "type": "handoff.step_recorded.v1", "limit": 500}
        entries = (await self._way.call("log", fields))["entries"]
        names = [entry["data"]["name"] for entry in entries]
        return {
            name: (await self._way.call("get_step", {}, handoff=handoff_id, name=name))["value"]
            for name in names
            if name.startswith(_STEPS)
        }

    def _begin(self, delivery: Delivery, free: Any = None) -> None:
        if delivery.key in self._running:
            if free is not None:
                free()  # it came again
            return
        errand = Errand(delivery, self._way, self._remote, self._clock)
        task = asyncio.create_task(self._carry(errand), name=f"nodrop errand {delivery.key[0]}")
        self._running[delivery.key] = (errand, task)

        def done(ended: asyncio.Task[None]) -> None:
            del self._running[delivery.key]
            if free is not None:
                free()
            if not ended.cancelled() and (error := ended.exception()) is not None:
                self._away.set()  # whatever it was, not the next one at once
                log.error("an errand of %s failed", self.reach.agent, exc_info=error)

        task.add_done_callback(done)

    async def _carry(self, errand: Errand) -> None:
        try:
            await errand.run()
            self._wait_ms = PROBE_MS
        except AwayError as error:
            log.info("%s is away: %s", self.reach.agent, error)
            self._away.set()
            # Not before nothing is taken any more: it would come straight back.
            await self._idle.wait()
            await errand.give_back(error)

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.now() + round(HEARTBEAT_SECONDS * SECOND))
            known = dict(self._running)
            kept = (await self._way.call("heartbeat", {"process": self._process}))["held"]
            held = {(handoff_id, attempt) for handoff_id, attempt in kept}
            for key, (errand, task) in known.items():
                # Who has not heard yet what its message became finds out by itself, and stops that.
                if key not in held and key in self._running and errand.task_id is not None:
                    log.info("%s is no longer ours", key[0])
                    task.cancel()
                    await errand.withdraw()

    async def _stop_all(self) -> None:
        """Leave everything as it is: the next run goes on with it."""
        running = [task for _, task in self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _manifest(name: str, card: AgentCard, address: str) -> View:
    capabilities: dict[str, View] = {}
    ours = any(known.uri == extension.URI for known in card.capabilities.extensions)
    for skill in card.skills:
        if ours and skill.id == ANY_SKILL:
            continue  # another relay's way of saying that its agent declares nothing
        if 0 < len(skill.id) <= _NAME_CHARS_MAX and skill.id.isascii() and skill.id.isprintable():
            about = {"description": skill.description} if skill.description else {}
            tags = {"tags": list(skill.tags)} if skill.tags else {}
            capabilities.setdefault(skill.id, {"name": skill.id, **about, **tags})
    described = {"description": card.description} if card.description else {}
    listed = list(capabilities.values())[: DEFAULT.capabilities_max]
    manifest = {
        "agent_id": name,
        **described,
        "capabilities": listed,
        "discovery_endpoint": address,
    }
    return msgspec.json.decode(msgspec.json.encode(manifest))

"""Operations of a team beyond single handoffs: groups, triggers, talk, outlets, findings."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from nodrop.log.port import Key, Mail, Store
from nodrop.protocol import requests
from nodrop.protocol.views import View
from nodrop.relay.asking import Asking, Handler, Reply, showing
from nodrop.relay.coordination.events import Events
from nodrop.relay.coordination.findings import Findings
from nodrop.relay.coordination.outlets import KIND as OUTLET
from nodrop.relay.coordination.outlets import Outlets
from nodrop.relay.coordination.talk import Talk
from nodrop.relay.coordination.topics import KIND as TOPIC
from nodrop.relay.coordination.triggers import KIND as TRIGGER
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.endings import Endings
from nodrop.relay.handoffs.following import Following
from nodrop.relay.handoffs.groups import Groups
from nodrop.relay.handoffs.reading import Reading
from nodrop.relay.handoffs.writing import Writing
from nodrop.relay.identity.signing import Signing
from nodrop.relay.intake import Intake
from nodrop.relay.ports import Clock, Ids
from nodrop.relay.room import Room
from nodrop.relay.shows import Shows


class Coordination:
    """Carries out the operations that are about several handoffs, or about none."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        writing: Writing,
        reading: Reading,
        following: Following,
        shows: Shows,
        intake: Intake,
        room: Room,
        signing: Signing,
        clock: Clock,
        ids: Ids,
        tell: Callable[[Key, Mail], None],
        count: Callable[[str, str], None],
    ) -> None:
        self._store = store
        self._groups = Groups(
            engine,
            writing=writing,
            reading=reading,
            following=following,
            shows=shows,
            intake=intake,
            room=room,
            signing=signing,
            clock=clock,
            ids=ids,
        )
        self._events = Events(engine, store, writing=writing, intake=intake, clock=clock, ids=ids)
        self.outlets = Outlets(engine, store, intake=intake, ids=ids, tell=tell)
        self.endings = Endings(engine, store, reading=reading)
        self.findings = Findings(
            engine, store, endings=self.endings, clock=clock, tell=tell, count=count
        )
        self._talk = Talk(engine, store, reading=reading, intake=intake, ids=ids, tell=tell)

    def followed(self) -> tuple[Outlets, Endings, Findings]:
        """Return the followers of the log, which the application runs."""
        return self.outlets, self.endings, self.findings

    async def load(self, team: str | None = None) -> None:
        """Read what the store knows, of one team or of all: topics, triggers and outlets."""
        for load in self.kept().values():
            await load(team)

    def kept(self) -> Mapping[str, Callable[[str | None], Awaitable[None]]]:
        """Return what reads each kind of record again."""
        return {
            TOPIC: partial(self._talk.topics.load, self._store),
            TRIGGER: partial(self._events.triggers.load, self._store),
            OUTLET: self.outlets.load,
        }

    def handlers(self) -> dict[str, Handler]:
        """Return what carries out each operation."""
        groups, events, said = self._groups, self._events, self._talk
        return {
            "offer_group": self._offer_group,
            "get_group": showing(lambda a: groups.show(a.caller, a.request, a.name or "")),
            "emit": showing(lambda a: events.emit(a.caller, a.request)),
            "triggers": lambda a: Reply(answer=events.listed(a.caller)),
            "put_trigger": showing(lambda a: events.put_trigger(a.caller, a.request, a.name or "")),
            "remove_trigger": showing(
                lambda a: events.remove_trigger(a.caller, a.request, a.name or "")
            ),
            "test_trigger": showing(lambda a: events.test_trigger(a.caller, a.request)),
            **dict.fromkeys(("outlets", "put_outlet", "remove_outlet"), showing(self._outlet)),
            "say": showing(lambda a: said.say(a.caller, a.request)),
            "messages": showing(lambda a: said.messages(a.caller, a.request)),
            "tell_status": showing(lambda a: said.tell_status(a.caller, a.request)),
            "topics": lambda a: Reply(answer=said.heard(a.caller)),
            **dict.fromkeys(("subscribe_topic", "unsubscribe_topic"), showing(self._subscribe)),
        }

    async def _offer_group(self, asking: Asking) -> Reply:
        group, before = await self._groups.offer(asking.caller, asking.request)
        made = await self._groups.show(asking.caller, requests.GetGroup(), group)
        return Reply(answer=made, replayed=before)

    async def _outlet(self, asking: Asking) -> View:
        return await self.outlets.call(asking.caller, asking.request, asking.name or "")

    async def _subscribe(self, asking: Asking) -> View:
        return await self._talk.subscribe(asking.caller, asking.request, asking.name or "")

"""What a relay does for a team beyond single handoffs: groups, triggers, talk, outlets."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from nodrop.engine.endings import Endings
from nodrop.engine.engine import Engine
from nodrop.engine.events import Events
from nodrop.engine.following import Following
from nodrop.engine.groups import Groups
from nodrop.engine.intake import Intake
from nodrop.engine.outlets import KIND as OUTLET
from nodrop.engine.outlets import Outlets
from nodrop.engine.ports import Clock, Ids
from nodrop.engine.reading import Reading
from nodrop.engine.room import Room
from nodrop.engine.shows import Caller, Shows
from nodrop.engine.signing import Signing
from nodrop.engine.taking import Reply
from nodrop.engine.talk import Talk
from nodrop.engine.topics import KIND as TOPIC
from nodrop.engine.triggers import KIND as TRIGGER
from nodrop.engine.writing import Writing
from nodrop.store import Key, Mail, Store
from nodrop.wire import requests
from nodrop.wire import talk_requests as talk
from nodrop.wire import trigger_requests as triggers
from nodrop.wire.outlet_requests import ListOutlets, PutOutlet, RemoveOutlet

_MINE: Final = (
    requests.OfferGroup,
    requests.GetGroup,
    triggers.Emit,
    triggers.PutTrigger,
    triggers.RemoveTrigger,
    triggers.TestTrigger,
    triggers.ListTriggers,
    talk.Say,
    talk.TellStatus,
    talk.ListMessages,
    talk.SubscribeTopic,
    talk.UnsubscribeTopic,
    talk.ListTopics,
    PutOutlet,
    RemoveOutlet,
    ListOutlets,
)


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
        self._talk = Talk(engine, store, reading=reading, intake=intake, ids=ids, tell=tell)

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

    async def call(
        self, caller: Caller, request: requests.Request, name: str | None
    ) -> Reply | None:
        """Carry out an operation; None: it is somebody else's."""
        return (
            await self._carried_out(caller, request, name) if isinstance(request, _MINE) else None
        )

    async def _carried_out(  # one flat match over the operations
        self, caller: Caller, request: requests.Request, name: str | None
    ) -> Reply | None:
        match request:
            case requests.OfferGroup():
                group, before = await self._groups.offer(caller, request)
                made = await self._groups.show(caller, requests.GetGroup(), group)
                return Reply(answer=made, replayed=before)
            case requests.GetGroup():
                return Reply(answer=await self._groups.show(caller, request, name or ""))
            case triggers.Emit():
                return Reply(answer=await self._events.emit(caller, request))
            case triggers.PutTrigger():
                return Reply(answer=await self._events.put_trigger(caller, request, name or ""))
            case triggers.RemoveTrigger():
                return Reply(answer=await self._events.remove_trigger(caller, request, name or ""))
            case triggers.TestTrigger():
                return Reply(answer=await self._events.test_trigger(caller, request))
            case triggers.ListTriggers():
                return Reply(answer=self._events.listed(caller))
            case PutOutlet() | RemoveOutlet() | ListOutlets():
                return Reply(answer=await self.outlets.call(caller, request, name or ""))
            case talk.Say():
                return Reply(answer=await self._talk.say(caller, request))
            case talk.TellStatus():
                return Reply(answer=await self._talk.tell_status(caller, request))
            case talk.ListMessages():
                return Reply(answer=await self._talk.messages(caller, request))
            case talk.SubscribeTopic() | talk.UnsubscribeTopic():
                return Reply(answer=await self._talk.subscribe(caller, request, name or ""))
            case talk.ListTopics():
                return Reply(answer=self._talk.heard(caller))
            case _:
                return None

"""Sends inboxes on: one task for each outlet, each item at least once, in order, with retries.

Notices to a person are gathered: the first one waits a few seconds, and what has come by then goes out as
one message. Webhooks get every item by itself.

An item that cannot be sent for a day is given up on, in the log, and the next one gets its turn.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from nodrop.model.errors import CursorUnknownError, NodropError, NotFoundError
from nodrop.model.limits import DAY, SECOND
from nodrop.model.mail import Kind
from nodrop.outbound.outlets import wording
from nodrop.outbound.outlets.ways import Notify, Parcel, UnsentError, Way, Webhook
from nodrop.protocol import requests
from nodrop.protocol.times import parse_time
from nodrop.protocol.views import InboxAnswer, ItemView
from nodrop.relay import notices
from nodrop.relay.coordination.outlets import WEBHOOK, Outlet
from nodrop.relay.ports import Clock
from nodrop.relay.relay import Caller, Relay

log = logging.getLogger("nodrop.outlets")

View = dict[str, Any]

_WAIT: Final = "60s"
_FIRST_MS: Final = 5 * SECOND
_LONGEST_MS: Final = 3_600 * SECOND
GATHER_MS: Final = 10 * SECOND
"""How long the first notice waits for others."""
GIVE_UP_MS: Final = DAY


def way_of(outlet: Outlet) -> Way:
    """Return how an outlet is reached."""
    if outlet.kind == WEBHOOK:
        return Webhook(outlet.url, outlet.secret or "", allow_private=outlet.allow_private)
    return Notify(outlet.url)


class Sender:
    """Looks after every outlet of a relay."""

    def __init__(
        self, relay: Relay, *, clock: Clock, way_of: Callable[[Outlet], Way] = way_of
    ) -> None:
        self._relay = relay
        self._clock = clock
        self._way_of = way_of
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._since: dict[tuple[str, str], int] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Send while the block runs."""
        watching = asyncio.create_task(self._watch(), name="nodrop outlets")
        try:
            yield
        finally:
            tasks = (watching, *self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        changed = self._relay.outlets.changed
        while True:
            changed.clear()
            failed = False
            try:
                await self._share_out()
            except NodropError as error:
                failed = True
                log.warning("whose outlets are to be looked after is not known: %s", error)
            await self._relay.duties.pause(changed, failed=failed)

    async def _share_out(self) -> None:
        """Look after every outlet that is this relay's to look after, and no other."""
        outlets = self._relay.outlets
        duties = {f"outlet/{o.team}/{o.name}": (o.team, o.name) for o in outlets.all()}
        mine = {duties[duty] for duty in await self._relay.duties.claim(duties.keys())}
        for key in list(self._tasks):
            outlet = outlets.get(*key)
            # One that was set anew does not wait for what could not be sent to the one before.
            if outlet is None or key not in mine or self._since[key] != outlet.since:
                self._tasks.pop(key).cancel()
        begun = [key for key in mine if key not in self._tasks or self._tasks[key].done()]
        if begun:
            await outlets.recall()  # whoever sent until now has told how far it came
        for key in begun:
            outlet = outlets.get(*key)
            if outlet is not None:
                self._since[key] = outlet.since
                self._tasks[key] = asyncio.create_task(self._look_after(*key))

    async def _look_after(self, team: str, name: str) -> None:
        """Send the items of one outlet's inbox, one after the other, for ever."""
        outlets = self._relay.outlets
        while (outlet := outlets.get(team, name)) is not None:
            try:
                page = await self._inbox(outlet)
                if outlet.kind != WEBHOOK and any(_is_notice(i) for i in _wanted(outlet, page)):
                    await self._clock.sleep_until(self._clock.now() + GATHER_MS)
                    page = await self._inbox(outlet)
                    sent = [_wanted(outlet, page)]
                else:
                    sent = [(item,) for item in _wanted(outlet, page)]
                for items in sent:
                    await self._deliver(outlets.get(team, name) or outlet, items)
                if page.after > outlet.after:
                    now = outlets.get(team, name) or outlet
                    await outlets.sent(now, page.after, count=0)
            except CursorUnknownError as error:
                log.warning("%s goes back to where the store says: %s", name, error)
                await outlets.reset(outlet)
            except NodropError as error:
                log.warning("%s waits: %s", name, error)
                await self._clock.sleep_until(self._clock.now() + _FIRST_MS)

    async def _inbox(self, outlet: Outlet) -> InboxAnswer:
        caller = Caller(team=outlet.team, agent=outlet.agent)
        request = requests.GetInbox(after=outlet.after, wait=_WAIT, all=True)
        answer = (await self._relay.call(caller, "inbox", request)).answer
        assert isinstance(answer, InboxAnswer), "the table says so"
        return answer

    async def _deliver(self, outlet: Outlet, items: tuple[ItemView, ...]) -> None:
        """Send some items as one message, as often as it takes; or give them up."""
        parcel = await self._parcel(outlet, items)
        began, wait = self._clock.now(), _FIRST_MS
        while True:
            try:
                await self._way_of(outlet).send(parcel, now=self._clock.now())
            except (UnsentError, NodropError, TimeoutError) as error:
                why = str(error)
                over = self._clock.now() - began >= GIVE_UP_MS
                if over or getattr(error, "permanent", False):
                    for item in items:
                        await self._relay.outlets.give_up(outlet, item.seq, why)
                    return
                await self._relay.outlets.failed(outlet, why)
                await self._clock.sleep_until(self._clock.now() + wait)
                wait = min(wait * 2, _LONGEST_MS)
            else:
                await self._relay.outlets.sent(outlet, items[-1].seq, count=len(items))
                return

    async def _parcel(self, outlet: Outlet, items: tuple[ItemView, ...]) -> Parcel:
        last = items[-1]
        shown = notices.gathered(items, outlet.agent)
        told = [await self._told(outlet, item) for item in shown]
        item, handoff = told[-1]
        return Parcel(
            # The time tells it from an item that had this number before an older copy was restored.
            id=f"{outlet.team}.{outlet.name}.{last.seq}.{last.kind}.{parse_time(last.at)}",
            subject=wording.subject([item for item, _ in told]),
            text="\n\n".join(wording.text(item, handoff) for item, handoff in told),
            data={"type": f"inbox.{item['kind']}", "item": item, "handoff": handoff},
        )

    async def _told(self, outlet: Outlet, view: ItemView) -> tuple[View, View | None]:
        """Return an item and the handoff it is about, as they are shown."""
        item: View = msgspec.to_builtins(view)
        handoff: dict[str, Any] | None = None
        if item["handoff_id"] is not None:
            caller = Caller(team=outlet.team, agent=outlet.agent)
            try:
                found = await self._relay.call(
                    caller, "get_handoff", requests.GetHandoff(), reference=item["handoff_id"]
                )
                handoff = msgspec.json.decode(msgspec.json.encode(found.answer))["handoff"]
            except NotFoundError:
                handoff = None
        return item, handoff


def _wanted(outlet: Outlet, page: InboxAnswer) -> tuple[ItemView, ...]:
    return tuple(i for i in page.items if not outlet.kinds or i.kind in outlet.kinds)


def _is_notice(item: ItemView) -> bool:
    return item.kind == Kind.NOTICE

"""Those to whom inbox items are pushed as they are committed."""

from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from nodrop.log.port import Key, Mail
from nodrop.model.mail import Kind
from nodrop.protocol.views import ItemView
from nodrop.relay.delivery.pushing import Listening, mail_of
from nodrop.relay.delivery.waiters import Watchers
from nodrop.relay.jobs import Committed
from nodrop.relay.shows import Shows


class Listeners:
    """Who listens at which inbox, by (team, agent)."""

    def __init__(
        self,
        shows: Shows,
        inboxes: Watchers[Key],
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._shows = shows
        self._inboxes = inboxes
        self._spawn = spawn
        self.listening: defaultdict[Key, set[Listening]] = defaultdict(set)

    def add(self, key: Key, push: Callable[[ItemView], None]) -> Listening:
        """Push what comes into an inbox from now on."""

        def gone(listening: Listening) -> None:
            self.listening[key].discard(listening)
            if not self.listening[key]:
                del self.listening[key]

        listening = Listening(push, gone)
        self.listening[key].add(listening)
        return listening

    def committed(self, committed: Committed) -> None:
        """Wake and tell whoever has got something."""
        mails: defaultdict[Key, list[Mail]] = defaultdict(list)
        for happened in committed.happened:
            for item in happened.mail:
                key = (happened.handoff.team, item.reader)
                self._inboxes.wake(key)
                if self.listening.get(key) and item.kind is not Kind.HANDOFF:
                    mails[key].append(mail_of(happened, item.kind, committed))
        for key, items in mails.items():
            self._spawn(self.tell(key, items))

    def said(self, key: Key, mail: Mail) -> None:
        """Wake whoever waits for something said, once it is committed."""
        self._inboxes.wake(key)
        if self.listening.get(key):
            self._spawn(self.tell(key, [mail]))

    async def tell(self, key: Key, mails: Sequence[Mail]) -> None:
        """Push items; handoffs come as deliveries, and not here."""
        mails = [mail for mail in mails if mail.kind != Kind.HANDOFF.value]
        if not mails or not self.listening.get(key):
            return
        team, reader = key
        while mails:
            items, read = await self._shows.items(team, reader, mails, everything=True)
            mails = mails[read:]
            for listening in list(self.listening.get(key, ())):
                for item in items:
                    listening.push(item)

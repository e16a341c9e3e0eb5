"""The nodes that serve one database, as seen from one of them. Implements `nodrop.log.port.Fleet`.

Who is there is a row that each node renews every second; what the others wrote is read from the
log, by its order. A notification says that there is something to read, and nothing else.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none

from nodrop.log.port import Attending, Changes, Key, Mail, News, Place, Process, Roll
from nodrop.log.postgres.connection import Broken, address_of, connect
from nodrop.log.postgres.driver import Connection
from nodrop.log.postgres.elsewhere import Elsewhere
from nodrop.log.postgres.migrations import VERSION, readable_from
from nodrop.log.postgres.place import GONE_AFTER_MS, NOW
from nodrop.log.postgres.records import transposed
from nodrop.log.postgres.store import PostgresStore, Unheard
from nodrop.log.postgres.tables import End
from nodrop.log.postgres.writing import AGENT, RECORD, TOKEN
from nodrop.log.records import value_of
from nodrop.model.errors import StoreUnavailableError

CHANNEL: Final = "nodrop"
STEER_MS_MAX: Final = 10
"""Each time a node is counted, once a second: a hundredth of the time that passes."""
NEWS_ENTRIES_MAX: Final = 2_000
"""Of one team, told at a time."""
TOGETHER_MAX: Final = 2_000
"""Where more agents, tokens and records have changed than this, it is quicker to read everything."""


class Steered(Protocol):
    """A clock that is kept to the database's time."""

    def now(self) -> int:
        """Return the current time."""
        ...

    def steer(self, by_ms: int) -> None:
        """Go on so much later, or earlier."""
        ...


class PostgresFleet:
    """One node among those of a database."""

    def __init__(self, store: PostgresStore, *, node: str, clock: Steered | None = None) -> None:
        """Be `node`, a name that no other has, on `store`; `clock` is what it goes by."""
        self._clock = clock
        self._store = store
        self._node = node
        self._listener: Connection | None = None
        self._deaf = address_of(store.dsn).own.pooled
        """Behind a pooler, what is listened for would come to somebody else."""
        self._hinted = asyncio.Event()
        self._elsewhere = Elsewhere()

    # --- who is there ---

    async def join(self) -> Roll:
        """Be one of them. What is appended from now on will be news."""
        place = self._store.place
        place.take(self._node)
        ends = await self._store.catch_up()
        self._store.unheard.clear()
        place.hear({end.team: end.known_seq for end in ends})
        return await self.attend(())

    async def attend(self, attending: Sequence[Attending]) -> Roll:
        """Be counted, and learn who else there is."""
        before = self._clock.now() if self._clock else 0
        up_since, fresh, now = await self._store.step(
            lambda connection: self._count(connection, attending)
        )
        if self._clock is not None:
            self._clock.steer(_correction(before, now, self._clock.now()))
        rows = await self._store.ask(
            f"select id, attendance from node where id <> $1 and seen_at > {NOW} - $2",  # noqa: S608  # constants
            self._node,
            GONE_AFTER_MS,
        )
        others: dict[str, int] = {row[0]: row[1] for row in rows}
        self._store.place.channel = CHANNEL if others else None
        await self._elsewhere.learn(self._store.ask, others)
        return Roll(
            up_since=up_since,
            others=len(others),
            elsewhere=self._elsewhere.agents,
            forgotten=fresh,
        )

    async def _count(
        self, connection: Connection, attending: Sequence[Attending]
    ) -> tuple[int, bool, int]:
        """Return since when there has been a node, whether this one had to begin again, and now."""
        # A step that this node could not live with may come while it is taken for gone.
        self._store.require_schema(await readable_from(connection))
        # One after the other: of nodes that start at once, exactly one finds that nobody was there.
        row = await connection.fetchrow(
            f"insert into fleet (up_since) values ({NOW}) on conflict (one)"  # noqa: S608  # constants
            " do update set up_since = case when exists (select 1 from node"
            f" where seen_at > {NOW} - $1) then fleet.up_since else excluded.up_since end"
            " returning up_since",
            GONE_AFTER_MS,
        )
        told = await connection.fetchrow(
            f"insert into node (id, seen_at, attendance, schema) values ($1, {NOW}, {NOW}, $3)"  # noqa: S608  # constants
            " on conflict (id)"
            " do update set seen_at = excluded.seen_at, attendance = node.attendance + $2"
            " returning attendance, xmax = 0, seen_at",  # which an update leaves with something else
            self._node,
            1 if attending else 0,
            VERSION,
        )
        assert told is not None, "it was inserted or updated"
        if attending:
            await connection.execute(
                "insert into attendance (node, version, team, agent, connected, seen_at)"
                " select $1, $2, *"
                " from unnest($3::text[], $4::text[], $5::boolean[], $6::bigint[])"
                " on conflict (node, team, agent) do update set connected = excluded.connected,"
                " seen_at = excluded.seen_at, version = excluded.version",
                self._node,
                told[0],
                *transposed([(a.team, a.agent, a.connected, a.seen_at) for a in attending], 4),
            )
        # What is left of the long gone goes too, with what they knew.
        await connection.execute(
            f"delete from node where seen_at < {NOW} - $1",  # noqa: S608  # constants
            GONE_AFTER_MS * 12,
        )
        assert row is not None, "it was inserted or updated"
        return row[0], told[1], told[2]

    async def leave(self) -> None:
        """Be one of them no longer."""
        if self._listener is not None:
            with suppress(*Broken):
                self._listener.terminate()
        with suppress(StoreUnavailableError):
            await self._store.ask("delete from node where id = $1 returning 1", self._node)

    # --- what they wrote ---

    async def hint(self, *, seconds: float) -> None:
        """Return when another node has written something, or after so long."""
        await self._listen()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hinted.wait()
        self._hinted.clear()

    async def _listen(self) -> None:
        """Have a connection that hears; without one, who asks again after a while misses nothing."""
        if self._deaf or (self._listener is not None and not self._listener.is_closed()):
            return
        try:
            self._listener = await connect(self._store.dsn)
            await self._listener.add_listener(CHANNEL, self._notified)
        except (StoreUnavailableError, asyncpg.PostgresError, *Broken):
            if self._listener is not None:
                self._listener.terminate()
        self._hinted.set()  # whatever was said meanwhile was not heard

    def _notified(self, *said: Any) -> None:
        if not str(said[-1]).startswith(self._node):
            self._hinted.set()

    async def news(self) -> Sequence[News]:
        """Return what others wrote since the last time."""
        store = self._store
        return [
            await self._news(end)
            for end in await store.follow()
            if store.unheard.get(end.team) or end.team in store.anew or self._is_new(end)
        ]

    async def _news(self, end: End) -> News:
        store, team = self._store, end.team
        told: list[Unheard] = []
        count = 0
        for each in store.unheard.get(team, ()):
            told.append(each)
            count += len(each.replay.entries)
            if count >= NEWS_ENTRIES_MAX:
                self._hinted.set()  # there may be more
                break
        entries = [
            Place(seq=e.seq, handoff_id=e.handoff_id, version=e.version, type=e.type)
            for each in told
            for e in each.replay.entries
        ]
        mails: dict[str, list[Mail]] = {}
        for each in told:
            for reader, item in each.replay.mail():
                mails.setdefault(reader, []).append(item)
        about = dict.fromkeys(e.handoff_id for e in entries if e.handoff_id is not None)
        handoffs = await store.find([(team, handoff_id) for handoff_id in about])
        holders = {(team, h.process) for h in handoffs if h.process is not None and not h.final}
        processes = await store.tables.processes_of(holders) if holders else ()
        known, changes = await self._changes(end, told)
        return News(
            team=team,
            until=told[-1].replay.batch.last_seq if told else 0,
            entries=entries,
            mails=mails,
            handoffs=handoffs,
            processes=processes,
            known=known,
            changes=changes,
        )

    async def _changes(
        self, end: End, told: Sequence[Unheard]
    ) -> tuple[int | None, Changes | None]:
        """Return up to which entry agents, tokens and records have changed, and what they are now.

        Everything must be read again where nobody told what has changed.
        """
        telling = [each for each in told if each.changed]
        about = {pair for each in telling for pair in each.changed}
        if end.team in self._store.anew or (not told and self._is_new(end)):
            return end.known_seq, None
        if not telling:
            return None, None
        known = telling[-1].replay.batch.last_seq
        return known, None if len(about) > TOGETHER_MAX else await self._read(end.team, about)

    async def _read(self, team: str, about: Collection[tuple[str, str]]) -> Changes:
        tables = self._store.tables
        agents = [name for kind, name in about if kind == AGENT]
        tokens = [name for kind, name in about if kind == TOKEN]
        named = {
            (team, kind.removeprefix(RECORD), name)
            for kind, name in about
            if kind.startswith(RECORD)
        }
        records = await tables.records_named(named) if named else []
        return Changes(
            agents=await tables.agents(team, agents) if agents else [],
            tokens=await tables.tokens(team, tokens) if tokens else [],
            records=records,
            records_gone=sorted(named - {(r.team, r.kind, r.id) for r in records}),
        )

    def heard(self, news: News) -> None:
        """Say that `news` has been taken in."""
        store = self._store
        left = [e for e in store.unheard.get(news.team, ()) if e.replay.batch.last_seq > news.until]
        if left:
            store.unheard[news.team] = left
        else:
            store.unheard.pop(news.team, None)
        if news.known is not None:
            if news.changes is None:
                store.anew.discard(news.team)
            store.place.hear({news.team: news.known})

    def _is_new(self, end: End) -> bool:
        heard = self._store.place.heard
        return heard is not None and end.known_seq > heard.get(end.team, 0)

    # --- what must be looked after ---

    async def claim(self, duties: Collection[str]) -> Collection[str]:
        """Return those of `duties` that this node is to do, and no other that serves does."""
        rows = await self._store.ask(_CLAIM, list(duties), self._node, GONE_AFTER_MS)
        return {name for (name,) in rows}

    async def silent(self, *, now: int, heartbeats: int, limit: int) -> Sequence[Process]:
        """Return processes that nobody has heard of for so many of their heartbeats."""
        rows = await self._store.ask(
            "select team, id, agent, heartbeat_ms, seen_at from process"
            " where seen_at + heartbeat_ms * $1 <= $2 order by seen_at limit $3",
            heartbeats,
            now,
            limit,
        )
        return [value_of(Process, tuple(row)) for row in rows]

    async def waiting(self, agents: Sequence[Key]) -> Sequence[Key]:
        """Return those of `agents` in whose inboxes something waits to be taken."""
        return [(team, agent) for team, agent in agents if self._store.waiting(team, agent)]


def _correction(before: int, theirs: int, after: int) -> int:
    """Return by how much a clock is to be steered that said `before` and `after` around `theirs`.

    Only by what is certainly wrong, however long the answer took; and by little at a time, so that
    a database whose time leaps, after a failover say, makes nobody's clocks run out at once.
    """
    late, early = theirs - after, before - theirs
    return min(max(late, 0), STEER_MS_MAX) - min(max(early, 0), STEER_MS_MAX)


_CLAIM: Final = f"""
    with open as (
        select u.name from unnest($1::text[]) u(name)
        where not exists (
            select 1 from duty d join node n on n.id = d.node
            where d.name = u.name and n.seen_at > {NOW} - $3
        )
        order by 1
    ), taken as (
        insert into duty (name, node) select open.name, n.id from open, node n where n.id = $2
        on conflict (name) do update set node = excluded.node where not exists (
            select 1 from node n where n.id = duty.node and n.seen_at > {NOW} - $3
        )
        returning name
    )
    select name from taken
    union
    select d.name from duty d where d.name = any($1::text[]) and d.node = $2
"""  # noqa: S608  # constants
"""Nothing is written where nothing changes. Whoever comes second to a duty that is free finds it
taken when it has the row."""

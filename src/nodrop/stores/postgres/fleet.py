"""The nodes that serve one database, as seen from one of them. Implements `nodrop.store.Fleet`.

Who is there is a row that each node renews every second; what the others wrote is read from the
log, by its order. A notification says that there is something to read, and nothing else.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none

from nodrop.core.errors import StoreUnavailableError
from nodrop.core.model import Handoff
from nodrop.store import Attending, Key, Mail, News, Place, Process, Roll
from nodrop.stores.postgres.changed import learn_changes
from nodrop.stores.postgres.connection import Broken, address_of, connect
from nodrop.stores.postgres.driver import Connection
from nodrop.stores.postgres.elsewhere import Elsewhere, Told
from nodrop.stores.postgres.migrations import VERSION, readable_from
from nodrop.stores.postgres.place import GONE_AFTER_MS, NOW
from nodrop.stores.postgres.plans import refresh as refresh_plans
from nodrop.stores.postgres.records import read_handoff, transposed, value_of
from nodrop.stores.postgres.store import PostgresStore

CHANNEL: Final = "nodrop"
STEER_MS_MAX: Final = 10
"""Each time a node is counted, once a second: a hundredth of the time that passes."""
NEWS_ENTRIES_MAX: Final = 2_000
"""Of one team, read at a time."""


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
        """Be one of them."""
        place = self._store.place
        place.take(self._node)
        heads = await self._store.ask("select id, head_seq, known_seq from team")
        place.cursors.update({team: seq for team, seq, _ in heads})
        place.hear({team: known for team, _, known in heads})
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
            f"select id, attendance, schema from node where id <> $1 and seen_at > {NOW} - $2",  # noqa: S608  # constants
            self._node,
            GONE_AFTER_MS,
        )
        others = {row[0]: Told(version=row[1], schema=row[2]) for row in rows}
        self._store.place.channel = CHANNEL if others else None
        await self._elsewhere.learn(self._store.ask, others)
        await refresh_plans(self._store.ask)
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
        place = self._store.place
        heads = await self._store.ask("select id, head_seq, known_seq from team")
        return [
            await self._news(team, head, known)
            for team, head, known in heads
            if head > place.cursors.get(team, 0) or self._is_new(team, known)
        ]

    async def _news(self, team: str, head: int, known_seq: int) -> News:
        place = self._store.place
        after = place.cursors.get(team, 0)
        until = min(head, after + NEWS_ENTRIES_MAX)
        entries: list[Place] = []
        mails: dict[str, list[Mail]] = {}
        handoffs: list[Handoff] = []
        processes: list[Process] = []
        for what, *row in await self._store.ask(_NEWS, team, after, until, place.node):
            seq, handoff_id, version, type_, reader, kind, at, actor, json, *process = row
            if what == b"e":
                entry = Place(seq=seq, handoff_id=handoff_id, version=version, type=type_)
                entries.append(entry)
            elif what == b"m":
                mail = Mail(
                    seq=seq,
                    kind=kind,
                    at=at,
                    actor=actor,
                    type=type_,
                    handoff_id=handoff_id,
                    version=version,
                )
                mails.setdefault(reader, []).append(mail)
            else:
                handoffs.append(read_handoff(json))
                if process[0] is not None:
                    processes.append(value_of(Process, process))
        self._store.learn(handoffs)
        if until < head:
            self._hinted.set()
        known, changes = None, None
        if self._is_new(team, known_seq):
            known = known_seq
            changes = await learn_changes(
                self._store.ask, team, after=(place.heard or {}).get(team, 0), until=known_seq
            )
        return News(
            team=team,
            until=until,
            entries=entries,
            mails=mails,
            handoffs=handoffs,
            processes=processes,
            known=known,
            changes=changes,
        )

    def heard(self, news: News) -> None:
        """Say that `news` has been taken in."""
        place = self._store.place
        place.cursors[news.team] = max(news.until, place.cursors.get(news.team, 0))
        if news.known is not None:
            place.hear({news.team: news.known})

    def _is_new(self, team: str, known_seq: int) -> bool:
        heard = self._store.place.heard
        return heard is not None and known_seq > heard.get(team, 0)

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
        return [value_of(Process, row) for row in rows]

    async def waiting(self, agents: Sequence[Key]) -> Sequence[Key]:
        """Return those of `agents` in whose inboxes something waits to be taken."""
        rows = await self._store.ask(
            "select u.team, u.agent from unnest($1::text[], $2::text[]) u(team, agent)"
            " where exists (select 1 from handoff h where h.team = u.team"
            " and h.recipient = u.agent and h.ended_at is null and h.rank is not null)",
            *transposed(list(agents), 2),
        )
        return [(team, agent) for team, agent in rows]


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

_NEWS: Final = """
    with news as materialized (
        select seq, handoff_id, version, type from entry
        where team = $1 and seq > $2 and seq <= $3 and node <> $4
    )
    (
        select 'e'::"char", seq, handoff_id, version, type, null::text, null::text, null::bigint,
            null::text, null::bytea, null::text, null::text, null::text, null::bigint, null::bigint
        from news order by seq
    )
    union all (
        select 'm'::"char", i.seq, i.handoff_id, i.version, i.type, i.agent, i.kind, i.at, i.actor,
            null, null, null, null, null, null
        from news, lateral (
            select * from inbox
            where (team, inbox.seq) >= ($1, news.seq) and (team, inbox.seq) <= ($1, news.seq)
            offset 0
        ) i
        order by i.seq, i.kind
    )
    union all
    select 'h'::"char", null, null, null, null, null, null, null, null, h.json,
        p.team, p.id, p.agent, p.heartbeat_ms, p.seen_at
    from (select distinct handoff_id from news where handoff_id is not null) n, lateral (
        select * from handoff where team = $1 and id = n.handoff_id offset 0
    ) h left join lateral (
        select * from process where team = h.team and id = h.process and h.held offset 0
    ) p on true
"""
"""What others wrote to a log between two of its entries: the entries, what went into whose inbox, and
the handoffs as they are now, with the processes that hold them. Items are looked for by pairs, so that
no index will do but the one that begins with them."""

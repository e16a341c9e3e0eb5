"""Queries of the tables. Implements `nodrop.log.serving.Tables`.

Statements that look many things up say in which order (`lateral`, `offset 0`): a plan that was made
when a table was empty would otherwise go through the whole of it later.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from nodrop.log import journal
from nodrop.log.journal import Batch
from nodrop.log.port import (
    Body,
    Horizon,
    Key,
    KeyUse,
    LogPage,
    Mail,
    Page,
    Place,
    Process,
    Record,
    Team,
    Token,
)
from nodrop.log.postgres.driver import Ask
from nodrop.log.postgres.pages import AFTER_ALL, handoffs_page
from nodrop.log.postgres.records import transposed
from nodrop.log.records import (
    KEPT,
    STUB,
    read_agent,
    read_handoff,
    read_horizon,
    read_kept,
    read_stub,
    unpacked,
    value_of,
)
from nodrop.log.serving import SEQ_MAX
from nodrop.log.state import Kept, Stub
from nodrop.log.tables import Name
from nodrop.model.contract import Agent
from nodrop.model.handoff import Handoff
from nodrop.protocol.entries import Entry, Head

BATCHES_MAX: Final = 200
"""Rows of the journal that one statement returns."""
_KINDS_MAX: Final = 16
"""An entry has at most one item of a kind for one reader; there are fewer kinds than this."""


def batch_columns(*wanted: str) -> str:
    """Return the columns of `journal` in the order of a `Batch`, the large ones only if wanted."""
    large = {"types": "''", "entries": "''::bytea", "bodies": "''::bytea", "mail": "''::bytea"}
    return ", ".join(
        name if name in wanted else large.get(name, name) for name in Batch.__struct_fields__
    )


EVERYTHING: Final = batch_columns("types", "entries", "bodies", "mail")


class End(msgspec.Struct, frozen=True, kw_only=True):
    """A team's row: where its log ends, and how far it is followed."""

    team: str
    head: Head
    known_seq: int
    watermark: int
    horizon: int


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that follows in a log, with the agents, tokens and records that changed with it."""

    batch: Batch
    changed: Sequence[tuple[str, str]]
    """(kind, id)."""


class PostgresTables:
    """The tables of one database."""

    def __init__(self, ask: Ask) -> None:
        """Have `ask` run each statement, on whichever connection is free."""
        self._ask = ask

    # --- where logs end ---

    async def ends(self, teams: Collection[str] | None = None) -> list[End]:
        """Return the ends of the logs of these teams, or of all."""
        which = "" if teams is None else "where t.id = any($1::text[])"
        bound = () if teams is None else (list(teams),)
        rows = await self._ask(
            "select t.id, t.head_seq, t.head_hash, t.known_seq, t.watermark,"  # noqa: S608  # constants
            " coalesce((select h.seq from horizon h where h.team = t.id), 0)"
            f" from team t {which} order by t.id",
            *bound,
        )
        return [
            End(
                team=team,
                head=Head(seq=seq, hash=hash_),
                known_seq=known,
                watermark=watermark,
                horizon=horizon,
            )
            for team, seq, hash_, known, watermark, horizon in rows
        ]

    async def batches_after(self, team: str, seq: int) -> list[Next]:
        """Return what follows an entry in the journal: all of it, if it is fewer than `BATCHES_MAX`."""
        columns = batch_columns("types", "entries", "mail")
        rows = await self._ask(
            f"select {columns}, changed from journal"  # noqa: S608  # constants
            " where team = $1 and last_seq > $2 order by last_seq limit $3",
            team,
            seq,
            BATCHES_MAX,
        )
        return [
            Next(
                batch=value_of(Batch, tuple(row)[:-1]),
                changed=_PAIRS.decode(row[-1]) if row[-1] else (),
            )
            for row in rows
        ]

    async def stubs(self, team: str) -> list[tuple[str, Stub]]:
        """Return the ids of what is open in a team, and what each is found by."""
        rows = await self._ask(
            f"select id, {STUB} from handoff where team = $1 and due_at is not null",  # noqa: S608  # constants
            team,
        )
        return [(row[0], read_stub(tuple(row)[1:])) for row in rows]

    # --- what a decision needs ---

    async def kept(self, keys: Sequence[Key]) -> list[Kept]:
        """Return the handoffs there are of `keys`, as their rows have them."""
        if not keys:
            return []
        rows = await self._ask(
            f"select h.* from unnest($1::text[], $2::text[]) u(team, id), lateral (select {KEPT}"  # noqa: S608  # constants
            " from handoff where team = u.team and id = u.id offset 0) h",
            *transposed(list(keys), 2),
        )
        return [read_kept(tuple(row)) for row in rows]

    async def keys(self, wanted: Collection[Name]) -> list[KeyUse]:
        """Return what idempotency keys were used for."""
        rows = await self._ask(
            "select k.* from unnest($1::text[], $2::text[], $3::text[]) u(team, sender, key), lateral"
            " (select team, sender, key, handoff_id, digest from idempotency_key"
            " where team = u.team and sender = u.sender and key = u.key offset 0) k",
            *transposed(list(wanted), 3),
        )
        return [value_of(KeyUse, tuple(row)) for row in rows]

    async def commands(self, wanted: Collection[Name]) -> dict[Name, Sequence[Place]]:
        """Return what commands wrote, in log order."""
        rows = await self._ask(
            "select c.* from unnest($1::text[], $2::text[], $3::text[]) u(team, actor, id), lateral"
            " (select team, actor, id, request, seqs from command"
            " where team = u.team and actor = u.actor and id = u.id offset 0) c",
            *transposed(list(wanted), 3),
        )
        places = await self.entry_places(
            [(row[0], int(seq)) for row in rows for seq in row[4].split()]
        )
        found: dict[Name, Sequence[Place]] = {}
        for team, actor, command_id, request, seqs in rows:
            wrote = [places[team, int(seq)] for seq in seqs.split() if (team, int(seq)) in places]
            if wrote:
                named = [msgspec.structs.replace(place, request=request) for place in wrote]
                found[team, actor, command_id] = named
        return found

    async def entry_places(
        self, wanted: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], Place]:
        """Return the entries there are of (team, seq)."""
        seqs: dict[str, list[int]] = {}
        for team, seq in wanted:
            seqs.setdefault(team, []).append(seq)
        return {
            (team, e.seq): Place(seq=e.seq, handoff_id=e.handoff_id, version=e.version, type=e.type)
            for team, of_team in seqs.items()
            for e in await self.entries_at(team, of_team)
        }

    async def processes_of(self, keys: Collection[Key]) -> list[Process]:
        """Return the known processes of `keys`."""
        rows = await self._ask(
            "select p.* from unnest($1::text[], $2::text[]) u(team, id), lateral"
            " (select team, id, agent, heartbeat_ms, seen_at from process"
            " where team = u.team and id = u.id offset 0) p",
            *transposed(list(keys), 2),
        )
        return [value_of(Process, tuple(row)) for row in rows]

    # --- finding and listing ---

    async def resolve(self, team: str, reference: str) -> list[str]:
        """Return at most two ids: of `sender/key`, or of those an id prefix fits."""
        sender, slash, key = reference.partition("/")
        if slash:
            rows = await self._ask(
                "select handoff_id from idempotency_key"
                " where team = $1 and sender = $2 and key = $3",
                team,
                sender,
                key,
            )
        else:
            rows = await self._ask(
                "select id from handoff where team = $1 and id >= $2 and id < $3"
                " order by id limit 2",
                team,
                reference,
                reference + AFTER_ALL,
            )
        return [handoff_id for (handoff_id,) in rows]

    async def list_handoffs(self, page: Page) -> list[Handoff]:
        """Return a page of handoffs, newest first."""
        sql, bound = handoffs_page(page)
        return [read_handoff(json) for (json,) in await self._ask(sql, *bound)]

    async def inbox(self, team: str, agent: str, after: int, before: int, limit: int) -> list[Mail]:
        """Return the items for `agent` between `after` and `before`, oldest first."""
        rows = await self._ask(
            "select seq, kind, at, actor, type, handoff_id, version from inbox"
            " where team = $1 and agent = $2 and seq > $3 and seq < $4"
            " order by seq, kind limit $5",
            team,
            agent,
            after,
            before,
            limit + _KINDS_MAX,
        )
        return [value_of(Mail, tuple(row)) for row in rows]

    # --- the log ---

    async def log(
        self, page: LogPage, fits: Callable[[Entry], bool]
    ) -> tuple[list[Entry], int | None]:
        """Return a page of the log, and up to where it looked if that was not everything."""
        # A caller may name any integer: far below the first entry, or beyond the last there can be.
        after = min(max(page.after, 0), SEQ_MAX)
        filtered = page.type is not None or page.actor is not None
        most = BATCHES_MAX if filtered else min(BATCHES_MAX, max(page.limit, 1))
        rows = await self._ask(
            f"select {batch_columns('types', 'entries')}, {_CUT} from journal"  # noqa: S608  # constants
            f" where team = $1 and last_seq > greatest($2, {_CUT}) order by last_seq limit $3",
            page.team,
            after,
            most,
        )
        found: list[Entry] = []
        for row in rows:
            batch, cut = value_of(Batch, tuple(row)[:-1]), row[-1]
            if journal.may_hold(batch, page):
                begins = max(after, cut)
                found += [e for e in journal.entries(batch) if e.seq > begins and fits(e)]
            if len(found) >= page.limit:
                return found[: page.limit], None
        return found, None if len(rows) < most else rows[-1][1]

    async def entries_at(self, team: str, seqs: Sequence[int]) -> list[Entry]:
        """Return the entries there are at `seqs`."""
        found: list[Entry] = []
        for batch, cut in await self._batches_at(team, seqs, "entries"):
            found += journal.entries(batch, {seq for seq in seqs if seq > cut})
        return found

    async def bodies_at(self, team: str, seqs: Sequence[int]) -> dict[int, Body]:
        """Return the bodies there are of the entries at `seqs`."""
        wanted = set(seqs)
        found = {
            body.seq: Body(salt=body.salt, body=body.body)
            for batch, _ in await self._batches_at(team, seqs, "bodies")
            for body in journal.bodies(batch)
            if body.seq in wanted
        }
        left = list(wanted - found.keys())
        if left:
            rows = await self._ask(
                "select b.* from unnest($2::bigint[]) u(seq), lateral (select seq, salt, body"
                " from large_body where team = $1 and seq = u.seq offset 0) b",
                team,
                left,
            )
            found |= {seq: Body(salt=salt, body=body) for seq, salt, body in rows}
        return found

    async def _batches_at(
        self, team: str, seqs: Sequence[int], *wanted: str
    ) -> list[tuple[Batch, int]]:
        """Return the batches that have the entries at `seqs`, and up to where the log is cut."""
        if not seqs:
            return []
        rows = await self._ask(
            f"""
            select b.*, {_CUT} from (
                select distinct l.last_seq from unnest($2::bigint[]) u(seq), lateral (
                    select last_seq, first_seq from journal
                    where team = $1 and last_seq >= u.seq order by last_seq limit 1
                ) l where l.first_seq <= u.seq
            ) n, lateral (
                select {batch_columns(*wanted)} from journal
                where team = $1 and last_seq = n.last_seq offset 0
            ) b
            order by b.last_seq
            """,  # noqa: S608  # constants
            team,
            [seq for seq in seqs if 0 < seq <= SEQ_MAX],
        )
        return [(value_of(Batch, tuple(row)[:-1]), row[-1]) for row in rows]

    async def sizes_at(self, team: str, seqs: Sequence[int]) -> dict[int, int]:
        """Return how many bytes the large bodies of the entries at `seqs` have."""
        rows = await self._ask(
            "select seq, octet_length(body) from large_body where team = $1 and seq = any($2)",
            team,
            list(seqs),
        )
        return {row[0]: row[1] for row in rows}

    async def kept_bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], Body]:
        """Return the bodies of (handoff id, version) whose entries were pruned."""
        rows = await self._ask(
            "select b.* from unnest($2::text[], $3::bigint[]) u(handoff_id, version), lateral"
            " (select handoff_id, version, salt, body from kept_body where team = $1"
            " and handoff_id = u.handoff_id and version = u.version offset 0) b",
            team,
            *transposed(list(wanted), 2),
        )
        return {(row[0], row[1]): Body(salt=row[2], body=row[3]) for row in rows}

    async def trail(self, team: str, handoff_id: str) -> list[int]:
        """Return the places of a handoff's events, as the tables have them."""
        rows = await self._ask(
            "select from_version, seqs from trail where team = $1 and handoff_id = $2"
            " union all select seqs_from, seqs from handoff where team = $1 and id = $2"
            " order by 1",
            team,
            handoff_id,
        )
        return [seq for _, part in rows for seq in unpacked(part)]

    async def mentions(self, team: str, about: Sequence[str]) -> list[int]:
        """Return the places of entries about these, which are no events of a handoff."""
        rows = await self._ask(
            "select m.seq from unnest($2::text[]) u(about), lateral"
            " (select seq from mention where team = $1 and about = u.about offset 0) m",
            team,
            list(about),
        )
        return [seq for (seq,) in rows]

    async def chain(self, team: str, correlation_id: str) -> list[str]:
        """Return the handoffs of a chain."""
        rows = await self._ask(
            "select id from handoff where correlation_id = $2 and team = $1", team, correlation_id
        )
        return [handoff_id for (handoff_id,) in rows]

    async def horizon(self, team: str) -> Horizon | None:
        """Return where a team's log begins, if it was pruned."""
        rows = await self._ask("select json from horizon where team = $1", team)
        return read_horizon(rows[0][0]) if rows else None

    # --- teams and agents ---

    async def teams(self) -> list[Team]:
        """Return every team."""
        rows = await self._ask("select id, digest_key, created_at from team order by id")
        return [value_of(Team, tuple(row)) for row in rows]

    async def agents(self, team: str, ids: Collection[str] | None = None) -> "list[_Registered]":
        """Return every agent, or those of `ids`, with its current manifest as sent."""
        which, bound = "", ()
        if ids is not None:
            which, bound = "and a.id = any($2::text[])", (list(ids),)
        rows = await self._ask(
            "select a.json, m.sent from agent a"  # noqa: S608  # constants
            " join manifest m on m.team = a.team and m.agent = a.id and m.version = a.version"
            f" where a.team = $1 {which} order by a.id",
            team,
            *bound,
        )
        return [(read_agent(json), sent) for json, sent in rows]

    async def manifest(self, team: str, agent: str, version: int) -> bytes | None:
        """Return one version of a manifest as sent."""
        rows = await self._ask(
            "select sent from manifest where team = $1 and agent = $2 and version = $3",
            team,
            agent,
            version,
        )
        return rows[0][0] if rows else None

    async def tokens(
        self, team: str | None = None, ids: Collection[str] | None = None
    ) -> list[Token]:
        """Return every token, of one team or of all; or those of `ids`."""
        first, last = ("", AFTER_ALL) if team is None else (team, team)
        which, bound = "", ()
        if ids is not None:
            which, bound = "and id = any($3::text[])", (list(ids),)
        rows = await self._ask(
            "select team, id, secret_sha256, agent, role, label, created_at, revoked_at"  # noqa: S608  # constants
            f" from token where team >= $1 and team <= $2 {which} order by team, id",
            first,
            last,
            *bound,
        )
        return [value_of(Token, tuple(row)) for row in rows]

    async def processes(self) -> list[Process]:
        """Return every known process of every team."""
        rows = await self._ask(
            "select team, id, agent, heartbeat_ms, seen_at from process order by team, id"
        )
        return [value_of(Process, tuple(row)) for row in rows]

    async def records(self, kind: str, of: Key | None) -> list[Record]:
        """Return every record of a kind; or, of a team, those whose ids begin so."""
        first, last = ("", ""), (AFTER_ALL, "")
        if of is not None:
            first, last = of, (of[0], of[1] + AFTER_ALL)
        rows = await self._ask(
            "select team, kind, id, json from record where kind = $1"
            " and (team, id) >= ($2, $3) and (team, id) < ($4, $5) order by team, id",
            kind,
            *first,
            *last,
        )
        return [value_of(Record, tuple(row)) for row in rows]

    async def records_named(self, named: Collection[Name]) -> list[Record]:
        """Return the records there are of (team, kind, id)."""
        rows = await self._ask(
            "select r.* from unnest($1::text[], $2::text[], $3::text[]) u(team, kind, id), lateral"
            " (select team, kind, id, json from record"
            " where kind = u.kind and team = u.team and id = u.id offset 0) r",
            *transposed(list(named), 3),
        )
        return [value_of(Record, tuple(row)) for row in rows]


_Registered = tuple[Agent, bytes]
_PAIRS: Final = msgspec.json.Decoder(list[tuple[str, str]])
_CUT: Final = "coalesce((select seq from horizon where team = $1), 0)"
"""Up to where the log is cut: what a horizon hides may not all be deleted yet."""

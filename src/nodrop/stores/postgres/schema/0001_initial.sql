-- The log (`entry`) is the truth; `handoff`, `party` and `inbox` can be rebuilt by folding it.
-- Times are milliseconds since the epoch, UTC. Every key begins with the team, so that a database
-- that is spread over machines can be spread by it. Names are compared byte by byte (`collate
-- "C"`), as every other store compares them.

create domain word as text collate "C";

create table team (
    id         word   not null primary key,
    digest_key bytea  not null,
    created_at bigint not null,
    head_seq   bigint not null check (head_seq >= 0),
    head_hash  word   not null check (length(head_hash) = 64),
    -- The last entry that came with a change of agents, tokens or records. A node that has not
    -- heard of it decides nothing for the team.
    known_seq  bigint not null default 0
);


-- The log and what lives beside it. -----------------------------------------------------------

create table entry (
    team           word   not null,
    seq            bigint not null check (seq >= 1),
    at             bigint not null,
    type           word   not null,
    actor          word   not null,
    handoff_id     word,
    version        bigint,
    correlation_id word,
    command_id     word,
    data           text   not null,
    body_digest    word,
    prev_hash      word   not null,
    hash           word   not null,
    -- Which node wrote it: to all others it is news. Not part of what the hash is taken over.
    node           word   not null,
    primary key (team, seq),
    constraint version_is_of_a_handoff check (version is null or handoff_id is not null)
);

-- Unique: nobody can append a second event of one version.
create unique index entry_handoff on entry (team, handoff_id, version)
    where handoff_id is not null;
create index entry_command on entry (team, actor, command_id) where command_id is not null;
-- The entries of a handoff are found by its correlation through `handoff_correlation`, which is
-- written once per handoff; only what is about no handoff needs an index here.
create index entry_correlation on entry (team, correlation_id)
    where correlation_id is not null and handoff_id is null;

-- `number` is the version of a handoff's entry. An entry that is no event of a handoff has
-- handoff_id '' and its seq as the number.
create table body (
    team       word   not null,
    handoff_id word   not null,
    number     bigint not null,
    body       bytea  not null,
    primary key (team, handoff_id, number)
);

-- An item repeats what it shows of its entry: it outlives the entry when the log is pruned.
create table inbox (
    team       word   not null,
    agent      word   not null,
    seq        bigint not null,
    kind       word   not null,
    at         bigint not null,
    actor      word   not null,
    type       word   not null,
    handoff_id word,
    version    bigint,
    primary key (team, agent, seq, kind)
);
-- What an entry was told to, for the nodes that were not there.
create index inbox_seq on inbox (team, seq);

create table horizon (
    team word   not null primary key,
    seq  bigint not null,
    json bytea  not null
);


-- Handoffs. -----------------------------------------------------------------------------------

-- Rows change several times and soon; the room left in each page lets most changes stay in it.
create table handoff (
    team           word    not null,
    id             word    not null,
    version        bigint  not null check (version >= 1),
    state          word    not null,
    attempt        bigint  not null check (attempt >= 0),
    sender         word    not null,
    origin         word    not null,
    recipient      word    not null,
    correlation_id word    not null,
    process        word,
    due_at         bigint,
    rank           bigint,
    held           boolean not null,
    open           boolean not null,
    dead           boolean not null,
    ended_at       bigint,
    settled_at     bigint,
    json           bytea   not null,
    primary key (team, id),
    -- The machine guarantees these; the database guarantees them again.
    constraint ended_iff_final check (
        case
            when ended_at is null then state in ('offered', 'delivered', 'accepted', 'blocked')
            else state in ('completed', 'failed', 'rejected', 'expired', 'cancelled')
        end
    ),
    constraint only_the_ended_settle check (settled_at is null or ended_at is not null),
    constraint the_unsettled_are_due check (settled_at is not null or due_at is not null),
    constraint only_the_settled_close check (open or settled_at is not null),
    constraint only_the_offered_are_taken check (rank is null or state = 'offered'),
    constraint held_by_a_process check (
        not held or (process is not null and attempt >= 1 and ended_at is null)
    ),
    constraint dead_without_success check (not dead or state in ('failed', 'rejected', 'expired'))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

create index handoff_queue on handoff (team, recipient, rank, id) where ended_at is null;
create index handoff_due on handoff (due_at, team, id) where due_at is not null;
create index handoff_held on handoff (team, process, id) where held;
create index handoff_correlation on handoff (team, correlation_id, id);
create index handoff_ended on handoff (team, state, id) where ended_at is not null;
create index handoff_dead on handoff (team, id) where dead;
create index handoff_closed on handoff (team, settled_at) where not open;

-- Who a handoff may concern, for lists: sender, origin, watchers, and every recipient it had.
-- A list checks the row as well, because recipients change.
create table party (
    team       word    not null,
    agent      word    not null,
    handoff_id word    not null,
    watches    boolean not null,
    primary key (team, agent, handoff_id)
);

create table idempotency_key (
    team       word not null,
    sender     word not null,
    key        word not null,
    handoff_id word not null,
    digest     word not null,
    primary key (team, sender, key)
);
create index idempotency_key_handoff on idempotency_key (team, handoff_id);


-- Agents and their ways in. -------------------------------------------------------------------

create table agent (
    team    word   not null,
    id      word   not null,
    version bigint not null check (version >= 0),
    json    bytea  not null,
    primary key (team, id)
);

-- Every version as it was sent, byte for byte.
create table manifest (
    team    word   not null,
    agent   word   not null,
    version bigint not null,
    sent    bytea  not null,
    primary key (team, agent, version)
);

create table process (
    team         word   not null,
    id           word   not null,
    agent        word   not null,
    heartbeat_ms bigint not null,
    seen_at      bigint not null,
    primary key (team, id)
) with (fillfactor = 70);

create table token (
    team          word   not null,
    id            word   not null,
    secret_sha256 word   not null,
    agent         word   not null,
    role          word   not null,
    label         text,
    created_at    bigint not null,
    revoked_at    bigint,
    primary key (team, id)
);

-- Small things that a relay knows about a team, all of a kind read at its start: keys,
-- invitations, policies.
create table record (
    team word  not null,
    kind word  not null,
    id   word  not null,
    json bytea not null,
    primary key (kind, team, id)
);


-- The nodes that serve this database. ---------------------------------------------------------

-- One row: since when there has been a node without a gap. Whatever ran out before counts anew.
create table fleet (
    one      boolean primary key default true check (one),
    up_since bigint not null
);

create table node (
    id         word   not null primary key,
    seen_at    bigint not null,
    attendance bigint not null  -- grows with every change of the node's rows there
) with (fillfactor = 50);

-- Which agents a node has connections of, and when it last heard of others.
create table attendance (
    node      word    not null references node on delete cascade,
    team      word    not null,
    agent     word    not null,
    connected boolean not null,
    seen_at   bigint  not null,
    primary key (node, team, agent)
);


-- What decides is in Python; what must see two snapshots in one round trip is here. ----------

-- Locks everything that a unit of work rests on, and returns it. One order for all, so that nobody
-- waits in a circle: names (what is not there has no row to lock), then rows. Each statement of a
-- function sees what was committed before it began: what is read here is read under the locks. What
-- is looked up one by one (`lateral`, `offset 0`) is, whatever was in the tables when it was planned.
create function load(
    names text[],
    teams text[], ids text[],
    process_teams text[], processes text[],
    key_teams text[], senders text[], keys text[],
    command_teams text[], actors text[], command_ids text[],
    entry_teams text[], seqs bigint[]
) returns table (
    what "char", t text, a text, b text, n bigint, handoff text, number bigint, said text, j bytea
)
language plpgsql
as $$
#variable_conflict use_column
begin
    perform pg_advisory_xact_lock(sorted.key) from (
        select distinct hashtextextended(n.name, 0) as key from unnest(names) n(name) order by 1
    ) sorted;
    perform 1 from (
        select wanted.team, wanted.id from (
            select u.team, u.id from unnest(teams, ids) u(team, id)
            union
            select p.team, h.id::text from unnest(process_teams, processes) p(team, process),
                lateral (select id from handoff
                    where team = p.team and handoff.process = p.process and held offset 0) h
            order by 1, 2
        ) wanted
    ) sorted, lateral (
        select 1 from handoff where team = sorted.team and id = sorted.id for no key update
    ) locked;
    return query
        select 'h'::"char", u.team, u.id, null, null::bigint, null, null::bigint, null, h.json
        from unnest(teams, ids) u(team, id),
            lateral (select json from handoff where team = u.team and id = u.id offset 0) h;
    return query
        select 'p'::"char", p.team, p.process, null, null::bigint, null, null::bigint, null, h.json
        from unnest(process_teams, processes) p(team, process),
            lateral (select json from handoff
                where team = p.team and handoff.process = p.process and held
                order by id offset 0) h;
    return query
        select 'l'::"char", p.team, p.process, known.agent::text, known.heartbeat_ms, null,
            known.seen_at, null, null::bytea
        from unnest(process_teams, processes) p(team, process),
            lateral (select agent, heartbeat_ms, seen_at from process
                where team = p.team and id = p.process offset 0) known;
    return query
        select 'k'::"char", u.team, u.sender, u.key, null::bigint, k.handoff_id::text, null::bigint,
            k.digest::text, null::bytea
        from unnest(key_teams, senders, keys) u(team, sender, key),
            lateral (select handoff_id, digest from idempotency_key
                where team = u.team and sender = u.sender and key = u.key offset 0) k;
    return query
        select 'c'::"char", u.team, u.actor, u.command_id, e.seq, e.handoff_id::text, e.version,
            e.type::text, null::bytea
        from unnest(command_teams, actors, command_ids) u(team, actor, command_id),
            lateral (select seq, handoff_id, version, type from entry
                where team = u.team and actor = u.actor and command_id = u.command_id
                order by seq offset 0) e;
    return query
        select 'e'::"char", u.team, null, null, e.seq, e.handoff_id::text, e.version, e.type::text,
            null::bytea
        from unnest(entry_teams, load.seqs) u(team, seq),
            lateral (select seq, handoff_id, version, type from entry
                where team = u.team and entry.seq = u.seq offset 0) e;
end
$$;

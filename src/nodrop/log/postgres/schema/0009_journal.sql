-- readable from 9
-- The journal is the truth: a row per commit and team, appended where the row of the team says that the
-- log ends. `handoff`, `trail`, `party` and `inbox` follow it, as far as `team.watermark` says; everything
-- else is written in the commit that it belongs to.
-- Times are milliseconds since the epoch, UTC. Every key begins with the team, so that a database
-- that is spread over machines can be spread by it. Names are compared byte by byte (`collate
-- "C"`), as every other store compares them.

create domain word as text collate "C";

create table team (
    id         word   not null primary key,
    digest_key bytea  not null,
    created_at bigint not null,
    head_seq   bigint not null default 0 check (head_seq >= 0),
    head_hash  word   not null default repeat('0', 64) check (length(head_hash) = 64),
    -- The last entry that came with a change of agents, tokens or records. A node that has not
    -- heard of it decides nothing for the team.
    known_seq  bigint not null default 0,
    -- Rows and inboxes are as the log up to here made them.
    watermark  bigint not null default 0 check (watermark <= head_seq)
) with (fillfactor = 50);


-- The log. ------------------------------------------------------------------------------------

-- `entries` is a line of JSON for each entry, as it is hashed but for the hash before it; `hashes` has
-- 32 bytes for each. `bodies` and `mail` are packed apart: `nodrop.log.journal`.
create table journal (
    team      word   not null,
    last_seq  bigint not null,
    first_seq bigint not null check (first_seq >= 1 and first_seq <= last_seq),
    first_at  bigint not null,
    last_at   bigint not null,
    types     text   not null,
    prev_hash bytea  not null check (length(prev_hash) = 32),
    entries   bytea  not null,
    hashes    bytea  not null check (length(hashes) = 32 * (last_seq - first_seq + 1)),
    bodies    bytea  not null,
    mail      bytea  not null,
    -- The agents, tokens and records that changed with it, as a JSON list of pairs; '' if none did.
    changed   text   not null default '',
    -- Which node wrote it.
    node      word   not null default '',
    primary key (team, last_seq)
);

-- Entries compress to a quarter, at a fifth of the server's time for a handoff; where it has LZ4, at less.
do $$ begin
    alter table journal alter column entries set compression lz4,
        alter column bodies set compression lz4, alter column mail set compression lz4;
exception when feature_not_supported then null;
end $$;
-- Nobody can compress these.
alter table journal alter column hashes set storage external;

-- Bodies that would make a batch long.
create table large_body (
    team word   not null,
    seq  bigint not null,
    salt bytea  not null,
    body bytea  not null,
    primary key (team, seq)
);

-- Bodies whose entries were pruned, of handoffs that go on.
create table kept_body (
    team       word   not null,
    handoff_id word   not null,
    version    bigint not null,
    salt       bytea  not null,
    body       bytea  not null,
    primary key (team, handoff_id, version)
);

-- Entries that are about a handoff and no event of it, or about a correlation and no handoff.
create table mention (
    team  word   not null,
    about word   not null,
    seq   bigint not null,
    primary key (team, about, seq)
);

-- `seqs` are the places of what the command wrote, each before a space; `request` is the digest of what
-- was asked for: under one id there is one request.
create table command (
    team    word  not null,
    actor   word  not null,
    id      word  not null,
    request bytea,
    seqs    text  not null,
    primary key (team, actor, id)
);

create table idempotency_key (
    team       word not null,
    sender     word not null,
    key        word not null,
    handoff_id word not null,
    digest     word not null,
    primary key (team, sender, key)
);
create index idempotency_key_handoff on idempotency_key (handoff_id, team);

create table horizon (
    team word   not null primary key,
    seq  bigint not null,
    json bytea  not null
);


-- What follows the log. -----------------------------------------------------------------------

-- `applied_seq` is the last entry that is in the row; `seqs` are the places of its versions in the log,
-- from `seqs_from` on, eight bytes each.
create table handoff (
    team           word    not null,
    id             word    not null,
    applied_seq    bigint  not null,
    state          word    not null,
    sender         word    not null,
    origin         word    not null,
    recipient      word    not null,
    correlation_id word    not null,
    process        word,
    due_at         bigint,
    rank           bigint,
    open           boolean not null,
    dead           boolean not null,
    ended_at       bigint,
    settled_at     bigint,
    seqs_from      bigint  not null,
    seqs           bytea   not null,
    json           bytea   not null,
    primary key (team, id)
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02);

-- What is looked for by team and id must not be looked for by another index: one that begins with the
-- team and holds the id would do as well in a plan that is made while the table is empty.
create index handoff_due on handoff (team, due_at) where due_at is not null;
create index handoff_unfinished on handoff (team, recipient, id) where ended_at is null;
create index handoff_correlation on handoff (correlation_id, team, id);
create index handoff_ended on handoff (team, state, id) where ended_at is not null;
create index handoff_dead on handoff (team, id) where dead;
create index handoff_closed on handoff (team, settled_at) where not open;

-- Older parts of `handoff.seqs`.
create table trail (
    team         word   not null,
    handoff_id   word   not null,
    from_version bigint not null,
    seqs         bytea  not null,
    primary key (team, handoff_id, from_version)
);

-- Who a handoff may concern, for lists: sender, origin, watchers, and every recipient it had.
-- A list checks the row as well, because recipients change. Marks are here too, which never change.
create table party (
    team       word    not null,
    agent      word    not null,
    handoff_id word    not null,
    watches    boolean not null,
    primary key (team, agent, handoff_id)
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
-- For pruning, which goes through all inboxes of a team.
create index inbox_seq on inbox (team, seq);


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
    attendance bigint not null, -- grows with every change of the node's rows there
    -- Which version of the schema it speaks, so that a step which it could not live with waits for it.
    schema     bigint not null
) with (fillfactor = 50);

-- Which agents a node has connections of, and when it last heard of others. `version` is the node's
-- `attendance` when it last wrote the row: a node that knows that much reads what is newer.
create table attendance (
    node      word    not null references node on delete cascade,
    team      word    not null,
    agent     word    not null,
    connected boolean not null,
    seen_at   bigint  not null,
    version   bigint  not null,
    primary key (node, team, agent)
);
create index attendance_version on attendance (node, version);

-- What one node does for all of them, such as sending an inbox on: who does it now. It goes with the
-- row of the node, and another takes it from a node that is not heard of any more.
create table duty (
    name word not null primary key,
    node word not null references node on delete cascade
);
create index duty_node on duty (node);


-- What decides is in Python; what must be done under one lock is here. -------------------------

-- Rows as they are handed to `append`: one array of rows is read in one go, and one of each column is not.
-- They are apart from the tables, so that a column more in a table changes nothing for a node that does
-- not know it.
create type log_part as (
    -- Where the log of a team ends, and the last entry that the caller has heard of among those that
    -- changed what decisions rest on (null: nobody else changes it).
    team text, seq bigint, hash text, heard bigint,
    -- Where it ends afterwards, whether that changes what decisions rest on, and up to which entry rows
    -- are written then (null: as before).
    last_seq bigint, last_hash text, tells boolean, mark bigint,
    -- The batch; null: nothing is appended to this log.
    first_at bigint, last_at bigint, types text, entries bytea, hashes bytea, bodies bytea, mail bytea,
    changed text
);
create type name_part as (team text, agent text, name text);
create type command_part as (team text, actor text, id text, request bytea, seqs text);
create type key_part as (team text, sender text, key text, handoff_id text, digest text);
create type large_body_part as (team text, seq bigint, salt bytea, body bytea);
create type mention_part as (team text, about text, seq bigint);
create type process_part as (team text, id text, agent text, heartbeat_ms bigint, seen_at bigint);
create type gone_part as (team text, id text, seen_at bigint);
create type handoff_part as (
    team text, id text, applied_seq bigint, state text, sender text, origin text, recipient text,
    correlation_id text, process text, due_at bigint, rank bigint, open boolean, dead boolean,
    ended_at bigint, settled_at bigint, seqs_from bigint, seqs bytea, json bytea
);
create type party_part as (team text, agent text, handoff_id text, watches boolean);
create type trail_part as (team text, handoff_id text, from_version bigint, seqs bytea);
create type item_part as (
    team text, agent text, seq bigint, kind text, at bigint, actor text, type text, handoff_id text,
    version bigint
);

-- Writes a unit of work, if the log of each of its teams still ends where it was decided that it does.
-- This comparison is all that keeps two nodes from writing one log twice: everything that a decision
-- rests on changes with an entry, and every entry moves the end. Who comes second waits for the row of
-- the team, and compares with what it is then.
-- A parameter is null where there is nothing of its kind: what is not there costs nothing.
create function append(
    -- Sorted by team.
    logs log_part[],
    -- Commands that were not carried out, and keys that were not used, before.
    unused_commands name_part[], unused_keys name_part[],
    -- Commands and keys of this unit of work, and whether no other had any of them.
    commands command_part[], new_commands boolean, keys key_part[], new_keys boolean,
    large_bodies large_body_part[], mentions mention_part[], processes process_part[],
    gone_processes gone_part[],
    -- Rows that earlier commits have left.
    rows handoff_part[], parties party_part[], trails trail_part[], items item_part[],
    -- Who writes, and where the others are told; null: there are none.
    node text, channel text
) returns void
language plpgsql
-- Whatever was in the tables when a plan was made, and whatever a pooler's connections are set to.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    log log_part;
    teams text[] := '{}';
    marks bigint[] := '{}';
    mark bigint;
    appends boolean := false;
begin
    foreach log in array logs loop
        if rows is not null or items is not null then
            select watermark into mark from team where id = log.team for no key update;
            teams := teams || log.team;
            marks := marks || mark;
        end if;
        if log.entries is null and log.mark is null then
            perform from team where id = log.team
                and head_seq = log.seq and head_hash = log.hash
                and (log.heard is null or known_seq <= log.heard)
                for no key update;
        else
            update team set head_seq = log.last_seq, head_hash = log.last_hash,
                known_seq = case when log.tells then log.last_seq else known_seq end,
                watermark = greatest(watermark, log.mark)
                where id = log.team
                and head_seq = log.seq and head_hash = log.hash
                and (log.heard is null or known_seq <= log.heard);
        end if;
        if not found then
            raise serialization_failure using
                message = 'another node has written to the log, or changed what is known of the team';
        end if;
        if log.entries is not null then
            appends := true;
            insert into journal (
                team, last_seq, first_seq, first_at, last_at, types, prev_hash, entries, hashes, bodies,
                mail, changed, node
            ) values (
                log.team, log.last_seq, log.seq + 1, log.first_at, log.last_at, log.types,
                decode(log.hash, 'hex'), log.entries, log.hashes, log.bodies, log.mail, log.changed,
                node
            );
        end if;
    end loop;

    -- Nobody uses a name without the end of its team's log.
    if unused_commands is not null then
        perform 1 from unnest(unused_commands) u where exists (
            select 1 from command c where c.team = u.team and c.actor = u.agent and c.id = u.name
        );
        if found then
            raise serialization_failure using message = 'a command was carried out before';
        end if;
    end if;
    if unused_keys is not null then
        perform 1 from unnest(unused_keys) u where exists (
            select 1 from idempotency_key k
            where k.team = u.team and k.sender = u.agent and k.key = u.name
        );
        if found then
            raise serialization_failure using message = 'a key was used before';
        end if;
    end if;
    -- Where all of them must be new, the unique index says whether they are.
    if new_commands then
        insert into command (team, actor, id, request, seqs) select * from unnest(commands);
    elsif commands is not null then
        insert into command (team, actor, id, request, seqs) select * from unnest(commands)
        on conflict (team, actor, id) do update set seqs = command.seqs || excluded.seqs;
    end if;
    if new_keys then
        insert into idempotency_key (team, sender, key, handoff_id, digest)
        select * from unnest(keys);
    elsif keys is not null then
        insert into idempotency_key (team, sender, key, handoff_id, digest)
        select * from unnest(keys)
        on conflict (team, sender, key) do update set
            handoff_id = excluded.handoff_id, digest = excluded.digest;
    end if;

    if large_bodies is not null then
        insert into large_body (team, seq, salt, body) select * from unnest(large_bodies);
    end if;
    if mentions is not null then
        insert into mention (team, about, seq) select * from unnest(mentions);
    end if;
    -- Two nodes may have heard of a process; the later sign of life counts.
    if processes is not null then
        insert into process (team, id, agent, heartbeat_ms, seen_at)
        select * from unnest(processes) on conflict (team, id) do update set
            agent = excluded.agent, heartbeat_ms = excluded.heartbeat_ms,
            seen_at = greatest(process.seen_at, excluded.seen_at);
    end if;
    if gone_processes is not null then
        delete from process p using unnest(gone_processes) g
        where p.team = g.team and p.id = g.id and p.seen_at <= g.seen_at;
    end if;

    -- What is not beyond the watermark is written already, by whichever node; it may even be pruned.
    -- Sender, origin and correlation are as the offer made them: naming them would rewrite their
    -- indexes each time.
    if rows is not null then
        insert into handoff (
            team, id, applied_seq, state, sender, origin, recipient, correlation_id, process, due_at,
            rank, open, dead, ended_at, settled_at, seqs_from, seqs, json
        ) select u.* from unnest(rows) u
        where u.applied_seq > marks[array_position(teams, u.team)]
        on conflict (team, id) do update set
            applied_seq = excluded.applied_seq, state = excluded.state,
            recipient = excluded.recipient, process = excluded.process, due_at = excluded.due_at,
            rank = excluded.rank, open = excluded.open, dead = excluded.dead,
            ended_at = excluded.ended_at, settled_at = excluded.settled_at,
            seqs_from = excluded.seqs_from, seqs = excluded.seqs, json = excluded.json
        where handoff.applied_seq < excluded.applied_seq;
    end if;
    if parties is not null then
        insert into party (team, agent, handoff_id, watches) select * from unnest(parties)
        on conflict do nothing;
    end if;
    if trails is not null then
        insert into trail (team, handoff_id, from_version, seqs) select * from unnest(trails)
        on conflict do nothing;
    end if;
    if items is not null then
        insert into inbox (team, agent, seq, kind, at, actor, type, handoff_id, version)
        select u.* from unnest(items) u where u.seq > marks[array_position(teams, u.team)]
        on conflict do nothing;
    end if;
    -- At most one a unit of work: a notification takes a lock of the whole database at the commit.
    if channel is not null and appends then
        perform pg_notify(channel, node);
    end if;
end
$$;

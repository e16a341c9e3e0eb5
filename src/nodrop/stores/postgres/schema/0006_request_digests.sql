-- The digest of the request that has `command_id`: under one id there is one request. Not part of the
-- entry's hash, and null where a node of an earlier schema wrote the entry. Those nodes go on calling
-- `append` as it was, without the digests, and do not look at what `load` adds for commands.
alter table entry add column request bytea;

create or replace function load(
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
            e.type::text, e.request
        from unnest(command_teams, actors, command_ids) u(team, actor, command_id),
            lateral (select seq, handoff_id, version, type, request from entry
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

create function append(
    -- What the unit of work was decided on: handoffs at these versions, besides those that it writes;
    -- commands that were not carried out, and keys that were not used, before.
    names text[],
    seen_teams text[], seen_ids text[], seen_versions bigint[],
    command_teams text[], command_actors text[], command_ids text[],
    key_teams text[], key_senders text[], key_keys text[],
    -- The teams that are written to, and the last entry of each that the caller has heard of among
    -- those that changed what decisions rest on; null: nobody else changes it.
    end_teams text[], end_heard bigint[],
    tells boolean,
    -- What happened, entry by entry; bodies and inbox items name theirs by its place here.
    entry_teams text[], entry_ats bigint[], entry_types text[], entry_actors text[],
    entry_handoffs text[], entry_versions bigint[], entry_correlations text[],
    entry_commands text[], entry_requests bytea[], entry_datas text[], entry_digests text[],
    entry_heads bytea[], entry_tails bytea[],
    body_entries bigint[], bodies bytea[],
    item_entries bigint[], item_agents text[], item_kinds text[],
    -- Rows, sorted by their keys; so many of them, at most, are of new handoffs.
    row_fresh bigint, row_teams text[], row_ids text[], row_versions bigint[],
    row_states text[], row_attempts bigint[], row_senders text[], row_origins text[],
    row_recipients text[], row_correlations text[], row_processes text[], row_dues bigint[],
    row_ranks bigint[], row_helds boolean[], row_opens boolean[], row_deads boolean[],
    row_ends bigint[], row_settleds bigint[], row_jsons bytea[],
    party_teams text[], party_agents text[], party_handoffs text[], party_watches boolean[],
    use_teams text[], use_senders text[], use_keys text[], use_handoffs text[], use_digests text[],
    process_teams text[], process_ids text[], process_agents text[], process_heartbeats bigint[],
    process_seens bigint[],
    gone_teams text[], gone_ids text[], gone_seens bigint[],
    -- Who writes, and where the others are told; null: there are none.
    node text, channel text
) returns bigint[]
language plpgsql
-- Whatever was in the tables when a plan was made, and whatever a pooler's connections are set to.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    log record;
    draft record;
    rows_put bigint;
    rows_fresh bigint;
    last_seq bigint;
    last_hash text;
    seqs bigint[] := '{}';
    prevs text[] := '{}';
    hashes text[] := '{}';
begin
    if names <> '{}' then
        perform pg_advisory_xact_lock(sorted.key) from (
            select distinct hashtextextended(n.name, 0) as key from unnest(names) n(name) order by 1
        ) sorted;
    end if;
    perform 1 from unnest(command_teams, command_actors, command_ids) u(team, actor, command_id)
        where exists (
            select 1 from entry e
            where e.team = u.team and e.actor = u.actor and e.command_id = u.command_id
        );
    if found then
        raise serialization_failure using message = 'a command was carried out before';
    end if;
    perform 1 from unnest(key_teams, key_senders, key_keys) u(team, sender, key)
        where exists (
            select 1 from idempotency_key k
            where k.team = u.team and k.sender = u.sender and k.key = u.key
        );
    if found then
        raise serialization_failure using message = 'a key was used before';
    end if;

    -- Found by their key and nothing else: a plan made while the table was empty could take any index
    -- that begins with the team. Sender, origin and correlation are as the offer made them: naming
    -- them would rewrite their indexes each time.
    if row_ids <> '{}' then
        with put as (insert into handoff (
            team, id, version, state, attempt, sender, origin, recipient, correlation_id, process,
            due_at, rank, held, open, dead, ended_at, settled_at, json
        ) select * from unnest(
            row_teams, row_ids, row_versions, row_states, row_attempts, row_senders, row_origins,
            row_recipients, row_correlations, row_processes, row_dues, row_ranks, row_helds,
            row_opens, row_deads, row_ends, row_settleds, row_jsons
        ) on conflict (team, id) do update set
            version = excluded.version, state = excluded.state, attempt = excluded.attempt,
            recipient = excluded.recipient, process = excluded.process, due_at = excluded.due_at,
            rank = excluded.rank, held = excluded.held, open = excluded.open, dead = excluded.dead,
            ended_at = excluded.ended_at, settled_at = excluded.settled_at, json = excluded.json
        where handoff.version < excluded.version
        returning xmax = 0 as fresh)  -- a row that was there was locked first
        select count(*), count(*) filter (where fresh) into rows_put, rows_fresh from put;
        if rows_put < cardinality(row_ids) or rows_fresh > row_fresh then
            raise unique_violation using message = 'a handoff was changed by somebody else';
        end if;
    end if;

    for log in
        select t.id, t.head_seq, t.head_hash, t.known_seq > u.heard as strange
        from unnest(end_teams, end_heard) u(id, heard), lateral (
            select id, head_seq, head_hash, known_seq from team where id = u.id for no key update
        ) t
    loop
        if log.strange then
            raise serialization_failure using message = 'what is known of a team has changed';
        end if;
        last_seq := log.head_seq;
        last_hash := log.head_hash;
        for draft in
            select n, head, tail
            from unnest(entry_teams, entry_heads, entry_tails)
                with ordinality u(team, head, tail, n)
            where u.team = log.id order by n
        loop
            last_seq := last_seq + 1;
            seqs[draft.n] := last_seq;
            prevs[draft.n] := last_hash;
            last_hash := encode(sha256(
                draft.head || convert_to(last_hash || '","seq":' || last_seq, 'UTF8') || draft.tail
            ), 'hex');
            hashes[draft.n] := last_hash;
        end loop;
        update team set head_seq = last_seq, head_hash = last_hash,
            known_seq = case when tells then last_seq else known_seq end
            where id = log.id;
    end loop;

    -- Nobody moves a handoff on without the end of its team's log.
    if seen_ids <> '{}' then
        perform 1 from unnest(seen_teams, seen_ids, seen_versions) u(team, id, version)
            left join lateral (
                select version from handoff where team = u.team and id = u.id offset 0
            ) kept on true
            where kept.version is distinct from u.version;
        if found then
            raise serialization_failure using message = 'a handoff was changed by somebody else';
        end if;
    end if;

    insert into entry (
        team, at, type, actor, handoff_id, version, correlation_id, command_id, request, data,
        body_digest, seq, prev_hash, hash, node
    ) select u.*, node from unnest(
        entry_teams, entry_ats, entry_types, entry_actors, entry_handoffs, entry_versions,
        entry_correlations, entry_commands, entry_requests, entry_datas, entry_digests, seqs,
        prevs, hashes
    ) u;
    if body_entries <> '{}' then
        insert into body (team, handoff_id, number, body)
        select entry_teams[u.n],
            case when entry_versions[u.n] is null then '' else entry_handoffs[u.n] end,
            coalesce(entry_versions[u.n], seqs[u.n]), u.body
        from unnest(body_entries, bodies) u(n, body);
    end if;
    if item_entries <> '{}' then
        insert into inbox (team, agent, seq, kind, at, actor, type, handoff_id, version)
        select entry_teams[u.n], u.agent, seqs[u.n], u.kind, entry_ats[u.n], entry_actors[u.n],
            entry_types[u.n], entry_handoffs[u.n], entry_versions[u.n]
        from unnest(item_entries, item_agents, item_kinds) u(n, agent, kind);
    end if;

    if party_agents <> '{}' then
        insert into party (team, agent, handoff_id, watches)
        select * from unnest(party_teams, party_agents, party_handoffs, party_watches)
        on conflict do nothing;
    end if;
    if use_keys <> '{}' then
        insert into idempotency_key (team, sender, key, handoff_id, digest)
        select * from unnest(use_teams, use_senders, use_keys, use_handoffs, use_digests)
        on conflict (team, sender, key) do update set
            handoff_id = excluded.handoff_id, digest = excluded.digest;
    end if;
    -- Two nodes may have heard of a process; the later sign of life counts.
    if process_ids <> '{}' then
        insert into process (team, id, agent, heartbeat_ms, seen_at)
        select * from unnest(
            process_teams, process_ids, process_agents, process_heartbeats, process_seens
        ) on conflict (team, id) do update set
            agent = excluded.agent, heartbeat_ms = excluded.heartbeat_ms,
            seen_at = greatest(process.seen_at, excluded.seen_at);
    end if;
    if gone_ids <> '{}' then
        delete from process p using unnest(gone_teams, gone_ids, gone_seens) g(team, id, seen_at)
        where p.team = g.team and p.id = g.id and p.seen_at <= g.seen_at;
    end if;
    -- At most one a unit of work: a notification takes a lock of the whole database at the commit.
    if channel is not null and seqs <> '{}' then
        perform pg_notify(channel, node);
    end if;
    return seqs;
end
$$;

-- The log (`entry`) is the truth; `handoff`, `party` and `inbox` can be rebuilt by folding it.
-- Times are milliseconds since the epoch, UTC. Every key begins with the team.

create table team (
    id         text    not null primary key,
    digest_key blob    not null,
    created_at integer not null,
    head_seq   integer not null check (head_seq >= 0),
    head_hash  text    not null check (length(head_hash) = 64)
) strict, without rowid;


-- The log and what lives beside it. -----------------------------------------------------------

create table entry (
    team           text    not null,
    seq            integer not null check (seq >= 1),
    at             integer not null,
    type           text    not null,
    actor          text    not null,
    handoff_id     text,
    version        integer,
    correlation_id text,
    command_id     text,
    data           text    not null,
    body_digest    text,
    prev_hash      text    not null,
    hash           text    not null,
    primary key (team, seq),
    constraint version_is_of_a_handoff check (version is null or handoff_id is not null)
) strict, without rowid;

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
    team       text    not null,
    handoff_id text    not null,
    number     integer not null,
    body       blob    not null,
    primary key (team, handoff_id, number)
) strict, without rowid;

-- An item repeats what it shows of its entry: it outlives the entry when the log is pruned.
create table inbox (
    team       text    not null,
    agent      text    not null,
    seq        integer not null,
    kind       text    not null,
    at         integer not null,
    actor      text    not null,
    type       text    not null,
    handoff_id text,
    version    integer,
    primary key (team, agent, seq, kind)
) strict, without rowid;

create table horizon (
    team text    not null primary key,
    seq  integer not null,
    json blob    not null
) strict, without rowid;


-- Handoffs. -----------------------------------------------------------------------------------

-- A rowid table, unlike the others: its rows are longer than a quarter of a page, which an index
-- tree would spill into a page of its own each (measured: a third slower, the file 40 % bigger).
create table handoff (
    team           text    not null,
    id             text    not null,
    version        integer not null check (version >= 1),
    state          text    not null,
    attempt        integer not null check (attempt >= 0),
    sender         text    not null,
    origin         text    not null,
    recipient      text    not null,
    correlation_id text    not null,
    process        text,
    due_at         integer,
    rank           integer,
    held           integer not null check (held in (0, 1)),
    open           integer not null check (open in (0, 1)),
    dead           integer not null check (dead in (0, 1)),
    ended_at       integer,
    settled_at     integer,
    json           blob    not null,
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
) strict;

-- `ended_at` is null in all of it, and there so that counting a queue need not visit the rows.
create index handoff_queue on handoff (team, recipient, rank, id, ended_at)
    where ended_at is null;
create index handoff_due on handoff (due_at, team, id) where due_at is not null;
create index handoff_held on handoff (team, process, id) where held;
create index handoff_correlation on handoff (team, correlation_id, id);
create index handoff_ended on handoff (team, state, id) where ended_at is not null;
create index handoff_dead on handoff (team, id) where dead;
create index handoff_closed on handoff (team, settled_at) where not open;

-- Who a handoff may concern, for lists: sender, origin, watchers, and every recipient it had.
-- A list checks the row as well, because recipients change.
create table party (
    team       text not null,
    agent      text not null,
    handoff_id text not null,
    primary key (team, agent, handoff_id)
) strict, without rowid;

create table idempotency_key (
    team       text not null,
    sender     text not null,
    key        text not null,
    handoff_id text not null,
    digest     text not null,
    primary key (team, sender, key)
) strict, without rowid;


-- Agents and their ways in. -------------------------------------------------------------------

create table agent (
    team    text    not null,
    id      text    not null,
    version integer not null check (version >= 0),
    json    blob    not null,
    primary key (team, id)
) strict, without rowid;

-- Every version as it was sent, byte for byte.
create table manifest (
    team    text    not null,
    agent   text    not null,
    version integer not null,
    sent    blob    not null,
    primary key (team, agent, version)
) strict;

create table process (
    team         text    not null,
    id           text    not null,
    agent        text    not null,
    heartbeat_ms integer not null,
    seen_at      integer not null,
    primary key (team, id)
) strict, without rowid;

create table token (
    team          text    not null,
    id            text    not null,
    secret_sha256 text    not null,
    agent         text    not null,
    role          text    not null,
    label         text,
    created_at    integer not null,
    revoked_at    integer,
    primary key (team, id)
) strict, without rowid;

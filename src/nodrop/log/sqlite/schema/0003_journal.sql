-- The journal is the truth: a row per commit and team. `handoff`, `trail`, `party` and `inbox` follow it,
-- as far as `watermark` says; everything else is written in the commit that it belongs to.
-- Times are milliseconds since the epoch, UTC. Every key begins with the team.

create table team (
    id         text    not null primary key,
    digest_key blob    not null,
    created_at integer not null
) strict, without rowid;


-- The log. --------------------------------------------------------------------------------------

-- `entries` is a line of JSON for each entry, as it is hashed but for the hash before it; `hashes` has
-- 32 bytes for each. `bodies` and `mail` are packed apart: `nodrop.log.journal`.
create table journal (
    team      text    not null,
    last_seq  integer not null,
    first_seq integer not null check (first_seq >= 1 and first_seq <= last_seq),
    first_at  integer not null,
    last_at   integer not null,
    types     text    not null,
    prev_hash blob    not null check (length(prev_hash) = 32),
    entries   blob    not null,
    hashes    blob    not null check (length(hashes) = 32 * (last_seq - first_seq + 1)),
    bodies    blob    not null,
    mail      blob    not null,
    primary key (team, last_seq)
) strict;

-- Bodies that would make a batch long.
create table large_body (
    team text    not null,
    seq  integer not null,
    salt blob    not null,
    body blob    not null,
    primary key (team, seq)
) strict;

-- Bodies whose entries were pruned, of handoffs that go on.
create table kept_body (
    team       text    not null,
    handoff_id text    not null,
    version    integer not null,
    salt       blob    not null,
    body       blob    not null,
    primary key (team, handoff_id, version)
) strict;

-- Entries that are about a handoff and no event of it, or about a correlation and no handoff.
create table mention (
    team  text    not null,
    about text    not null,
    seq   integer not null,
    primary key (team, about, seq)
) strict, without rowid;

-- `seqs` are the places of what the command wrote, each before a space; `request` is the digest of what
-- was asked for: under one id there is one request.
create table command (
    team    text not null,
    actor   text not null,
    id      text not null,
    request blob,
    seqs    text not null,
    primary key (team, actor, id)
) strict, without rowid;

create table idempotency_key (
    team       text not null,
    sender     text not null,
    key        text not null,
    handoff_id text not null,
    digest     text not null,
    primary key (team, sender, key)
) strict, without rowid;

create table horizon (
    team text    not null primary key,
    seq  integer not null,
    json blob    not null
) strict, without rowid;


-- What follows the log. -------------------------------------------------------------------------

create table watermark (
    team text    not null primary key,
    seq  integer not null
) strict, without rowid;

-- A rowid table, unlike most others: its rows are longer than a quarter of a page, which an index
-- tree would spill into a page of its own each (measured: a third slower, the file 40 % bigger).
-- `applied_seq` is the last entry that is in the row; `seqs` are the places of its versions in the log,
-- from `seqs_from` on, eight bytes each.
create table handoff (
    team           text    not null,
    id             text    not null,
    applied_seq    integer not null,
    state          text    not null,
    sender         text    not null,
    origin         text    not null,
    recipient      text    not null,
    correlation_id text    not null,
    process        text,
    due_at         integer,
    rank           integer,
    open           integer not null check (open in (0, 1)),
    dead           integer not null check (dead in (0, 1)),
    ended_at       integer,
    settled_at     integer,
    seqs_from      integer not null,
    seqs           blob    not null,
    json           blob    not null,
    primary key (team, id)
) strict;

create index handoff_due on handoff (team, id) where due_at is not null;
create index handoff_unfinished on handoff (team, recipient, id) where ended_at is null;
create index handoff_correlation on handoff (team, correlation_id, id);
create index handoff_ended on handoff (team, state, id) where ended_at is not null;
create index handoff_dead on handoff (team, id) where dead;
create index handoff_closed on handoff (team, settled_at) where not open;

-- Older parts of `handoff.seqs`.
create table trail (
    team         text    not null,
    handoff_id   text    not null,
    from_version integer not null,
    seqs         blob    not null,
    primary key (team, handoff_id, from_version)
) strict, without rowid;

-- Who a handoff may concern, for lists: sender, origin, watchers, and every recipient it had.
-- A list checks the row as well, because recipients change. Marks are here too, which never change.
create table party (
    team       text not null,
    agent      text not null,
    handoff_id text not null,
    primary key (team, agent, handoff_id)
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


-- Agents and their ways in. ---------------------------------------------------------------------

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

-- Small things that a relay knows about a team, all of a kind read at its start: keys,
-- invitations, policies.
create table record (
    kind text not null,
    team text not null,
    id   text not null,
    json blob not null,
    primary key (kind, team, id)
) strict, without rowid;

-- What each change of agents, tokens and records was about, so that other nodes read that again and
-- not everything a team has. Kept for minutes: a node that is further behind reads everything. So
-- does one that finds a gap, which is where a node of an earlier schema has written.
create table change (
    team   word   not null,
    seq    bigint not null, -- team.known_seq from this change on
    before bigint not null, -- and until then
    at     bigint not null,
    kinds  text[] not null,
    ids    text[] not null,
    primary key (team, seq)
);
create index change_at on change (at);

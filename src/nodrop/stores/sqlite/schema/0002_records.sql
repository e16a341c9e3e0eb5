-- Small things that a relay knows about a team, all of a kind read at its start: keys,
-- invitations, policies.
create table record (
    kind text not null,
    team text not null,
    id   text not null,
    json blob not null,
    primary key (kind, team, id)
) strict, without rowid;

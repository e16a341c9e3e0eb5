-- What one node does for all of them, such as sending an inbox on: who does it now. It goes with the
-- row of the node, and another takes it from a node that is not heard of any more.
create table duty (
    name word not null primary key,
    node word not null references node on delete cascade
);
create index duty_node on duty (node);

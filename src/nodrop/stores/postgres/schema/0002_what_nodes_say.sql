-- Which version of the schema a node speaks, so that a step which it could not live with waits for
-- it. Nodes of version 1 say nothing; the default says it for them.
alter table node add column schema bigint not null default 1;

-- The node's `attendance` when it last wrote the row: whoever knows that much reads what is newer.
-- Of nodes of version 1 everything is read again.
alter table attendance add column version bigint not null default 0;
create index attendance_version on attendance (node, version);

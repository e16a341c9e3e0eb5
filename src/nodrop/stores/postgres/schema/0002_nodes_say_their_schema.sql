-- Which version of the schema a node speaks, so that a step which it could not live with waits for
-- it. Nodes of version 1 say nothing; the default says it for them.
alter table node add column schema bigint not null default 1;

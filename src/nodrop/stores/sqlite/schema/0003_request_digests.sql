-- The digest of the request that has `command_id`: under one id there is one request. Not part of the
-- entry's hash, and null where the entry is older than this.
alter table entry add column request blob;

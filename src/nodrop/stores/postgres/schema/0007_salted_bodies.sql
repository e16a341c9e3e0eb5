-- readable from 7
-- A body is kept behind its salt. What was written without one has other digests in its log.
do $$
begin
    if exists (select 1 from team) then
        raise exception 'the database is from before the first release of Nodrop'
            using hint = 'Name a new database; the Nodrop that wrote this one can export it.';
    end if;
end
$$;

-- The same as ../../sql/019_indexes.sql, which has the comments.
DROP INDEX run_created;

DROP INDEX run_ended;
CREATE INDEX run_ended ON run (routine, ended) WHERE ended IS NOT NULL;

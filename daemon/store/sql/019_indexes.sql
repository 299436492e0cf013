-- An index is paid for with each run, and the less there are, the more often a page of one is written once for many.
-- Ids of runs begin with the moment they were made: whoever wants those since a moment walks back to it by them.
DROP INDEX run_created;
-- What has not ended is found by its status.
DROP INDEX run_ended;
CREATE INDEX run_ended ON run (routine, ended) WHERE ended IS NOT NULL;

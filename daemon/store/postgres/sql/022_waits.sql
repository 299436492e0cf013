-- The same as ../../sql/022_waits.sql, which has the comments.
ALTER TABLE run ADD COLUMN waits_since BIGINT;
ALTER TABLE outbox ADD COLUMN waits_since BIGINT;
ALTER TABLE routine ADD COLUMN paused_since BIGINT;

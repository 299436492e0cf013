-- The same as ../../sql/024_waits_moved.sql, which has the comments.
ALTER TABLE run ADD COLUMN waits_moved BIGINT NOT NULL DEFAULT 0;
UPDATE run SET waits_moved = 1 WHERE status = 'queued' AND detail LIKE '%its time was moved, as the clock was set back';

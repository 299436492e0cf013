-- 1: the clock was set back while the run waited for `not_before`, and that moment was moved.
ALTER TABLE run ADD COLUMN waits_moved INTEGER NOT NULL DEFAULT 0;
UPDATE run SET waits_moved = 1 WHERE status = 'queued' AND detail LIKE '%its time was moved, as the clock was set back';

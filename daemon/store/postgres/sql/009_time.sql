-- The same as ../../sql/009_time.sql, which has the comments.
ALTER TABLE slot ADD COLUMN rule TEXT COLLATE "C";

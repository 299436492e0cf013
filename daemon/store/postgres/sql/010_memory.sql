-- The same as ../../sql/010_memory.sql, which has the comments.
ALTER TABLE memory_item ADD COLUMN indexed BIGINT NOT NULL DEFAULT 1;

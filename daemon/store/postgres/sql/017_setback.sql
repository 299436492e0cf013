-- The same as ../../sql/017_setback.sql, which has the comments.
ALTER TABLE slot ADD COLUMN ahead BIGINT NOT NULL DEFAULT 0;

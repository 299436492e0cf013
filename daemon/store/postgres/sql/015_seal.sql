-- The same as ../../sql/015_seal.sql, which has the comments.
ALTER TABLE run ADD COLUMN seal BIGINT DEFAULT 0;
UPDATE run SET seal = NULL;

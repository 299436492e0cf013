-- The same as ../../sql/014_novelty.sql, which has the comments.
CREATE TABLE novelty (
    routine TEXT COLLATE "C"    NOT NULL,
    digest  TEXT COLLATE "C"    NOT NULL,
    key     TEXT COLLATE "C"    NOT NULL,
    title   TEXT COLLATE "C"    NOT NULL DEFAULT '',
    first   BIGINT NOT NULL,
    last    BIGINT NOT NULL,
    times   BIGINT NOT NULL DEFAULT 1,
    run_id  TEXT COLLATE "C"    NOT NULL,
    PRIMARY KEY (routine, digest)
);
CREATE INDEX novelty_last ON novelty (routine, last);
CREATE INDEX novelty_run ON novelty (run_id);

-- What each routine with [dedupe] has reported. A row stays when its run is forgotten, without words: it is not reported
-- again all the same.
CREATE TABLE novelty (
    routine TEXT    NOT NULL,
    digest  TEXT    NOT NULL,                    -- BLAKE2b of the key
    key     TEXT    NOT NULL,
    title   TEXT    NOT NULL DEFAULT '',
    first   INTEGER NOT NULL,                    -- when it was reported
    last    INTEGER NOT NULL,                    -- when a run last found it
    times   INTEGER NOT NULL DEFAULT 1,
    run_id  TEXT    NOT NULL,                    -- that reported it; no reference: it is known for longer than runs are kept
    PRIMARY KEY (routine, digest)
);
CREATE INDEX novelty_last ON novelty (routine, last);
CREATE INDEX novelty_run ON novelty (run_id);

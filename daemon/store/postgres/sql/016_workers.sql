-- The same as ../../sql/016_workers.sql, which has the comments.
CREATE TABLE worker (
    id       TEXT COLLATE "C"    NOT NULL PRIMARY KEY,
    kind     TEXT COLLATE "C"    NOT NULL,
    host     TEXT COLLATE "C"    NOT NULL,
    pid      BIGINT NOT NULL,
    version  TEXT COLLATE "C"    NOT NULL,
    started  BIGINT NOT NULL,
    seen     BIGINT NOT NULL,
    running  BIGINT NOT NULL DEFAULT 0,
    capacity BIGINT NOT NULL DEFAULT 0,
    leads    BIGINT NOT NULL DEFAULT 0
);

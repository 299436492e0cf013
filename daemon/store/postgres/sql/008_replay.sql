-- The same as ../../sql/008_replay.sql, which has the comments.
CREATE TABLE policy (
    hash TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    body TEXT COLLATE "C" NOT NULL
);

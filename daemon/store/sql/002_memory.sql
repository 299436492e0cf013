-- Memory: items by key, archived runs in pieces, and one index over both. Moments are microseconds since 1970 in UTC.

CREATE TABLE memory_item (
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,    -- never used again: the index knows an item as -id
    key      TEXT    NOT NULL UNIQUE,
    category TEXT    NOT NULL,
    run_id   TEXT,                                          -- the run that stored it, if one did
    tainted  INTEGER NOT NULL DEFAULT 0,
    pinned   INTEGER NOT NULL DEFAULT 0,                    -- no retention takes it
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    text     TEXT    NOT NULL
);
CREATE INDEX memory_item_category ON memory_item (category, updated);

-- Not a reference to `run`: a memory may outlive the journal's row.
CREATE TABLE memory_run (
    id      INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    run_id  TEXT    NOT NULL UNIQUE,
    routine TEXT    NOT NULL,
    goal    TEXT    NOT NULL,
    status  TEXT    NOT NULL,
    started INTEGER NOT NULL,
    ended   INTEGER NOT NULL
);
CREATE INDEX memory_run_ended ON memory_run (ended);
CREATE INDEX memory_run_routine ON memory_run (routine);

-- The rows of one run have consecutive ids in the order things happened: neighbours are id - 1 and id + 1.
CREATE TABLE memory_segment (
    id         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    memory_run INTEGER NOT NULL REFERENCES memory_run (id) ON DELETE CASCADE,
    iteration  INTEGER NOT NULL,
    segment    INTEGER NOT NULL,
    part       INTEGER NOT NULL DEFAULT 0,                  -- a long text is kept in parts
    type       TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    who        TEXT    NOT NULL DEFAULT '',
    asks       INTEGER NOT NULL DEFAULT 0,                  -- it ends with a question mark
    tainted    INTEGER NOT NULL DEFAULT 0,
    digest     INTEGER NOT NULL,                            -- the same for what a routine says again
    superseded INTEGER REFERENCES memory_segment (id) ON DELETE SET NULL,   -- by whom, and so not in the index
    text       TEXT    NOT NULL
);
CREATE UNIQUE INDEX memory_segment_place ON memory_segment (memory_run, iteration, segment, part);
CREATE INDEX memory_segment_digest ON memory_segment (digest) WHERE superseded IS NULL;
CREATE INDEX memory_segment_superseded ON memory_segment (superseded) WHERE superseded IS NOT NULL;

-- What texts mean to an embedder, if there is one; known, like the index, by the id of a segment or -id of an item.
CREATE TABLE memory_embedding (
    model  TEXT    NOT NULL,
    id     INTEGER NOT NULL,
    signs  BLOB    NOT NULL,                                -- one bit per dimension: near enough to choose by
    vector BLOB    NOT NULL,                                -- of unit length, in 16-bit floats: to compare
    PRIMARY KEY (model, id)
);

-- That something was forgotten, and of what: a digest tells whether a text was it, but never the text.
CREATE TABLE memory_tombstone (
    id     INTEGER NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL,
    kind   TEXT    NOT NULL,
    run_id TEXT,
    digest TEXT    NOT NULL
);

-- Keeps no text of its own, so a row is taken out by handing in exactly the words it was put in with.
CREATE VIRTUAL TABLE memory_fts USING fts5 (
    body, earlier, later, who, date,
    content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);

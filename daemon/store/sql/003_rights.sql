-- Rights: what a person was asked, what was kept from the models, and a record of all calls that nobody can change
-- without its being noticed.

ALTER TABLE run ADD COLUMN taint TEXT NOT NULL DEFAULT '';     -- '', 'tainted' or 'high', as models.Taint has it
ALTER TABLE run ADD COLUMN sandbox TEXT NOT NULL DEFAULT '';   -- the level its tools ran in

-- A call that waits, or waited, for a person's word. A call has more than one where the first became void.
CREATE TABLE approval (
    id      TEXT    NOT NULL PRIMARY KEY,
    run_id  TEXT    NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    routine TEXT    NOT NULL,
    call_id TEXT    NOT NULL,
    tool    TEXT    NOT NULL,
    request BLOB    NOT NULL,                    -- JSON, kept as that of a step: exactly what would happen
    digest  TEXT    NOT NULL,                    -- SHA-256 of it
    rule    TEXT    NOT NULL,
    reason  TEXT    NOT NULL DEFAULT '',
    taint   TEXT    NOT NULL DEFAULT '',
    status  TEXT    NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    decided INTEGER,
    actor   TEXT    NOT NULL DEFAULT ''          -- who answered
);
CREATE INDEX approval_run ON approval (run_id, call_id);
CREATE INDEX approval_status ON approval (status, expires);

-- What the injection check kept from the models, for a person to read.
CREATE TABLE quarantine (
    id      TEXT    NOT NULL PRIMARY KEY,
    run_id  TEXT    NOT NULL,
    routine TEXT    NOT NULL,
    call_id TEXT    NOT NULL,
    tool    TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    body    BLOB    NOT NULL                     -- JSON, kept as that of a step
);
CREATE INDEX quarantine_run ON quarantine (run_id);

-- Every call, its verdict and its end, and every act of a person on them. Each row's hash covers the one before, so
-- none can be changed, taken out or put in without all behind it telling. Not a reference to `run`: it outlives it.
CREATE TABLE audit (
    seq     INTEGER NOT NULL PRIMARY KEY,
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    run_id  TEXT    NOT NULL DEFAULT '',
    routine TEXT    NOT NULL DEFAULT '',
    call_id TEXT    NOT NULL DEFAULT '',
    tool    TEXT    NOT NULL DEFAULT '',
    actor   TEXT    NOT NULL DEFAULT '',
    body    TEXT    NOT NULL,                    -- JSON; of what was said and done a digest: the journal has the words
    hash    TEXT    NOT NULL                     -- SHA-256 over the hash of the row before and all columns above
);
CREATE INDEX audit_run ON audit (run_id);

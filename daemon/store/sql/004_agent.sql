-- What people told runs that were under way. A run takes it in at its next iteration, and its steps say that it did.
CREATE TABLE told (
    id     INTEGER NOT NULL PRIMARY KEY,
    run_id TEXT    NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    event  TEXT    NOT NULL,                    -- the teller's own id: what is told twice is heard once
    text   TEXT    NOT NULL,
    at     INTEGER NOT NULL
);
CREATE UNIQUE INDEX told_event ON told (run_id, event);

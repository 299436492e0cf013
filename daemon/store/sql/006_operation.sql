-- What is wrong, said once: one row from its first failure to the success that ends it.
CREATE TABLE incident (
    id        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,    -- never used again: a person acknowledges it by this number
    subject   TEXT    NOT NULL,                  -- "routine daily-report", "target mail"
    signature TEXT    NOT NULL,                  -- the error without what differs from time to time
    detail    TEXT    NOT NULL,                  -- the error as it was last
    opened    INTEGER NOT NULL,
    seen      INTEGER NOT NULL,                  -- the last time it happened
    count     INTEGER NOT NULL DEFAULT 1,
    told      INTEGER,                           -- the last alert or reminder
    targets   TEXT    NOT NULL DEFAULT '[]',     -- who was told, and is to hear of the recovery
    acked     INTEGER,                           -- a person knows: no more reminders
    closed    INTEGER,
    run_id    TEXT    REFERENCES run (id) ON DELETE SET NULL
);
CREATE UNIQUE INDEX incident_open ON incident (subject, signature) WHERE closed IS NULL;
CREATE INDEX incident_closed ON incident (closed, seen);

-- A notice has no run: what delivers reports tells of broken targets, and brings the digest.
CREATE TABLE outbox_new (
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,     -- never used again: receivers know a delivery by it
    run_id   TEXT    REFERENCES run (id) ON DELETE CASCADE,
    target   TEXT    NOT NULL,
    options  TEXT    NOT NULL,
    zone     TEXT    NOT NULL,
    status   TEXT    NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    created  INTEGER NOT NULL,
    next_at  INTEGER,
    receipt  TEXT,
    error    TEXT
);
INSERT INTO outbox_new SELECT id, run_id, target, options, zone, status, attempts, created, next_at, receipt, error
FROM outbox;
-- also the numbers of rows that are gone are never used again
INSERT INTO sqlite_sequence (name, seq)
SELECT 'outbox_new', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'outbox_new');
UPDATE sqlite_sequence SET seq = max(seq, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox'), 0))
WHERE name = 'outbox_new';
DROP TABLE outbox;
ALTER TABLE outbox_new RENAME TO outbox;
CREATE INDEX outbox_due ON outbox (status, next_at);
CREATE INDEX outbox_run ON outbox (run_id);

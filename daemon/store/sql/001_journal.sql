-- The journal. Every moment is an INTEGER: microseconds since 1970 in UTC. It compares and indexes as a number,
-- is exact where a REAL is not, and costs a tenth of what parsing ISO text does; `datetime(at / 1e6, 'unixepoch')` reads it.

-- Small facts by name, for whoever needs to remember one over a restart.
CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

-- What a run was told to do, kept once however many runs share it.
CREATE TABLE definition (
    hash TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
);

-- What we keep of a routine that its file does not say. No slot at or before the baseline is ever due.
CREATE TABLE routine (
    name         TEXT    NOT NULL PRIMARY KEY,
    schedule_key TEXT    NOT NULL,
    baseline     INTEGER NOT NULL,
    paused       INTEGER NOT NULL DEFAULT 0,
    paused_until INTEGER,                        -- then it goes on by itself
    paused_why   TEXT,                           -- set where it was us who paused it, not a person
    forgiven     INTEGER                         -- failures up to then count no more
);

CREATE TABLE run (
    id          TEXT    NOT NULL PRIMARY KEY,
    routine     TEXT    NOT NULL,
    definition  TEXT    NOT NULL REFERENCES definition (hash),
    "trigger"   TEXT    NOT NULL,
    slot        INTEGER NOT NULL,
    event       TEXT,
    status      TEXT    NOT NULL,
    attempt     INTEGER NOT NULL DEFAULT 0,
    barren      INTEGER NOT NULL DEFAULT 0,
    fence       INTEGER NOT NULL DEFAULT 0,      -- moves whenever the run changes hands; every write of a run names it
    owner       TEXT,
    lease_until INTEGER,
    created     INTEGER NOT NULL,
    started     INTEGER,
    ended       INTEGER,
    not_before  INTEGER,
    active      REAL    NOT NULL DEFAULT 0,
    cancel      INTEGER NOT NULL DEFAULT 0,
    goal        TEXT    NOT NULL DEFAULT '',
    report      TEXT,
    silent      INTEGER NOT NULL DEFAULT 0,
    detail      TEXT,
    provider    TEXT    NOT NULL DEFAULT '',
    model       TEXT    NOT NULL DEFAULT '',
    input       INTEGER NOT NULL DEFAULT 0,      -- tokens, as models.Usage counts them
    cache_read  INTEGER NOT NULL DEFAULT 0,
    cache_write INTEGER NOT NULL DEFAULT 0,
    output      INTEGER NOT NULL DEFAULT 0,
    reasoning   INTEGER NOT NULL DEFAULT 0,
    iterations  INTEGER NOT NULL DEFAULT 0,
    steps       INTEGER NOT NULL DEFAULT 0       -- how many there are, and so the seq of the next one
);
CREATE INDEX run_routine ON run (routine, id);
CREATE INDEX run_created ON run (routine, created);
CREATE INDEX run_status ON run (status, id);
CREATE INDEX run_ended ON run (routine, ended);

-- A slot that was started has a run. Slots without one that follow each other for the same reason share a row.
CREATE TABLE slot (
    id       INTEGER NOT NULL PRIMARY KEY,
    routine  TEXT    NOT NULL,
    first    INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    count    INTEGER NOT NULL DEFAULT 1,
    event    TEXT,
    outcome  TEXT    NOT NULL,
    reason   TEXT,
    run_id   TEXT    REFERENCES run (id) ON DELETE SET NULL,
    lateness REAL    NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX slot_scheduled ON slot (routine, first) WHERE event IS NULL;
CREATE UNIQUE INDEX slot_event ON slot (routine, event) WHERE event IS NOT NULL;
CREATE INDEX slot_routine ON slot (routine, last);
CREATE INDEX slot_last ON slot (last);
CREATE INDEX slot_run ON slot (run_id);

-- What an event brought along for its run: the paths of files, the body of a webhook, the run before.
CREATE TABLE input (
    run_id TEXT NOT NULL PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
    body   BLOB NOT NULL                         -- JSON, kept as that of a step
);

-- Every version of a watched file that a run of the routine was given.
CREATE TABLE seen (
    routine TEXT    NOT NULL,
    path    TEXT    NOT NULL,
    version TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (routine, path, version)
);

CREATE TABLE step (
    run_id    TEXT    NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    seq       INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    iteration INTEGER NOT NULL,
    call_id   TEXT,
    fence     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    body      BLOB    NOT NULL,                  -- JSON in UTF-8, or the same deflated: then it begins with 'x', not '{'
    PRIMARY KEY (run_id, seq)
);

CREATE TABLE outbox (
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,     -- never used again: receivers know a delivery by it
    run_id   TEXT    NOT NULL REFERENCES run (id) ON DELETE CASCADE,
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
CREATE INDEX outbox_due ON outbox (status, next_at);
CREATE INDEX outbox_run ON outbox (run_id);

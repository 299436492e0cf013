-- Who lives runs from this database: each daemon and worker writes its row at each beat of its heart, by the clock that
-- leases are measured with. `leads` is until when it does what only one of them is to do.
CREATE TABLE worker (
    id       TEXT    NOT NULL PRIMARY KEY,              -- the owner of leases
    kind     TEXT    NOT NULL,                          -- daemon or worker
    host     TEXT    NOT NULL,
    pid      INTEGER NOT NULL,
    version  TEXT    NOT NULL,
    started  INTEGER NOT NULL,
    seen     INTEGER NOT NULL,
    running  INTEGER NOT NULL DEFAULT 0,
    capacity INTEGER NOT NULL DEFAULT 0,
    leads    INTEGER NOT NULL DEFAULT 0
);

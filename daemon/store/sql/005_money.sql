-- Every call to a model, and what it used. Amounts are billionths of a US dollar; NULL where nobody knows the price.
CREATE TABLE spending (
    id          INTEGER NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL,                -- when it was asked
    run_id      TEXT    NOT NULL,                -- no reference: what was paid stays when a run is forgotten
    routine     TEXT    NOT NULL,
    provider    TEXT    NOT NULL,
    model       TEXT    NOT NULL,
    outcome     TEXT    NOT NULL,                -- asked, answered, failed (nothing to pay) or unknown (it broke off)
    input       INTEGER NOT NULL DEFAULT 0,      -- tokens, as models.Usage counts them
    cache_read  INTEGER NOT NULL DEFAULT 0,
    cache_write INTEGER NOT NULL DEFAULT 0,
    output      INTEGER NOT NULL DEFAULT 0,
    reasoning   INTEGER NOT NULL DEFAULT 0,
    cost        INTEGER                          -- while asked or unknown: the most it can come to
);
CREATE INDEX spending_at ON spending (at);
CREATE INDEX spending_run ON spending (run_id);

-- Made from tables.py and memory_tables.py by `python -m daemon.store.schema`.
CREATE TABLE audit (
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    run_id TEXT DEFAULT '' NOT NULL,
    routine TEXT DEFAULT '' NOT NULL,
    call_id TEXT DEFAULT '' NOT NULL,
    tool TEXT DEFAULT '' NOT NULL,
    actor TEXT DEFAULT '' NOT NULL,
    body TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (seq)
);
CREATE INDEX audit_run ON audit (run_id);
CREATE TABLE definition (
    hash TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (hash)
);
CREATE TABLE memory_embedding (
    model TEXT NOT NULL,
    id INTEGER NOT NULL,
    signs BLOB NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (model, id)
);
CREATE TABLE memory_item (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    "key" TEXT NOT NULL,
    category TEXT NOT NULL,
    run_id TEXT,
    tainted INTEGER DEFAULT 0 NOT NULL,
    pinned INTEGER DEFAULT 0 NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    text TEXT NOT NULL,
    "indexed" INTEGER DEFAULT 1 NOT NULL,
    UNIQUE ("key")
);
CREATE INDEX memory_item_category ON memory_item (category, updated);
CREATE TABLE memory_run (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    routine TEXT NOT NULL,
    goal TEXT NOT NULL,
    status TEXT NOT NULL,
    started INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    UNIQUE (run_id)
);
CREATE INDEX memory_run_ended ON memory_run (ended);
CREATE TABLE memory_template (
    digest INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    bounds TEXT NOT NULL,
    PRIMARY KEY (digest)
);
CREATE TABLE memory_tombstone (
    id INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    run_id TEXT,
    digest TEXT NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE meta (
    "key" TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE TABLE novelty (
    routine TEXT NOT NULL,
    digest TEXT NOT NULL,
    "key" TEXT NOT NULL,
    title TEXT DEFAULT '' NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    times INTEGER DEFAULT 1 NOT NULL,
    run_id TEXT NOT NULL,
    PRIMARY KEY (routine, digest)
);
CREATE INDEX novelty_last ON novelty (routine, last);
CREATE INDEX novelty_run ON novelty (run_id);
CREATE TABLE policy (
    hash TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (hash)
);
CREATE TABLE quarantine (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    routine TEXT NOT NULL,
    call_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX quarantine_run ON quarantine (run_id);
CREATE TABLE routine (
    name TEXT NOT NULL,
    schedule_key TEXT NOT NULL,
    baseline INTEGER NOT NULL,
    paused INTEGER DEFAULT 0 NOT NULL,
    paused_until INTEGER,
    paused_why TEXT,
    forgiven INTEGER,
    paused_since INTEGER,
    PRIMARY KEY (name)
);
CREATE TABLE seen (
    routine TEXT NOT NULL,
    path TEXT NOT NULL,
    version TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (routine, path, version)
);
CREATE TABLE spending (
    id INTEGER NOT NULL,
    at INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    routine TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    outcome TEXT NOT NULL,
    input INTEGER DEFAULT 0 NOT NULL,
    cache_read INTEGER DEFAULT 0 NOT NULL,
    cache_write INTEGER DEFAULT 0 NOT NULL,
    output INTEGER DEFAULT 0 NOT NULL,
    reasoning INTEGER DEFAULT 0 NOT NULL,
    cost INTEGER,
    PRIMARY KEY (id)
);
CREATE INDEX spending_at ON spending (at);
CREATE INDEX spending_run ON spending (run_id);
CREATE TABLE text (
    digest BLOB NOT NULL,
    used INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (digest)
);
CREATE TABLE worker (
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    started INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    running INTEGER DEFAULT 0 NOT NULL,
    capacity INTEGER DEFAULT 0 NOT NULL,
    leads INTEGER DEFAULT 0 NOT NULL,
    has TEXT DEFAULT '{}' NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE memory_segment (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    memory_run INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    part INTEGER DEFAULT 0 NOT NULL,
    type TEXT NOT NULL,
    at INTEGER NOT NULL,
    who TEXT DEFAULT '' NOT NULL,
    asks INTEGER DEFAULT 0 NOT NULL,
    tainted INTEGER DEFAULT 0 NOT NULL,
    digest INTEGER NOT NULL,
    superseded INTEGER,
    text TEXT NOT NULL,
    FOREIGN KEY(memory_run) REFERENCES memory_run (id) ON DELETE CASCADE,
    FOREIGN KEY(superseded) REFERENCES memory_segment (id) ON DELETE SET NULL
);
CREATE INDEX memory_segment_digest ON memory_segment (digest) WHERE superseded IS NULL;
CREATE UNIQUE INDEX memory_segment_place ON memory_segment (memory_run, iteration, segment, part);
CREATE INDEX memory_segment_superseded ON memory_segment (superseded) WHERE superseded IS NOT NULL;
CREATE TABLE run (
    id TEXT NOT NULL,
    routine TEXT NOT NULL,
    definition TEXT NOT NULL,
    "trigger" TEXT NOT NULL,
    slot INTEGER NOT NULL,
    event TEXT,
    status TEXT NOT NULL,
    attempt INTEGER DEFAULT 0 NOT NULL,
    barren INTEGER DEFAULT 0 NOT NULL,
    fence INTEGER DEFAULT 0 NOT NULL,
    owner TEXT,
    lease_until INTEGER,
    created INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    not_before INTEGER,
    active REAL DEFAULT 0 NOT NULL,
    cancel INTEGER DEFAULT 0 NOT NULL,
    goal TEXT DEFAULT '' NOT NULL,
    report TEXT,
    silent INTEGER DEFAULT 0 NOT NULL,
    detail TEXT,
    provider TEXT DEFAULT '' NOT NULL,
    model TEXT DEFAULT '' NOT NULL,
    input INTEGER DEFAULT 0 NOT NULL,
    cache_read INTEGER DEFAULT 0 NOT NULL,
    cache_write INTEGER DEFAULT 0 NOT NULL,
    output INTEGER DEFAULT 0 NOT NULL,
    reasoning INTEGER DEFAULT 0 NOT NULL,
    iterations INTEGER DEFAULT 0 NOT NULL,
    steps INTEGER DEFAULT 0 NOT NULL,
    taint TEXT DEFAULT '' NOT NULL,
    sandbox TEXT DEFAULT '' NOT NULL,
    seal INTEGER DEFAULT 0,
    waits_since INTEGER,
    waits_moved INTEGER DEFAULT 0 NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(definition) REFERENCES definition (hash)
);
CREATE INDEX run_ended ON run (routine, ended) WHERE ended IS NOT NULL;
CREATE INDEX run_routine ON run (routine, id);
CREATE INDEX run_status ON run (status, id);
CREATE TABLE approval (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    routine TEXT NOT NULL,
    call_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    request BLOB NOT NULL,
    digest TEXT NOT NULL,
    rule TEXT NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    taint TEXT DEFAULT '' NOT NULL,
    status TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    decided INTEGER,
    actor TEXT DEFAULT '' NOT NULL,
    remind_at INTEGER,
    PRIMARY KEY (id),
    FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE INDEX approval_run ON approval (run_id, call_id);
CREATE INDEX approval_status ON approval (status, expires);
CREATE TABLE incident (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    subject TEXT NOT NULL,
    signature TEXT NOT NULL,
    detail TEXT NOT NULL,
    opened INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    count INTEGER DEFAULT 1 NOT NULL,
    told INTEGER,
    targets TEXT DEFAULT '[]' NOT NULL,
    acked INTEGER,
    closed INTEGER,
    run_id TEXT,
    FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE SET NULL
);
CREATE INDEX incident_closed ON incident (closed, seen);
CREATE UNIQUE INDEX incident_open ON incident (subject, signature) WHERE closed IS NULL;
CREATE TABLE input (
    run_id TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run_id),
    FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE TABLE outbox (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    run_id TEXT,
    target TEXT NOT NULL,
    options TEXT NOT NULL,
    zone TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER DEFAULT 0 NOT NULL,
    created INTEGER NOT NULL,
    next_at INTEGER,
    receipt TEXT,
    error TEXT,
    waits_since INTEGER,
    kind TEXT,
    FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE INDEX outbox_due ON outbox (status, next_at);
CREATE INDEX outbox_run ON outbox (run_id);
CREATE TABLE slot (
    id INTEGER NOT NULL,
    routine TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    count INTEGER DEFAULT 1 NOT NULL,
    event TEXT,
    outcome TEXT NOT NULL,
    reason TEXT,
    run_id TEXT,
    lateness REAL DEFAULT 0 NOT NULL,
    rule TEXT,
    ahead INTEGER DEFAULT 0 NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE SET NULL
);
CREATE UNIQUE INDEX slot_event ON slot (routine, event) WHERE event IS NOT NULL;
CREATE INDEX slot_last ON slot (last);
CREATE INDEX slot_routine ON slot (routine, last);
CREATE INDEX slot_run ON slot (run_id);
CREATE UNIQUE INDEX slot_scheduled ON slot (routine, first) WHERE event IS NULL;
CREATE TABLE step (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    call_id TEXT,
    fence INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run_id, seq),
    FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE TABLE told (
    id INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    event TEXT NOT NULL,
    text TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX told_event ON told (run_id, event);
CREATE TABLE chat_message (
    chat TEXT NOT NULL,
    conversation TEXT NOT NULL,
    message TEXT NOT NULL,
    run_id TEXT,
    delivery_id INTEGER,
    part INTEGER DEFAULT 0 NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (chat, conversation, message),
    FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE,
    FOREIGN KEY(delivery_id) REFERENCES outbox (id) ON DELETE CASCADE
);
CREATE INDEX chat_message_delivery ON chat_message (delivery_id);
CREATE INDEX chat_message_run ON chat_message (run_id);

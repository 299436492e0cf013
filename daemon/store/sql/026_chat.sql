-- The messages of ours that a chat has taken, by which an answer to one finds its run.
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

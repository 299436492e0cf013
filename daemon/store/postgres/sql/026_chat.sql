-- The same as ../../sql/026_chat.sql, which has the comments.
CREATE TABLE chat_message (
    chat TEXT COLLATE "C" NOT NULL,
    conversation TEXT COLLATE "C" NOT NULL,
    message TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C",
    delivery_id BIGINT,
    part BIGINT DEFAULT 0 NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (chat, conversation, message),
    FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE,
    FOREIGN KEY(delivery_id) REFERENCES outbox (id) ON DELETE CASCADE
);
CREATE INDEX chat_message_delivery ON chat_message (delivery_id);
CREATE INDEX chat_message_run ON chat_message (run_id);

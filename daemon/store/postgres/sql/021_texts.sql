-- The same as ../../sql/021_texts.sql, which has the comments.
CREATE TABLE text (
    digest BYTEA    NOT NULL PRIMARY KEY,
    used   BIGINT NOT NULL,
    body   BYTEA    NOT NULL
);

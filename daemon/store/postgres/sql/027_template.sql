-- The same as ../../sql/027_template.sql, which has the comments.
CREATE TABLE memory_template (
    digest  BIGINT NOT NULL,
    segment BIGINT NOT NULL,
    bounds  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (digest)
);

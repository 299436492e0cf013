-- Wordings of reports of which one text a day stands for those with other numbers, and the least and greatest number at
-- each place.
CREATE TABLE memory_template (
    digest  INTEGER NOT NULL,       -- of routine, goal, type and words
    segment INTEGER NOT NULL,       -- the text that stands for its day; it may be gone
    bounds  TEXT    NOT NULL,       -- JSON: [[least, greatest], ...]
    PRIMARY KEY (digest)
);

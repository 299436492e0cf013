-- What prompts have in common, once: the bodies of `prompt` steps that begin with 't' name such texts by their digests.
CREATE TABLE text (
    digest BLOB    NOT NULL PRIMARY KEY,         -- BLAKE2b of the text, 16 bytes
    used   INTEGER NOT NULL,                     -- a day, in days since 1970: no run made on a later one refers to it
    body   BLOB    NOT NULL                      -- deflated
);

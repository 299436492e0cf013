-- The texts of policies that were in force, each once: calls name the one that judged them by its hash.
CREATE TABLE policy (
    hash TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
);

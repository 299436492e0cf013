-- The full-text index over segments and items of the memory, known by the id of a segment or -id of an item. It keeps no
-- text of its own, so a row is taken out by handing in exactly the words it was put in with.
CREATE VIRTUAL TABLE memory_fts USING fts5 (
    body, earlier, later, who, date,
    content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);

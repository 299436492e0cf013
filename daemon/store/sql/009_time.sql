-- The key and its value that let a slot pass (`idle = "4h"`), as they were then: files are edited.
ALTER TABLE slot ADD COLUMN rule TEXT;

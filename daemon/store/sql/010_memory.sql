-- The line that stands for an archived run is not in the index as long as the run's own texts are: they say the same.
ALTER TABLE memory_item ADD COLUMN indexed INTEGER NOT NULL DEFAULT 1;

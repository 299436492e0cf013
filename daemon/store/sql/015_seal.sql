-- The sum of the checksums of a run's steps: a byte that is changed in one of them later is noticed when it is replayed.
-- NULL, or 0, where it is not known: of runs that were written down before, and of those something was forgotten of.
ALTER TABLE run ADD COLUMN seal INTEGER DEFAULT 0;
UPDATE run SET seal = NULL;

-- Set for a run whose slot lay ahead when the clock was put back: of the slots before it, it says nothing any more.
ALTER TABLE slot ADD COLUMN ahead INTEGER NOT NULL DEFAULT 0;

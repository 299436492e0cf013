-- When the wait for `not_before`, `next_at` and `paused_until` began. Later than now means: the clock was ahead then.
ALTER TABLE run ADD COLUMN waits_since INTEGER;
ALTER TABLE outbox ADD COLUMN waits_since INTEGER;
ALTER TABLE routine ADD COLUMN paused_since INTEGER; -- only of a pause of so many hours, not of one until a date

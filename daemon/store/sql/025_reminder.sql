-- When people are reminded of a pending approval. NULL: they were, or an older version asked.
ALTER TABLE approval ADD COLUMN remind_at INTEGER;
UPDATE approval SET remind_at = expires - (expires - created) / 4 WHERE status = 'pending';

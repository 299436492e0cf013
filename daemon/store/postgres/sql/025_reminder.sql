-- The same as ../../sql/025_reminder.sql, which has the comments.
ALTER TABLE approval ADD COLUMN remind_at BIGINT;
UPDATE approval SET remind_at = expires - (expires - created) / 4 WHERE status = 'pending';

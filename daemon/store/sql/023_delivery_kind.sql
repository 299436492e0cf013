-- 'report', or which message of our own it is, like 'approval.asked'. NULL: an older version wrote it, see incidents.py.
ALTER TABLE outbox ADD COLUMN kind TEXT;

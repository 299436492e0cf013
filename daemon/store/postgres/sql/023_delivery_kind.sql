-- The same as ../../sql/023_delivery_kind.sql, which has the comments.
ALTER TABLE outbox ADD COLUMN kind TEXT COLLATE "C";

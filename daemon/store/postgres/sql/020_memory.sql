-- The same as ../../sql/020_memory.sql, which has the comments.
DROP INDEX memory_run_routine;

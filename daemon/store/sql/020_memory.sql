-- Only `forget ROUTINE` asks for it, and reads what it finds anyhow; each run that is archived pays for it.
DROP INDEX memory_run_routine;

-- Jobs whose worker has died are deleted. Their runs get new jobs below, as do runs that never had one.
DELETE FROM procrastinate_jobs WHERE status = 'doing' AND worker_id IS NULL;
DELETE FROM procrastinate_jobs WHERE task_name = 'agentd.live' AND status IN ('failed', 'cancelled', 'aborted');
-- A job is due no later than its run may start: that instant is moved when the clock was set.
UPDATE procrastinate_jobs AS job SET scheduled_at = to_timestamp(coalesce(run.not_before, %(now)s) / 1000000.0) FROM run
WHERE run.id = job.args ->> 'run' AND job.task_name = 'agentd.live' AND job.status = 'todo' AND run.status = 'queued'
    AND job.scheduled_at > to_timestamp(coalesce(run.not_before, %(now)s) / 1000000.0);
SELECT agentd_hand_on(run.id) FROM run
WHERE status = 'queued' AND trigger <> 'subagent' AND created < %(before)s AND coalesce(not_before, 0) < %(before)s
    AND NOT EXISTS (
        SELECT 1 FROM procrastinate_jobs AS job WHERE args ->> 'run' = run.id AND (job.status = 'todo' OR (
            -- fetched by a worker that executes it when it has a free place, unless that worker died before
            job.status = 'doing' AND EXISTS (
                SELECT 1 FROM procrastinate_workers AS worker
                WHERE worker.id = worker_id AND last_heartbeat > now() - interval '%(stale)s seconds'
                    -- a heartbeat in the future is from when the clock was ahead; a live worker soon sends another
                    AND last_heartbeat < now() + interval '%(stale)s seconds'
            )
        ))
    )
    AND NOT EXISTS (
        SELECT 1 FROM run AS other WHERE other.routine = run.routine AND other.status IN ('running', 'waiting')
    )

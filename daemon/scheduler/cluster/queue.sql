-- By these triggers the database itself puts a queued run into procrastinate's queue, in the transaction that queued it,
-- and notifies all processes of what has changed.
-- agentd_hand_on puts a run into that queue. It keeps the name that databases have it by, as processes of an older
-- version, which call it in repair.sql, may share the database.
CREATE OR REPLACE FUNCTION agentd_hand_on(wanted TEXT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM procrastinate_defer_jobs_v1(ARRAY[ROW(
        CASE WHEN coalesce(jsonb_array_length(machines), 0) = 0 THEN 'any' ELSE 'on ' || md5(machines::text) END,
        'agentd.live', 0, NULL, NULL, jsonb_build_object('run', id), due
    )::procrastinate_job_to_defer_v1])
    FROM (
        SELECT run.id, CASE jsonb_typeof(body::jsonb -> 'trigger') -- several triggers have the same machines
            WHEN 'array' THEN body::jsonb -> 'trigger' -> 0 ELSE body::jsonb -> 'trigger' END -> 'machines' AS machines,
            CASE WHEN not_before IS NOT NULL THEN to_timestamp(not_before / 1000000.0) END AS due
        FROM run JOIN definition ON definition.hash = run.definition
        WHERE run.id = wanted AND run.status = 'queued' AND run.trigger <> 'subagent'
    ) AS queued;
END $$;

CREATE OR REPLACE FUNCTION agentd_run_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status = 'queued' AND (TG_OP = 'INSERT' OR OLD.status <> 'queued') THEN
        PERFORM agentd_hand_on(NEW.id);
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.status IN ('running', 'waiting') AND NEW.status NOT IN ('running', 'waiting') THEN
        PERFORM agentd_hand_on(next.id) FROM (
            SELECT id FROM run WHERE routine = NEW.routine AND status = 'queued' AND id <> NEW.id ORDER BY id LIMIT 1
        ) AS next;
    END IF;
    PERFORM pg_notify('agentd', json_build_object('run', NEW.id, 'status', NEW.status, 'cancel', NEW.cancel)::text);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION agentd_run_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('agentd', json_build_object('run', NEW.run_id, 'told', 1)::text);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION agentd_routine_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('agentd', json_build_object('routine', NEW.name)::text);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION agentd_call_paid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('agentd', '{"paid": 1}');
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION agentd_remembered() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('agentd', '{"remembered": 1}');
    RETURN NULL;
END $$;

DROP TRIGGER IF EXISTS agentd_remembered ON meta;
DROP TRIGGER IF EXISTS agentd_call_paid ON spending;
DROP TRIGGER IF EXISTS agentd_routine_moved ON routine;
DROP TRIGGER IF EXISTS agentd_run_moved ON run;
DROP TRIGGER IF EXISTS agentd_run_opened ON run;
DROP TRIGGER IF EXISTS agentd_run_told ON told;
CREATE TRIGGER agentd_run_opened AFTER INSERT ON run FOR EACH ROW EXECUTE FUNCTION agentd_run_moved();
CREATE TRIGGER agentd_run_moved AFTER UPDATE ON run FOR EACH ROW
    WHEN (OLD.status <> NEW.status OR OLD.steps <> NEW.steps OR OLD.cancel <> NEW.cancel)
    EXECUTE FUNCTION agentd_run_moved();
CREATE TRIGGER agentd_run_told AFTER INSERT ON told FOR EACH ROW EXECUTE FUNCTION agentd_run_told();
CREATE TRIGGER agentd_remembered AFTER INSERT OR UPDATE ON meta FOR EACH ROW
    WHEN (NEW.key = 'approvals.remembered') EXECUTE FUNCTION agentd_remembered();
-- only calls that a cap let wait are written down before they are made
CREATE TRIGGER agentd_call_paid AFTER UPDATE ON spending FOR EACH ROW
    WHEN (OLD.outcome = 'asked' AND NEW.outcome <> 'asked') EXECUTE FUNCTION agentd_call_paid();
CREATE TRIGGER agentd_routine_moved AFTER UPDATE ON routine FOR EACH ROW
    WHEN (OLD.paused <> NEW.paused OR OLD.paused_until IS DISTINCT FROM NEW.paused_until)
    EXECUTE FUNCTION agentd_routine_moved();

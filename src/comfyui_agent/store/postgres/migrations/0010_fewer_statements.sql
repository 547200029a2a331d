-- What every job goes through, with less work.

-- For a query that has to find a row.
CREATE FUNCTION e3_nothing() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'nothing was found' USING ERRCODE = 'E3001';
END $$;

CREATE OR REPLACE FUNCTION e3_count_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    SELECT count(*) AS jobs, count(*) FILTER (WHERE status = 'pending') AS pending, count(batch_id) AS in_batches
    INTO found FROM changed;
    IF found.jobs = 0 THEN
        RETURN NULL;
    ELSIF found.pending = found.jobs THEN
        INSERT INTO job_counts VALUES ('pending', found.jobs);
    ELSE
        INSERT INTO job_counts
            SELECT status, count(*) FROM changed GROUP BY status
            UNION ALL SELECT 'attention', count(*) FROM changed AS job WHERE job.status = 'failed'
                AND job.failure_class IS DISTINCT FROM 'cancelled' AND job.dismissed_at IS NULL HAVING count(*) > 0;
        INSERT INTO endings SELECT date_bin('10 seconds', e3_now(), 'epoch'), 'failed', count(*) FROM changed
            WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled'
                AND end_time > e3_now() - interval '1 minute'
            HAVING count(*) > 0;
    END IF;
    IF found.in_batches > 0 THEN
        PERFORM 1 FROM batches WHERE id IN (SELECT batch_id FROM changed WHERE status = 'processing')
            ORDER BY id FOR UPDATE;
        UPDATE batches SET status = 'active', generation = generation + 1, completed_at = NULL, reason = NULL,
            quiet_seconds = 0
        WHERE status IN ('complete', 'cancelled', 'expired')
            AND id IN (SELECT batch_id FROM changed WHERE batch_id IS NOT NULL AND status IN ('pending', 'processing'));
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION e3_attempt_ended() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ended bigint := CASE TG_OP WHEN 'DELETE' THEN OLD.job_id ELSE NEW.job_id END;
    batch text;
    lost timestamptz;
BEGIN
    IF OLD.outcome IS NOT NULL OR TG_OP = 'UPDATE' AND NEW.outcome IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT batch_id, lost_at INTO batch, lost FROM jobs WHERE id = ended;
    IF batch IS NOT NULL THEN
        UPDATE jobs SET hold = NULL WHERE id = (
            SELECT id FROM jobs WHERE status = 'pending' AND hold = 'turn' AND batch_id = batch
            ORDER BY priority NULLS FIRST, id LIMIT 1) AND status = 'pending' AND hold = 'turn';
    END IF;
    IF TG_OP = 'UPDATE' AND lost IS NOT NULL THEN
        UPDATE jobs SET lost_at = NULL WHERE id = ended AND lost_at IS NOT NULL;
    END IF;
    RETURN NULL;
END $$;

DROP TRIGGER e3_ended ON attempts;
CREATE TRIGGER e3_ended AFTER UPDATE OF outcome ON attempts FOR EACH ROW EXECUTE FUNCTION e3_attempt_ended();

-- Conditions are asked within the functions: a `WHEN` of a trigger is read anew for each statement, which takes longer.
CREATE OR REPLACE FUNCTION e3_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('e3.writer', true), '') = '' THEN
        PERFORM nextval('e3_changes');
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER e3_changed ON jobs;
CREATE TRIGGER e3_changed AFTER INSERT OR UPDATE OR DELETE ON jobs FOR EACH STATEMENT EXECUTE FUNCTION e3_note_change();

CREATE OR REPLACE FUNCTION e3_before_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.created_at IS NULL THEN
        NEW.created_at := e3_now();
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF NEW.hold IS NOT NULL AND NEW.status IN ('done', 'failed') THEN
            NEW.hold := NULL;
            NEW.next_attempt_at := NULL;
        END IF;
        IF NEW.dismissed_at IS NOT NULL AND NEW.status <> 'failed' THEN
            NEW.dismissed_at := NULL;
        END IF;
    END IF;
    IF NEW.batch_id IS NOT NULL AND NEW.status = 'pending' THEN
        DECLARE
            batch batches;
        BEGIN
            -- What waits in a paused batch stays so, however it came to wait. Locked: it may be paused at this moment.
            SELECT * INTO batch FROM batches WHERE id = NEW.batch_id FOR UPDATE;
            IF batch.is_paused = 1 THEN
                NEW.hold := 'paused';
            ELSIF TG_OP = 'UPDATE' AND batch.status = 'pending' THEN
                NEW.hold := 'filling';
            END IF;
            IF TG_OP = 'UPDATE' AND OLD.status IN ('done', 'failed') AND batch.kind = 'book' THEN
                NEW.earlier_retries := coalesce(e3_json(NEW.earlier_retries), '[]')
                    || to_jsonb(coalesce(OLD.retries_attempted, 0));
            END IF;
        END;
    END IF;
    RETURN NEW;
END $$;

-- The first result of a generation makes a batch `collecting`, the last one `complete`. The row of the batch is locked first:
-- of two members that land at the same time, the later one sees the other.
CREATE OR REPLACE FUNCTION e3_after_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    has_ended boolean := NEW.status IN ('done', 'failed');
    changes_end boolean := has_ended <> (OLD.status IN ('done', 'failed'));
BEGIN
    IF OLD.status <> NEW.status THEN
        INSERT INTO job_counts VALUES (OLD.status, -1), (NEW.status, 1);
        IF NEW.status = 'done' OR NEW.status = 'failed' AND NEW.failure_class IS DISTINCT FROM 'cancelled' THEN
            INSERT INTO endings VALUES (date_bin('10 seconds', e3_now(), 'epoch'), NEW.status, 1);
            IF random() < 0.002 THEN
                PERFORM e3_fold();
            END IF;
        END IF;
    END IF;
    IF 'failed' IN (OLD.status, NEW.status) AND e3_needs_attention(OLD) <> e3_needs_attention(NEW) THEN
        INSERT INTO job_counts VALUES ('attention', CASE WHEN e3_needs_attention(NEW) THEN 1 ELSE -1 END);
    END IF;
    IF changes_end AND NEW.batch_id IS NOT NULL THEN
        PERFORM 1 FROM batches WHERE id = NEW.batch_id FOR UPDATE;
        IF has_ended THEN
            UPDATE batches SET status = CASE status WHEN 'active' THEN 'collecting' ELSE status END, quiet_seconds = 0
            WHERE id = NEW.batch_id AND (status = 'active' OR quiet_seconds > 0);
            IF EXISTS (SELECT 1 FROM batches WHERE id = NEW.batch_id AND status = 'collecting') THEN
                PERFORM e3_complete_batch(NEW.batch_id);
            END IF;
        ELSE
            UPDATE batches SET status = 'active', generation = generation + 1, completed_at = NULL, reason = NULL,
                quiet_seconds = 0
            WHERE id = NEW.batch_id AND status IN ('complete', 'cancelled', 'expired');
        END IF;
    END IF;
    IF changes_end AND NEW.source = 'gateway' THEN
        UPDATE posted_prompts SET told_at = NULL, hidden_at = NULL, secrets = NULL,
            ended_at = CASE WHEN has_ended THEN e3_now() END
        WHERE job_id = NEW.id;
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER e3_updated ON jobs;
CREATE TRIGGER e3_updated AFTER UPDATE OF status, failure_class, dismissed_at ON jobs FOR EACH ROW
EXECUTE FUNCTION e3_after_job();

DROP TRIGGER e3_posted_ended ON jobs;
CREATE OR REPLACE FUNCTION e3_posted_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM posted_files WHERE job_id = OLD.id;
    DELETE FROM posted_prompts WHERE job_id = OLD.id;
    RETURN NULL;
END $$;

-- What ids of events are shifted by is a constant of this function, so that none of the statements that draw one reads a
-- table. The table event_clock is what agents of earlier versions keep.
DO $$ BEGIN
    EXECUTE format('CREATE FUNCTION e3_event_shift() RETURNS bigint LANGUAGE sql IMMUTABLE AS ''SELECT %s::bigint''',
        (SELECT shift FROM event_clock));
END $$;
CREATE OR REPLACE FUNCTION e3_event_id(transaction xid8) RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT (transaction::text::bigint + e3_event_shift()) << 22 $$;
CREATE OR REPLACE FUNCTION e3_next_event_id() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ((greatest(pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)
        + e3_event_shift()) << 22) + nextval('e3_event_numbers') % 4194304
$$;

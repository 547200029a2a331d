-- Results of jobs that were rendered again, as in SQLite.
ALTER TABLE jobs ADD COLUMN take bigint;
CREATE TABLE takes (
    job_id bigint NOT NULL, number bigint NOT NULL, outputs text NOT NULL, start_time e3_time, end_time e3_time,
    duration double precision, server text COLLATE "C", prompt_id text COLLATE "C", workflow_id text COLLATE "C",
    template_hash text COLLATE "C", inputs text, pictures text, metadata text, needs text COLLATE "C",
    PRIMARY KEY (job_id, number)
);
CREATE INDEX idx_takes_ended ON takes (end_time);

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
        IF OLD.status = 'done' AND NEW.status <> 'done' AND OLD.reserved IS NULL AND coalesce(OLD.outputs, '[]') <> '[]' THEN
            INSERT INTO takes VALUES (OLD.id, coalesce(OLD.take, 1), OLD.outputs, OLD.start_time, OLD.end_time,
                OLD.duration, OLD.server, OLD.prompt_id, OLD.workflow_id, OLD.template_hash, OLD.inputs, OLD.pictures,
                OLD.metadata, OLD.needs) ON CONFLICT DO NOTHING;
            NEW.take := (SELECT max(number) + 1 FROM takes WHERE job_id = OLD.id);
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

CREATE FUNCTION e3_takes_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM takes WHERE job_id = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER e3_takes_removed AFTER DELETE ON jobs FOR EACH ROW WHEN (OLD.take IS NOT NULL)
EXECUTE FUNCTION e3_takes_removed();

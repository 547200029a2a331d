-- Prompts that ComfyUI's clients posted at the gateway, as in SQLite.
CREATE TABLE posted_prompts (
    job_id bigint PRIMARY KEY, prompt_id text COLLATE "C" NOT NULL UNIQUE, client_id text COLLATE "C",
    number double precision NOT NULL, extra_data text NOT NULL, targets text NOT NULL, entry text,
    run_id text COLLATE "C", created_by bigint, ended_at e3_time, told_at e3_time, hidden_at e3_time,
    secrets text
) WITH (fillfactor = 80);
CREATE INDEX idx_posted_open ON posted_prompts (job_id) WHERE ended_at IS NULL;
CREATE INDEX idx_posted_of_client ON posted_prompts (client_id, job_id) WHERE ended_at IS NULL AND client_id IS NOT NULL;
CREATE INDEX idx_posted_ended ON posted_prompts (ended_at, job_id) WHERE ended_at IS NOT NULL AND hidden_at IS NULL;
CREATE INDEX idx_posted_untold ON posted_prompts (client_id, ended_at) WHERE told_at IS NULL AND ended_at IS NOT NULL;
CREATE FUNCTION e3_posted_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM posted_files WHERE job_id = OLD.id;
        DELETE FROM posted_prompts WHERE job_id = OLD.id;
    ELSE
        UPDATE posted_prompts SET told_at = NULL, hidden_at = NULL, secrets = NULL,
            ended_at = CASE WHEN NEW.status IN ('done', 'failed') THEN e3_now() END
        WHERE job_id = NEW.id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER e3_posted_ended AFTER UPDATE OF status ON jobs FOR EACH ROW
WHEN (NEW.source = 'gateway' AND (OLD.status IN ('done', 'failed')) <> (NEW.status IN ('done', 'failed')))
EXECUTE FUNCTION e3_posted_changed();
CREATE TRIGGER e3_posted_removed AFTER DELETE ON jobs FOR EACH ROW WHEN (OLD.source = 'gateway')
EXECUTE FUNCTION e3_posted_changed();

CREATE TABLE posted_files (path text COLLATE "C" PRIMARY KEY, job_id bigint NOT NULL, origin text COLLATE "C" NOT NULL);
CREATE INDEX idx_posted_files_job ON posted_files (job_id, origin);
CREATE TABLE posted_counters (prefix text COLLATE "C" PRIMARY KEY, last bigint NOT NULL);
CREATE TABLE uploads (
    path text COLLATE "C" PRIMARY KEY, kept text NOT NULL, at e3_time NOT NULL DEFAULT e3_now()
);

CREATE OR REPLACE FUNCTION e3_next_event_id() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN -- quicker than SQL, and every event draws one
    RETURN (greatest(pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)
        + (SELECT shift FROM event_clock) << 22) + nextval('e3_event_numbers') % 4194304;
END $$;

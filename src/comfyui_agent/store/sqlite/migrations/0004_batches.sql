-- Groups of jobs as one thing. What follows from the states of the members is kept by triggers: it happens in the
-- transaction that changes the member, whoever makes it, a shell included.
ALTER TABLE batches ADD COLUMN creator TEXT;            -- who is putting jobs into it; NULL: it is whole
ALTER TABLE batches ADD COLUMN reason TEXT;             -- why it was cancelled or has expired
ALTER TABLE batches ADD COLUMN is_paused INTEGER DEFAULT 0;
ALTER TABLE batches ADD COLUMN is_serial INTEGER DEFAULT 0;  -- 1: one member at a server at a time
ALTER TABLE batches ADD COLUMN quiet_seconds REAL DEFAULT 0; -- how long members ran at live servers and none landed
ALTER TABLE batches ADD COLUMN ticked_at TEXT;
ALTER TABLE batches ADD COLUMN wants_grid INTEGER DEFAULT 0;
ALTER TABLE batches ADD COLUMN grid_generation INTEGER DEFAULT 0; -- the completion that the grid stands for
ALTER TABLE batches ADD COLUMN grid_worker TEXT;        -- who is making it
ALTER TABLE batches ADD COLUMN grid_problem TEXT;       -- why there is none
CREATE INDEX idx_batches_created ON batches(created_at);
CREATE INDEX idx_batches_filling ON batches(id) WHERE status = 'pending';
CREATE INDEX idx_batches_grid ON batches(id)
    WHERE wants_grid = 1 AND status = 'complete' AND grid_generation < generation;

ALTER TABLE jobs ADD COLUMN reserved INTEGER;  -- 1: only for whoever works off its batch by name
ALTER TABLE jobs ADD COLUMN written TEXT;      -- what was last written about it to the state file of its burst
ALTER TABLE events ADD COLUMN batch_id TEXT;

-- 'filling': its batch is not whole yet; 'paused': with its batch; 'turn': another member is at a server;
-- 'burst': for a later burst; 'backoff': until next_attempt_at.
DROP INDEX idx_jobs_next;
CREATE INDEX idx_jobs_next ON jobs(priority, id) WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL;
CREATE INDEX idx_jobs_held ON jobs(hold, batch_id, priority, id) WHERE status = 'pending' AND hold IS NOT NULL;
CREATE INDEX idx_jobs_batch_next ON jobs(batch_id, priority, id)
    WHERE status = 'pending' AND hold IS NULL AND batch_id IS NOT NULL;
CREATE INDEX idx_jobs_batch_status ON jobs(batch_id, status) WHERE batch_id IS NOT NULL;

-- The first result of a generation makes it `collecting`, the last one `complete`.
CREATE TRIGGER batch_landed AFTER UPDATE OF status ON jobs
WHEN NEW.batch_id IS NOT NULL AND NEW.status IN ('done', 'failed') AND OLD.status NOT IN ('done', 'failed')
BEGIN
    UPDATE batches SET status = 'collecting' WHERE id = NEW.batch_id AND status = 'active';
    UPDATE batches SET quiet_seconds = 0 WHERE id = NEW.batch_id AND quiet_seconds > 0;
    UPDATE batches SET status = 'complete', completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now'), is_paused = 0
    WHERE id = NEW.batch_id AND status = 'collecting'
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE batch_id = NEW.batch_id AND status = 'pending')
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE batch_id = NEW.batch_id AND status = 'processing');
END;
CREATE TRIGGER batch_lost_member AFTER DELETE ON jobs
WHEN OLD.batch_id IS NOT NULL AND OLD.status IN ('pending', 'processing')
BEGIN
    UPDATE batches SET status = 'complete', completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now'), is_paused = 0
    WHERE id = OLD.batch_id AND status IN ('active', 'collecting')
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE batch_id = OLD.batch_id AND status = 'pending')
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE batch_id = OLD.batch_id AND status = 'processing');
END;
CREATE TRIGGER batch_completed AFTER UPDATE OF status ON batches
WHEN NEW.status = 'complete' AND OLD.status <> 'complete'
BEGIN
    INSERT INTO events (at, event, batch_id)
    VALUES (strftime('%Y-%m-%d %H:%M:%f', 'now'), 'batch.completed', NEW.id);
END;

-- A member that is wanted again opens a new generation.
CREATE TRIGGER batch_reopened AFTER UPDATE OF status ON jobs
WHEN NEW.batch_id IS NOT NULL AND NEW.status IN ('pending', 'processing') AND OLD.status IN ('done', 'failed')
BEGIN
    UPDATE batches SET status = 'active', generation = generation + 1, completed_at = NULL, reason = NULL,
        quiet_seconds = 0
    WHERE id = NEW.batch_id AND status IN ('complete', 'cancelled', 'expired');
END;
CREATE TRIGGER batch_enlarged AFTER INSERT ON jobs
WHEN NEW.batch_id IS NOT NULL AND NEW.status IN ('pending', 'processing')
BEGIN
    UPDATE batches SET status = 'active', generation = generation + 1, completed_at = NULL, reason = NULL,
        quiet_seconds = 0
    WHERE id = NEW.batch_id AND status IN ('complete', 'cancelled', 'expired');
END;

-- What waits in a paused batch stays so, however it came to wait.
CREATE TRIGGER batch_holds AFTER UPDATE OF status ON jobs
WHEN NEW.batch_id IS NOT NULL AND NEW.status = 'pending' AND NEW.hold IS NOT 'paused'
    AND (SELECT is_paused FROM batches WHERE id = NEW.batch_id) = 1
BEGIN
    UPDATE jobs SET hold = 'paused' WHERE id = NEW.id;
END;

CREATE TRIGGER batch_holds_new AFTER INSERT ON jobs
WHEN NEW.batch_id IS NOT NULL AND NEW.status = 'pending' AND NEW.hold IS NOT 'paused'
    AND (SELECT is_paused FROM batches WHERE id = NEW.batch_id) = 1
BEGIN
    UPDATE jobs SET hold = 'paused' WHERE id = NEW.id;
END;
CREATE TRIGGER batch_not_whole AFTER UPDATE OF status ON jobs
WHEN NEW.batch_id IS NOT NULL AND NEW.status = 'pending' AND NEW.hold IS NOT 'filling'
    AND (SELECT status FROM batches WHERE id = NEW.batch_id) = 'pending'
BEGIN
    UPDATE jobs SET hold = 'filling' WHERE id = NEW.id;
END;
CREATE TRIGGER hold_ended AFTER UPDATE OF status ON jobs WHEN NEW.status IN ('done', 'failed') AND NEW.hold IS NOT NULL
BEGIN
    UPDATE jobs SET hold = NULL, next_attempt_at = NULL WHERE id = NEW.id;
END;

-- One at a time: when a prompt is at a server no more, the next member may go.
CREATE TRIGGER turn_passed AFTER UPDATE OF outcome ON attempts
WHEN OLD.outcome IS NULL AND NEW.outcome IS NOT NULL
BEGIN
    UPDATE jobs SET hold = NULL WHERE id = (
        SELECT other.id FROM jobs AS this JOIN jobs AS other ON other.batch_id = this.batch_id
        WHERE this.id = NEW.job_id AND this.batch_id IS NOT NULL AND other.status = 'pending' AND other.hold = 'turn'
        ORDER BY other.priority, other.id LIMIT 1);
END;
CREATE TRIGGER turn_returned AFTER DELETE ON attempts WHEN OLD.outcome IS NULL
BEGIN
    UPDATE jobs SET hold = NULL WHERE id = (
        SELECT other.id FROM jobs AS this JOIN jobs AS other ON other.batch_id = this.batch_id
        WHERE this.id = OLD.job_id AND this.batch_id IS NOT NULL AND other.status = 'pending' AND other.hold = 'turn'
        ORDER BY other.priority, other.id LIMIT 1);
END;

-- A book is a batch, a page one of its jobs: what happens to it is also told in the words of books.
CREATE TRIGGER book_page_told AFTER INSERT ON events
WHEN NEW.event IN ('job.failed', 'job.retry') AND NEW.job_id IS NOT NULL AND EXISTS (
    SELECT 1 FROM jobs JOIN batches ON batches.id = jobs.batch_id WHERE jobs.id = NEW.job_id AND batches.kind = 'book')
BEGIN
    INSERT INTO events (at, event, job_id, prompt_id, server, failure_class, duration_sec, message)
    VALUES (NEW.at, iif(NEW.event = 'job.failed', 'book.page.failed', 'book.page.retry'), NEW.job_id, NEW.prompt_id,
        NEW.server, NEW.failure_class, NEW.duration_sec, NEW.message);
END;

DROP VIEW book_pages;
CREATE VIEW book_pages AS
SELECT
    jobs.batch_id AS book_id,
    jobs.batch_index + 1 AS page,
    CASE jobs.status
        WHEN 'pending' THEN 'Pending'
        WHEN 'processing' THEN 'Rendering'
        WHEN 'done' THEN 'Done'
        ELSE 'Needs attention'
    END AS status,
    coalesce(jobs.retries_attempted, 0) AS retry_count,
    jobs.start_time AS last_attempted_at,
    coalesce(jobs.needs_regeneration, 0) AS needs_regeneration,
    (SELECT json_group_array(json(failed.error)) FROM (
        SELECT error, number, id FROM attempts WHERE job_id = jobs.id AND json_valid(error)
        UNION ALL
        SELECT json_object('kind', jobs.failure_class, 'message', jobs.error_trace), 1e9, 1e9
        WHERE jobs.status = 'failed' AND NOT EXISTS (
            SELECT 1 FROM attempts WHERE job_id = jobs.id AND json_valid(error) AND outcome = jobs.failure_class)
        ORDER BY 2, 3) AS failed
    ) AS image_error,
    json_object(
        'prompt_ids', json((SELECT json_group_array(run.prompt_id) FROM
            (SELECT prompt_id FROM attempts WHERE job_id = jobs.id ORDER BY number, id) AS run)),
        'overrides', json(CASE
            WHEN json_valid(jobs.metadata) AND json_type(jobs.metadata, '$.overrides') = 'object'
                THEN json_extract(jobs.metadata, '$.overrides')
            WHEN json_valid(jobs.inputs) THEN jobs.inputs ELSE '{}' END)
    ) AS job_metadata
FROM jobs JOIN batches ON batches.id = jobs.batch_id
WHERE batches.kind = 'book';

-- Access: tokens expire, can be revoked without being forgotten, and have four roles; logins have sessions of their own.
CREATE TABLE new_tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice: nobody revokes another one than they saw
    name TEXT NOT NULL,
    role TEXT CHECK(role IN ('read','user','admin','metrics')) NOT NULL,
    hash TEXT NOT NULL UNIQUE,             -- SHA-256 of the token, which is kept nowhere
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    is_shared INTEGER NOT NULL DEFAULT 0,  -- 1: may change what other tokens made
    expires_at TEXT,
    last_used_at TEXT,
    revoked_at TEXT
);
INSERT INTO sqlite_sequence (name, seq) SELECT 'new_tokens', seq FROM sqlite_sequence WHERE name = 'tokens';
INSERT INTO new_tokens (id, name, role, hash, created_at) SELECT id, name, role, hash, created_at FROM tokens;
DROP TABLE tokens;
ALTER TABLE new_tokens RENAME TO tokens;
-- `about` has the key `access`, with the value `closed`, from the first token on until `e3 token open`.
INSERT INTO about SELECT 'access', 'closed' WHERE EXISTS (SELECT 1 FROM tokens);

CREATE TABLE sessions (
    hash TEXT PRIMARY KEY,                 -- SHA-256 of what the cookie holds
    token_id INTEGER NOT NULL,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    used_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) WITHOUT ROWID;

-- Owners and the audit trail.
ALTER TABLE jobs ADD COLUMN created_by INTEGER;     -- the token that made it; NULL: a file, the command line, or nobody known
ALTER TABLE batches ADD COLUMN created_by INTEGER;
ALTER TABLE events ADD COLUMN actor TEXT;           -- who asked for it
ALTER TABLE events ADD COLUMN address TEXT;         -- from where
CREATE INDEX idx_jobs_open_by ON jobs(created_by)
    WHERE created_by IS NOT NULL AND status IN ('pending', 'processing');
CREATE INDEX idx_events_audit ON events(id) WHERE event >= 'audit.' AND event < 'audit/';

-- Dismissed jobs need no attention any more. A job needs attention if it failed, was not cancelled and not dismissed.
ALTER TABLE jobs ADD COLUMN dismissed_at TEXT;
CREATE INDEX idx_jobs_attention ON jobs(end_time)
    WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL;
CREATE INDEX idx_jobs_batch_attention ON jobs(batch_id)
    WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL AND batch_id IS NOT NULL;
INSERT INTO job_counts
    SELECT 'attention', count(*) FROM jobs
    WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL;
CREATE TRIGGER attention_counted_in AFTER INSERT ON jobs
WHEN (NEW.status = 'failed' AND NEW.failure_class IS NOT 'cancelled' AND NEW.dismissed_at IS NULL)
BEGIN
    UPDATE job_counts SET jobs = jobs + 1 WHERE status = 'attention';
END;
CREATE TRIGGER attention_counted_out AFTER DELETE ON jobs
WHEN (OLD.status = 'failed' AND OLD.failure_class IS NOT 'cancelled' AND OLD.dismissed_at IS NULL)
BEGIN
    UPDATE job_counts SET jobs = jobs - 1 WHERE status = 'attention';
END;
CREATE TRIGGER attention_counted_over AFTER UPDATE OF status, failure_class, dismissed_at ON jobs
WHEN (OLD.status = 'failed' AND OLD.failure_class IS NOT 'cancelled' AND OLD.dismissed_at IS NULL)
    <> (NEW.status = 'failed' AND NEW.failure_class IS NOT 'cancelled' AND NEW.dismissed_at IS NULL)
BEGIN
    UPDATE job_counts SET jobs = jobs + iif(NEW.status = 'failed' AND NEW.failure_class IS NOT 'cancelled'
        AND NEW.dismissed_at IS NULL, 1, -1) WHERE status = 'attention';
END;
CREATE TRIGGER dismissal_ended AFTER UPDATE OF status ON jobs
WHEN NEW.status <> 'failed' AND NEW.dismissed_at IS NOT NULL
BEGIN
    UPDATE jobs SET dismissed_at = NULL WHERE id = NEW.id;
END;

-- What was really sent: the values that were filled in for the server.
ALTER TABLE attempts ADD COLUMN sent TEXT;          -- JSON: place -> value

-- Sizes.

-- Claimed paths of grids.
-- Which batch a file of a grid belongs to, noted before the file is there.
CREATE TABLE grid_files (
    path TEXT PRIMARY KEY,
    batch_id TEXT NOT NULL,
    output TEXT NOT NULL DEFAULT ''        -- the --output that it was made for; '': in the folder of its batch
) WITHOUT ROWID;
CREATE INDEX idx_grid_files_batch ON grid_files(batch_id);
INSERT OR IGNORE INTO grid_files (path, batch_id)
    SELECT grid, id FROM batches WHERE grid IS NOT NULL
        AND grid NOT IN (SELECT files.path FROM files JOIN jobs ON jobs.id = files.job_id);

-- Servers that are lost or stuck.
-- A job whose server stopped answering is pending again, and its attempt stays open: the server's copy is taken over
-- when it returns, unless another server has taken the job by then. hold = 'server': no other server may take it.
ALTER TABLE jobs ADD COLUMN lost_at TEXT;           -- since when the server that has its prompt does not answer
CREATE INDEX idx_jobs_lost ON jobs(server) WHERE status = 'pending' AND lost_at IS NOT NULL;
CREATE TRIGGER loss_ended AFTER UPDATE OF outcome ON attempts
WHEN OLD.outcome IS NULL AND NEW.outcome IS NOT NULL
BEGIN
    UPDATE jobs SET lost_at = NULL WHERE id = NEW.job_id AND lost_at IS NOT NULL;
END;
-- Prompts that do not end and cannot be interrupted. Their servers get nothing until they are gone.
CREATE TABLE stuck_prompts (
    prompt_id TEXT PRIMARY KEY,
    server TEXT NOT NULL,
    reason TEXT NOT NULL,
    since TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) WITHOUT ROWID;

-- Books. Retries of earlier generations are kept, each failure has its time, and pages can be queued anew in the view.
ALTER TABLE jobs ADD COLUMN earlier_retries TEXT;   -- JSON: retries_attempted of a page, each time it was wanted again
CREATE TRIGGER page_retries_kept AFTER UPDATE OF status ON jobs
WHEN NEW.status = 'pending' AND OLD.status IN ('done', 'failed') AND NEW.batch_id IS NOT NULL
    AND (SELECT kind FROM batches WHERE id = NEW.batch_id) = 'book'
BEGIN
    UPDATE jobs SET earlier_retries = json_insert(
        CASE WHEN json_valid(earlier_retries) THEN earlier_retries ELSE '[]' END,
        '$[#]', coalesce(OLD.retries_attempted, 0))
    WHERE id = NEW.id;
END;

DROP VIEW book_pages;
CREATE VIEW book_pages AS
SELECT
    jobs.batch_id AS book_id,
    jobs.batch_index + 1 AS page,
    CASE
        WHEN jobs.status = 'pending' THEN 'Pending'
        WHEN jobs.status = 'processing' THEN 'Rendering'
        WHEN jobs.status = 'done' THEN 'Done'
        WHEN jobs.failure_class = 'cancelled' THEN 'Cancelled'
        WHEN jobs.dismissed_at IS NOT NULL THEN 'Dismissed'
        ELSE 'Needs attention'
    END AS status,
    coalesce(jobs.retries_attempted, 0) AS retry_count,
    jobs.start_time AS last_attempted_at,
    coalesce(jobs.needs_regeneration, 0) AS needs_regeneration,
    (SELECT json_group_array(json_set(
        CASE WHEN json_type(failed.error) = 'object' THEN failed.error ELSE json_object('message', json(failed.error)) END,
        '$.at', failed.at, '$.attempt', failed.number)) FROM (
        SELECT error, ended_at AS at, number, id FROM attempts WHERE job_id = jobs.id AND json_valid(error)
        UNION ALL
        SELECT json_object('kind', jobs.failure_class, 'message', jobs.error_trace), jobs.end_time,
            coalesce(jobs.run_count, 0), 1e18
        WHERE jobs.status = 'failed' AND NOT EXISTS (
            SELECT 1 FROM attempts WHERE job_id = jobs.id AND json_valid(error) AND outcome = jobs.failure_class)
        ORDER BY 3, 4) AS failed
    ) AS image_error,
    json_object(
        'prompt_ids', json((SELECT json_group_array(run.prompt_id) FROM
            (SELECT prompt_id FROM attempts WHERE job_id = jobs.id ORDER BY number, id) AS run)),
        'overrides', json(CASE
            WHEN json_valid(jobs.metadata) AND json_type(jobs.metadata, '$.overrides') = 'object'
                THEN json_extract(jobs.metadata, '$.overrides')
            WHEN json_valid(jobs.inputs) THEN jobs.inputs ELSE '{}' END),
        'retry_counts', json(CASE WHEN json_valid(jobs.earlier_retries) THEN jobs.earlier_retries ELSE '[]' END)
    ) AS job_metadata
FROM jobs JOIN batches ON batches.id = jobs.batch_id
WHERE batches.kind = 'book';

-- What `e3 book regenerate` does, for whoever has only SQL. A page that waits or renders is left alone.
CREATE TRIGGER book_page_wanted INSTEAD OF UPDATE OF needs_regeneration ON book_pages
BEGIN
    UPDATE jobs SET needs_regeneration = 0
    WHERE batch_id = OLD.book_id AND batch_index IS OLD.page - 1 AND NOT coalesce(NEW.needs_regeneration, 0);
    UPDATE attempts SET outcome = 'cancelled', ended_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
    WHERE outcome IS NULL AND NEW.needs_regeneration AND job_id IN (
        SELECT id FROM jobs
        WHERE batch_id = OLD.book_id AND batch_index IS OLD.page - 1 AND status IN ('done', 'failed'));
    UPDATE jobs SET
        status = 'pending', retries_attempted = 0, strikes = 0, needs_regeneration = 0, hold = NULL,
        next_attempt_at = NULL, avoids = NULL, end_time = NULL, duration = NULL, error_trace = NULL,
        failure_class = 'output', dismissed_at = NULL, fence = coalesce(fence, 0) + 1
    WHERE batch_id = OLD.book_id AND batch_index IS OLD.page - 1 AND status IN ('done', 'failed')
        AND NEW.needs_regeneration;
END;

-- End of 0006.

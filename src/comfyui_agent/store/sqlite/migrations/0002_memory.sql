-- What E3 adds. Every added column may be NULL, so that a row with the documented columns alone is a job like any other.
-- Everything here parses on SQLite 3.37, so that an older shell can read and write beside a running agent.

CREATE TABLE about (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO about VALUES ('identity', lower(hex(randomblob(8))));

ALTER TABLE jobs ADD COLUMN failure_class TEXT;
ALTER TABLE jobs ADD COLUMN next_attempt_at TEXT;
ALTER TABLE jobs ADD COLUMN server TEXT;
ALTER TABLE jobs ADD COLUMN prompt_id TEXT;
ALTER TABLE jobs ADD COLUMN batch_id TEXT;
ALTER TABLE jobs ADD COLUMN batch_index INTEGER;
ALTER TABLE jobs ADD COLUMN outputs TEXT;             -- JSON list of paths
ALTER TABLE jobs ADD COLUMN needs_regeneration INTEGER DEFAULT 0;
ALTER TABLE jobs ADD COLUMN created_at TEXT;
ALTER TABLE jobs ADD COLUMN template_hash TEXT;       -- the workflow in templates; NULL: workflow_id is looked up
ALTER TABLE jobs ADD COLUMN inputs TEXT;              -- JSON: place -> value
ALTER TABLE jobs ADD COLUMN file_path TEXT;           -- where the first result goes; NULL: named after the job
ALTER TABLE jobs ADD COLUMN output_node TEXT;         -- only the results of this node
ALTER TABLE jobs ADD COLUMN timeout_seconds REAL;
ALTER TABLE jobs ADD COLUMN hold TEXT;                -- NULL: may run; 'backoff' until next_attempt_at
ALTER TABLE jobs ADD COLUMN fence INTEGER DEFAULT 0;  -- goes up with every lease; each write of a worker names it
ALTER TABLE jobs ADD COLUMN strikes INTEGER DEFAULT 0;
ALTER TABLE jobs ADD COLUMN avoids TEXT;              -- servers that lack something it needs, a line each

-- A database from before E3 may have other ways to write times.
UPDATE jobs SET
    start_time = coalesce(strftime('%Y-%m-%d %H:%M:%f', start_time), start_time),
    end_time = coalesce(strftime('%Y-%m-%d %H:%M:%f', end_time), end_time),
    lease_expires_at = coalesce(strftime('%Y-%m-%d %H:%M:%f', lease_expires_at), lease_expires_at),
    created_at = coalesce(strftime('%Y-%m-%d %H:%M:%f', start_time), strftime('%Y-%m-%d %H:%M:%f', 'now'));

-- What may run, in the order in which it runs. The lease query names this index: rows that wait never slow it down.
CREATE INDEX idx_jobs_next ON jobs(priority, id) WHERE status = 'pending' AND hold IS NULL;
CREATE INDEX idx_jobs_backoff ON jobs(next_attempt_at) WHERE status = 'pending' AND hold = 'backoff';
CREATE INDEX idx_jobs_worker ON jobs(worker_id) WHERE status = 'processing';
CREATE INDEX idx_jobs_batch ON jobs(batch_id, batch_index) WHERE batch_id IS NOT NULL;
CREATE INDEX idx_jobs_ended ON jobs(status, end_time);

CREATE TABLE templates (
    hash TEXT PRIMARY KEY,
    graph TEXT NOT NULL
) WITHOUT ROWID;

-- One row per run. An attempt without an outcome may still be at its server, whatever the status of its job says.
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    server TEXT,
    prompt_id TEXT,
    worker_id TEXT,
    started_at TEXT,
    running_seconds REAL,
    ended_at TEXT,
    outcome TEXT,
    error TEXT
);
CREATE INDEX idx_attempts_job ON attempts(job_id, number);
CREATE UNIQUE INDEX idx_attempts_prompt ON attempts(prompt_id);
CREATE UNIQUE INDEX idx_attempts_open ON attempts(job_id) WHERE outcome IS NULL;
CREATE INDEX idx_attempts_at_server ON attempts(server) WHERE outcome IS NULL;

-- Which job a result file belongs to, noted before the file is there.
CREATE TABLE files (
    path TEXT PRIMARY KEY,
    job_id INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX idx_files_job ON files(job_id);

CREATE TABLE batches (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT CHECK(status IN ('pending','active','collecting','complete','cancelled','expired')) NOT NULL,
    generation INTEGER NOT NULL DEFAULT 1,
    grid TEXT,
    metadata TEXT,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    completed_at TEXT
);

CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    event TEXT NOT NULL,
    job_id INTEGER,
    prompt_id TEXT,
    server TEXT,
    failure_class TEXT,
    duration_sec REAL,
    wait_sec REAL,
    message TEXT
);
CREATE INDEX idx_events_job ON events(job_id) WHERE job_id IS NOT NULL;

-- Counting a million rows is slow: the counts are kept, also for rows changed by hand.
CREATE TABLE job_counts (
    status TEXT PRIMARY KEY,
    jobs INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO job_counts
    SELECT 'pending', count(*) FROM jobs WHERE status = 'pending' UNION ALL
    SELECT 'processing', count(*) FROM jobs WHERE status = 'processing' UNION ALL
    SELECT 'done', count(*) FROM jobs WHERE status = 'done' UNION ALL
    SELECT 'failed', count(*) FROM jobs WHERE status = 'failed';
CREATE TRIGGER jobs_counted_in AFTER INSERT ON jobs BEGIN
    UPDATE job_counts SET jobs = jobs + 1 WHERE status = NEW.status;
END;
CREATE TRIGGER jobs_counted_out AFTER DELETE ON jobs BEGIN
    UPDATE job_counts SET jobs = jobs - 1 WHERE status = OLD.status;
END;
CREATE TRIGGER jobs_counted_over AFTER UPDATE OF status ON jobs WHEN OLD.status <> NEW.status BEGIN
    UPDATE job_counts SET jobs = jobs - 1 WHERE status = OLD.status;
    UPDATE job_counts SET jobs = jobs + 1 WHERE status = NEW.status;
END;
CREATE TRIGGER jobs_dated AFTER INSERT ON jobs WHEN NEW.created_at IS NULL BEGIN
    UPDATE jobs SET created_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE id = NEW.id;
END;

-- A book is a batch, a page one of its jobs.
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
    (SELECT json_group_array(json(failed.error)) FROM
        (SELECT error FROM attempts WHERE job_id = jobs.id AND json_valid(error) ORDER BY number) AS failed
    ) AS image_error,
    json_object(
        'prompt_ids', (SELECT json_group_array(run.prompt_id) FROM
            (SELECT prompt_id FROM attempts WHERE job_id = jobs.id ORDER BY number) AS run),
        'overrides', json(CASE WHEN json_valid(jobs.inputs) THEN jobs.inputs ELSE '{}' END)
    ) AS job_metadata
FROM jobs JOIN batches ON batches.id = jobs.batch_id
WHERE batches.kind = 'book';

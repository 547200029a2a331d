-- The table that people know: columns, types, defaults and indexes are relied upon by queries made by hand.
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    config_name TEXT NOT NULL UNIQUE,
    job_type TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    priority INTEGER DEFAULT 50,
    status TEXT CHECK(status IN ('pending','processing','done','failed')) NOT NULL,
    retries_attempted INTEGER DEFAULT 0,
    run_count INTEGER DEFAULT 0,
    retry_limit INTEGER,
    start_time TEXT,
    end_time TEXT,
    duration REAL,
    error_trace TEXT,
    metadata TEXT,
    worker_id TEXT,
    lease_expires_at TEXT
);
CREATE INDEX IF NOT EXISTS idx_jobs_status_priority ON jobs(status, priority);
CREATE INDEX IF NOT EXISTS idx_jobs_started ON jobs(start_time);

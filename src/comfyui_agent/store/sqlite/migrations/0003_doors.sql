-- What the doors need to know: the file a job came from, which bytes of it the row stands for, pictures kept for it.
ALTER TABLE jobs ADD COLUMN source TEXT;       -- the job file, relative to the workspace; NULL: it came another way
ALTER TABLE jobs ADD COLUMN digest TEXT;       -- of the bytes of that file which the row stands for
ALTER TABLE jobs ADD COLUMN resubmit INTEGER;  -- 1: the file was changed while the job ran, and is submitted again
ALTER TABLE jobs ADD COLUMN pictures TEXT;     -- JSON: place -> name of a kept input file
CREATE INDEX idx_jobs_source ON jobs(source) WHERE status = 'pending' AND source IS NOT NULL;
CREATE INDEX idx_jobs_file_path ON jobs(file_path) WHERE file_path IS NOT NULL;

-- Job files that were renamed NAME.yaml.rejected, and why.
CREATE TABLE rejections (
    path TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) WITHOUT ROWID;

-- Servers that people have taken out of work; no row: it works.
CREATE TABLE server_states (
    server TEXT PRIMARY KEY,
    state TEXT CHECK(state IN ('paused','draining','drained')) NOT NULL,
    since TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) WITHOUT ROWID;

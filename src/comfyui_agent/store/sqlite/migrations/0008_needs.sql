-- What jobs need of a server, and how long they took where.
-- A row for each combination of workflow, models, node classes and size that jobs have. NULL in jobs.needs: not known yet.
CREATE TABLE needs (
    key TEXT PRIMARY KEY,
    workflow TEXT NOT NULL,                -- the hash of the template
    model_set TEXT NOT NULL,               -- the short key of its models; '' if it names none
    models TEXT NOT NULL,                  -- JSON: [[node class, input, value], …]
    classes TEXT NOT NULL,                 -- JSON: [node class, …]
    pixels INTEGER NOT NULL,               -- of the largest picture or film that it begins with; 0: not known
    memory_over INTEGER                    -- it ran out of memory where this many bytes could be had
) WITHOUT ROWID;
ALTER TABLE jobs ADD COLUMN needs TEXT;
-- When a server that could have run the waiting job first preferred a later one, because of its models.
ALTER TABLE jobs ADD COLUMN overtaken_at TEXT;

-- The first job of each priority and needs is found without reading the others. A NULL priority comes first.
CREATE INDEX idx_jobs_sets ON jobs(max(coalesce(priority, -1e18), -1e18), coalesce(needs, ''), id)
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL;
DROP INDEX idx_jobs_batch_next;
CREATE INDEX idx_jobs_batch_next ON jobs(batch_id, max(coalesce(priority, -1e18), -1e18), coalesce(needs, ''), id)
    WHERE status = 'pending' AND hold IS NULL AND batch_id IS NOT NULL;

-- Whether the server had other models loaded when the run was given to it, so that it had to load.
ALTER TABLE attempts ADD COLUMN is_load INTEGER;
-- Seconds of renders by needs and server, as running means. `cold_seconds`: of renders that had to load models.
CREATE TABLE timings (
    needs TEXT NOT NULL,
    server TEXT NOT NULL,
    runs INTEGER NOT NULL DEFAULT 0,
    seconds REAL,
    loads INTEGER NOT NULL DEFAULT 0,
    cold_seconds REAL,
    PRIMARY KEY (needs, server)
) WITHOUT ROWID;

-- What each server was given last, for those who choose what it gets next.
CREATE TABLE server_sets (
    server TEXT PRIMARY KEY,
    model_set TEXT,                        -- NULL: not known, or nothing is loaded
    needs TEXT,                            -- of its last job
    since TEXT,                            -- when it was first given a job of this set
    loads INTEGER NOT NULL DEFAULT 0,      -- how often it was given another set than it had
    stays INTEGER NOT NULL DEFAULT 0,      -- how often a set was gone on with while an older job waited
    overtakes INTEGER NOT NULL DEFAULT 0   -- jobs that it was given ahead of an older one
) WITHOUT ROWID;

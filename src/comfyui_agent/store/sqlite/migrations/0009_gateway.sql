-- Prompts that ComfyUI's clients posted at the gateway. Each is the prompt of one job.
CREATE TABLE posted_prompts (
    job_id INTEGER PRIMARY KEY,
    prompt_id TEXT NOT NULL UNIQUE,        -- the caller's; runs have ids of their own
    client_id TEXT,                        -- who hears of it
    number REAL NOT NULL,                  -- its place in the queue, as the caller was told
    extra_data TEXT NOT NULL,              -- JSON, without secrets
    targets TEXT NOT NULL,                 -- JSON: the output nodes to run
    entry TEXT,                            -- JSON: what the history of its server said about the run that counts
    run_id TEXT,                           -- the id of that run, which the entry speaks of
    created_by INTEGER,                    -- the token of the caller
    ended_at TEXT,                         -- NULL: it waits or runs
    told_at TEXT,                          -- when its client heard of the end
    hidden_at TEXT,                        -- when it was cleared from the history that clients see
    secrets TEXT                           -- keys for nodes that call services, sealed; gone when it has ended
);
CREATE INDEX idx_posted_open ON posted_prompts(job_id) WHERE ended_at IS NULL;
CREATE INDEX idx_posted_of_client ON posted_prompts(client_id, job_id) WHERE ended_at IS NULL AND client_id IS NOT NULL;
CREATE INDEX idx_posted_ended ON posted_prompts(ended_at, job_id) WHERE ended_at IS NOT NULL AND hidden_at IS NULL;
CREATE INDEX idx_posted_untold ON posted_prompts(client_id, ended_at) WHERE told_at IS NULL AND ended_at IS NOT NULL;
CREATE TRIGGER trg_posted_ended AFTER UPDATE OF status ON jobs
WHEN NEW.source = 'gateway' AND (OLD.status IN ('done', 'failed')) <> (NEW.status IN ('done', 'failed'))
BEGIN
    UPDATE posted_prompts SET told_at = NULL, hidden_at = NULL, secrets = NULL,
        ended_at = CASE WHEN NEW.status IN ('done', 'failed') THEN strftime('%Y-%m-%d %H:%M:%f', 'now') END
    WHERE job_id = NEW.id;
END;
CREATE TRIGGER trg_posted_removed AFTER DELETE ON jobs WHEN OLD.source = 'gateway'
BEGIN
    DELETE FROM posted_files WHERE job_id = OLD.id;
    DELETE FROM posted_prompts WHERE job_id = OLD.id;
END;

-- What clients call the files of their prompts, as if all servers saved into one folder.
CREATE TABLE posted_files (
    path TEXT PRIMARY KEY,                 -- kind, folders and name, as clients see it
    job_id INTEGER NOT NULL,
    origin TEXT NOT NULL                   -- kind, folders and name at the server
) WITHOUT ROWID;
CREATE INDEX idx_posted_files_job ON posted_files(job_id, origin);
CREATE TABLE posted_counters (prefix TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;

-- Files that clients uploaded, by their places in the input folder that they see.
CREATE TABLE uploads (
    path TEXT PRIMARY KEY,
    kept TEXT NOT NULL,                    -- the kept input file
    at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) WITHOUT ROWID;

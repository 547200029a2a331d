-- What the page and the API need. Nothing that writes to jobs needs the module fts5: a shell without it still can.
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice: nobody revokes another one than they saw
    name TEXT NOT NULL,
    role TEXT CHECK(role IN ('user','admin')) NOT NULL,
    hash TEXT NOT NULL UNIQUE,             -- SHA-256 of the token, which is kept nowhere
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
);

-- What was asked for under a key, so that asking twice makes it once.
CREATE TABLE wishes (
    key TEXT NOT NULL,
    scope TEXT NOT NULL,
    digest TEXT NOT NULL,                  -- of what was asked for
    creator TEXT NOT NULL,                 -- the process that is at it
    made TEXT NOT NULL,                    -- the name of what it makes, chosen before it is made
    status INTEGER,                        -- of the answer; NULL: it has not been answered yet
    answer TEXT,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    PRIMARY KEY (key, scope)
);
CREATE INDEX idx_wishes_created ON wishes(created_at);

-- Three letters in a row -> jobs that have them in their names. Filled by whoever serves the page, up to the id that
-- `about` notes as `names_indexed`; without that note it is made anew.
CREATE VIRTUAL TABLE job_names USING fts5(config_name, content='', tokenize='trigram');

CREATE INDEX idx_jobs_rendering ON jobs(start_time) WHERE status = 'processing';
CREATE INDEX idx_events_alert ON events(id) WHERE event >= 'alert.' AND event < 'alert/';
CREATE INDEX idx_batches_kind ON batches(kind, created_at);
CREATE INDEX idx_batches_open ON batches(created_at) WHERE status IN ('active', 'collecting');

-- How many jobs ended in each ten seconds of the last day. What was cancelled has not failed.
CREATE TABLE endings (
    at TEXT,                               -- a time without its last digit: '2025-08-09 12:30:4'
    status TEXT,
    jobs INTEGER NOT NULL,
    PRIMARY KEY (at, status)
) WITHOUT ROWID;
CREATE TRIGGER jobs_ended AFTER UPDATE OF status ON jobs
WHEN NEW.status IN ('done', 'failed') AND OLD.status <> NEW.status
    AND (NEW.status = 'done' OR NEW.failure_class IS NOT 'cancelled')
BEGIN
    INSERT INTO endings VALUES (substr(strftime('%Y-%m-%d %H:%M:%S', 'now'), 1, 18), NEW.status, 1)
    ON CONFLICT (at, status) DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER jobs_refused AFTER INSERT ON jobs
WHEN NEW.status = 'failed' AND NEW.failure_class IS NOT 'cancelled'
    AND NEW.end_time > strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 minute')
BEGIN
    INSERT INTO endings VALUES (substr(strftime('%Y-%m-%d %H:%M:%S', 'now'), 1, 18), NEW.status, 1)
    ON CONFLICT (at, status) DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER endings_forgotten AFTER INSERT ON endings BEGIN
    DELETE FROM endings WHERE at < substr(strftime('%Y-%m-%d %H:%M:%S', 'now', '-1 day'), 1, 18);
END;

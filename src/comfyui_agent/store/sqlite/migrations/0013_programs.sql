-- What programs need: keys of their own, digests of results, reused results, webhooks, assets.
ALTER TABLE jobs ADD COLUMN external_id TEXT;     -- the caller's own key, unique for each token
ALTER TABLE batches ADD COLUMN external_id TEXT;
CREATE UNIQUE INDEX idx_jobs_external ON jobs(coalesce(created_by, 0), external_id) WHERE external_id IS NOT NULL;
CREATE UNIQUE INDEX idx_batches_external ON batches(coalesce(created_by, 0), external_id) WHERE external_id IS NOT NULL;

-- Digest and size of a result, as it was published.
ALTER TABLE files ADD COLUMN sha256 TEXT;
ALTER TABLE files ADD COLUMN bytes INTEGER;
ALTER TABLE attempts ADD COLUMN is_cached INTEGER;  -- whether its server had the result in its cache

ALTER TABLE jobs ADD COLUMN reuse TEXT;           -- 'same': a recorded result of the same fingerprint will do
ALTER TABLE jobs ADD COLUMN fingerprint TEXT;     -- of all that decides the result: graph, inputs, models, server version
ALTER TABLE jobs ADD COLUMN reused_from INTEGER;  -- the job whose result it was given
CREATE INDEX idx_jobs_fingerprint ON jobs(fingerprint, id) WHERE fingerprint IS NOT NULL AND status = 'done';

-- Who is told of events over HTTP.
CREATE TABLE webhooks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,                      -- in the configuration; NULL: made over the API
    url TEXT NOT NULL,
    events TEXT NOT NULL,                  -- JSON: job, batch, book, server, attention
    secret TEXT NOT NULL,                  -- sealed
    created_by INTEGER,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    removed_at TEXT,
    last_event INTEGER NOT NULL,           -- deliveries were queued of all events up to this one
    worker TEXT,                           -- the agent that delivers
    worker_until TEXT
);
-- Each row is one message to one webhook. `delivered_at` and `dead_at` are both NULL while it is still to be sent.
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook_id INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    subject TEXT NOT NULL,                 -- messages of one subject are sent in order
    body TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    next_attempt_at TEXT,                  -- NULL: at once
    delivered_at TEXT,
    dead_at TEXT,
    problem TEXT,                          -- of the last attempt
    UNIQUE (webhook_id, event_id)
);
CREATE INDEX idx_deliveries_open ON deliveries(webhook_id, subject, id) WHERE delivered_at IS NULL AND dead_at IS NULL;
CREATE INDEX idx_deliveries_dead ON deliveries(dead_at) WHERE dead_at IS NOT NULL;
CREATE INDEX idx_deliveries_delivered ON deliveries(delivered_at) WHERE delivered_at IS NOT NULL;

-- Files that programs uploaded, each known by a UUID. Several may have the same kept file.
CREATE TABLE assets (
    id TEXT PRIMARY KEY,
    hash TEXT NOT NULL,                    -- BLAKE3, in hex
    kept TEXT NOT NULL,                    -- the kept input file
    bytes INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    file_path TEXT,
    created_by INTEGER,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    expires_at TEXT
) WITHOUT ROWID;
CREATE INDEX idx_assets_hash ON assets(hash);

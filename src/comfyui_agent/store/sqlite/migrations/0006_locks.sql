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

-- Dismissed jobs need no attention any more.
ALTER TABLE jobs ADD COLUMN dismissed_at TEXT;

-- What was really sent: the values that were filled in for the server.
ALTER TABLE attempts ADD COLUMN sent TEXT;          -- JSON: place -> value

-- Sizes.

-- Claimed paths of grids.

-- Servers that are lost or stuck.

-- Books.

-- End of 0006.

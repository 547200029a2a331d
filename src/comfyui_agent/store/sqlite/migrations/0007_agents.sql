-- Liveness of processes as rows. A process has a row while it holds its lock file. It counts as dead without a row, or
-- when its row is of another host and its heartbeat is older than a minute.
CREATE TABLE agents (
    worker_id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    lock TEXT NOT NULL,                    -- the path of its lock file on that host
    started_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    heartbeat_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) WITHOUT ROWID;

-- Batches that were cancelled or have expired, while their members are being ended in parts.
CREATE TABLE batch_endings (
    batch_id TEXT PRIMARY KEY,
    status TEXT CHECK(status IN ('cancelled','expired')) NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
-- Their members that have not been ended yet. No server is given one of these. Without another index, since all members
-- of a batch are listed in one transaction.
CREATE TABLE ending_members (
    job_id INTEGER PRIMARY KEY,
    batch_id TEXT NOT NULL
);

ALTER TABLE wishes RENAME TO idempotent_requests;
DROP INDEX idx_wishes_created;
CREATE INDEX idx_idempotent_requests_created ON idempotent_requests(created_at);

-- `endings.at` becomes a whole time: the first moment of its ten seconds.
DROP TRIGGER endings_forgotten;
DROP TRIGGER jobs_ended;
DROP TRIGGER jobs_refused;
UPDATE endings SET at = at || '0.000';
CREATE TRIGGER jobs_ended AFTER UPDATE OF status ON jobs
WHEN NEW.status IN ('done', 'failed') AND OLD.status <> NEW.status
    AND (NEW.status = 'done' OR NEW.failure_class IS NOT 'cancelled')
BEGIN
    INSERT INTO endings
    VALUES (strftime('%Y-%m-%d %H:%M:%f', strftime('%s', 'now') / 10 * 10, 'unixepoch'), NEW.status, 1)
    ON CONFLICT (at, status) DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER jobs_refused AFTER INSERT ON jobs
WHEN NEW.status = 'failed' AND NEW.failure_class IS NOT 'cancelled'
    AND NEW.end_time > strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 minute')
BEGIN
    INSERT INTO endings
    VALUES (strftime('%Y-%m-%d %H:%M:%f', strftime('%s', 'now') / 10 * 10, 'unixepoch'), NEW.status, 1)
    ON CONFLICT (at, status) DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER endings_forgotten AFTER INSERT ON endings BEGIN
    DELETE FROM endings WHERE at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 day');
END;

-- Times to compare with are given: `:before` is the same for all parts of one run.

-- part: has_new_take
-- A result that was made later, and does not count.
EXISTS (SELECT 1 FROM takes WHERE takes.job_id = jobs.id AND takes.end_time >= :before)

-- part: old_batch
-- It ended before, and so did all its members. None is at a server, nobody makes its grid or ends its members.
batches.status IN ('complete', 'cancelled', 'expired')
    AND coalesce(batches.completed_at, batches.created_at) < :before
    AND batches.grid_worker IS NULL
    AND NOT (batches.status = 'complete' AND batches.wants_grid = 1 AND batches.grid_generation < batches.generation)
    AND NOT EXISTS (SELECT 1 FROM batch_endings WHERE batch_endings.batch_id = batches.id)
    AND NOT EXISTS (
        SELECT 1 FROM jobs
        WHERE jobs.batch_id = batches.id AND (
            jobs.status IN ('pending', 'processing') OR jobs.end_time IS NULL OR jobs.end_time >= :before OR {has_new_take} OR EXISTS (
                SELECT 1 FROM attempts WHERE attempts.job_id = jobs.id AND attempts.outcome IS NULL)))

-- part: open_job
-- A job that is open, or part of an open batch.
SELECT jobs.id FROM jobs LEFT JOIN batches ON batches.id = jobs.batch_id
    WHERE (jobs.status IN ('pending', 'processing') OR batches.status IN ('pending', 'active', 'collecting'))

-- name: old_batches
SELECT id FROM batches WHERE id > :after AND {old_batch} ORDER BY id LIMIT :most;

-- name: remove_old_batch
-- Its members are jobs of no batch from then on, and are removed as such.
DELETE FROM batches WHERE id = :id AND {old_batch};

-- name: forget_grid_files
DELETE FROM grid_files WHERE batch_id = :id RETURNING path, output;

-- name: old_jobs
-- Jobs of no batch, or of one that is gone, in the order in which they ended. None may still be at a server.
SELECT id, nullif(source, 'gateway') AS source, end_time FROM jobs
WHERE status = :status AND end_time >= :since AND end_time < :before
    AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.id = jobs.batch_id) AND NOT {has_new_take}
    AND NOT EXISTS (SELECT 1 FROM attempts WHERE attempts.job_id = jobs.id AND attempts.outcome IS NULL)
ORDER BY end_time LIMIT :most {lock(jobs)};

-- name: prunable_jobs
-- All that would go, members of old batches included.
WITH old AS MATERIALIZED (SELECT batches.id FROM batches WHERE {old_batch})
SELECT jobs.id FROM jobs LEFT JOIN batches ON batches.id = jobs.batch_id
WHERE jobs.status IN ('done', 'failed') AND jobs.end_time < :before
    AND (batches.id IS NULL OR batches.id IN (SELECT old.id FROM old)) AND NOT {has_new_take}
    AND NOT EXISTS (SELECT 1 FROM attempts WHERE attempts.job_id = jobs.id AND attempts.outcome IS NULL);

-- name: files_of_jobs
SELECT path FROM files WHERE job_id IN ({numbers(:ids)});

-- name: forget_files_of_jobs
-- Until the end of the transaction nobody else can claim them.
DELETE FROM files WHERE job_id IN ({numbers(:ids)}) RETURNING path;

-- name: forget_attempts_of_jobs
DELETE FROM attempts WHERE job_id IN ({numbers(:ids)});

-- name: forget_events_of_jobs
-- The audit trail stays.
DELETE FROM events
WHERE job_id IN ({numbers(:ids)}) AND (event < 'audit.' OR event >= 'audit/');

-- name: remove_old_jobs
DELETE FROM jobs WHERE id IN ({numbers(:ids)});

-- name: next_events
-- The last id of the next part, and the earliest time in it.
SELECT max(id) AS last, min(at) AS at
FROM (SELECT id, at FROM events WHERE id > :after ORDER BY id LIMIT :most) AS part;

-- name: remove_old_events
DELETE FROM events
WHERE id > :after AND id <= :last AND at < :before AND (event < 'audit.' OR event >= 'audit/')
    AND NOT EXISTS ({open_job} AND jobs.id = events.job_id)
    AND NOT EXISTS (
        SELECT 1 FROM batches
        WHERE batches.id = events.batch_id AND batches.status IN ('pending', 'active', 'collecting'));

-- name: next_attempts
SELECT max(id) AS last, min(started_at) AS at
FROM (SELECT id, started_at FROM attempts WHERE id > :after ORDER BY id LIMIT :most) AS part;

-- name: remove_old_attempts
DELETE FROM attempts
WHERE id > :after AND id <= :last AND outcome IS NOT NULL AND coalesce(ended_at, started_at) < :before
    AND NOT EXISTS ({open_job} AND jobs.id = attempts.job_id);

-- name: claim_retention
-- For one process at a time: again when the last claim is older than `:due`.
INSERT INTO about (key, value) VALUES ('retention', :now)
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE about.value < :due;

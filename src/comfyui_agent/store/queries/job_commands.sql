-- name: note_submitted
INSERT INTO events (at, event, job_id)
SELECT {now}, 'job.submitted', value FROM {listed_numbers(:ids)} WHERE true ORDER BY key;

-- name: cancel_job
-- The fence goes up: the worker that runs it can change nothing any more. An agent takes its prompt back.
UPDATE jobs SET
    status = 'failed', failure_class = 'cancelled', error_trace = :error_trace,
    end_time = {now}, worker_id = NULL, lease_expires_at = NULL, hold = NULL,
    next_attempt_at = NULL, fence = coalesce(fence, 0) + 1
WHERE id = :id AND status IN ('pending', 'processing');

-- name: retry_job
-- A fresh start. If the last result was bad, the next run avoids the server's cache.
UPDATE jobs SET
    status = 'pending', retries_attempted = 0, strikes = 0, needs_regeneration = 0, hold = NULL,
    next_attempt_at = NULL, avoids = NULL, end_time = NULL, duration = NULL, error_trace = NULL,
    failure_class = CASE failure_class WHEN 'output' THEN 'output' END
WHERE id = :id AND status = 'failed';

-- name: dismiss_jobs
UPDATE jobs SET dismissed_at = {now}
WHERE id IN ({numbers(:ids)}) AND status = 'failed' AND dismissed_at IS NULL;

-- name: dismiss_batch
UPDATE jobs {index(idx_jobs_batch_attention)} SET dismissed_at = {now}
WHERE batch_id = :id AND status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL;

-- name: rate_jobs
UPDATE jobs SET rating = CAST(:rating AS integer) WHERE id IN ({numbers(:ids)}) AND status = 'done';

-- name: remove_job
DELETE FROM jobs WHERE id = :id AND status IN ('done', 'failed');

-- name: forget_attempts
-- An open attempt may be at its server: it is taken back first.
DELETE FROM attempts WHERE job_id = :job_id AND outcome IS NOT NULL;

-- name: disclaim_files
DELETE FROM files WHERE job_id = :job_id;

-- name: set_priority
UPDATE jobs SET priority = :priority WHERE id = :id;

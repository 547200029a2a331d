-- name: keep_template
INSERT INTO templates (hash, graph) VALUES (:hash, :graph) ON CONFLICT (hash) DO NOTHING;

-- name: insert_jobs
-- All of a submission in one statement. A name that is taken is left out. A job with an error_trace has failed already.
-- A job whose batch is not whole yet waits for that. The creator of the batch is the creator of its jobs.
INSERT INTO jobs (config_name, job_type, workflow_id, priority, status, retry_limit, metadata, template_hash, inputs,
    file_path, output_node, timeout_seconds, batch_id, batch_index, source, digest, pictures, error_trace,
    failure_class, needs_regeneration, end_time, created_at, retries_attempted, run_count, reserved, created_by, needs,
    hold)
SELECT value ->> 'config_name', value ->> 'job_type', value ->> 'workflow_id', value ->> 'priority',
    iif(value ->> 'error_trace' IS NULL, 'pending', 'failed'), value ->> 'retry_limit', value ->> 'metadata',
    value ->> 'template_hash', value ->> 'inputs', value ->> 'file_path', value ->> 'output_node',
    value ->> 'timeout_seconds', value ->> 'batch_id', value ->> 'batch_index', value ->> 'source', value ->> 'digest',
    value ->> 'pictures', value ->> 'error_trace', iif(value ->> 'error_trace' IS NULL, NULL, 'invalid'),
    value ->> 'error_trace' IS NOT NULL,
    iif(value ->> 'error_trace' IS NULL, NULL, strftime('%Y-%m-%d %H:%M:%f', 'now')),
    strftime('%Y-%m-%d %H:%M:%f', 'now'), 0, 0, value ->> 'reserved',
    coalesce(value ->> 'created_by', (SELECT created_by FROM batches WHERE id = value ->> 'batch_id')),
    value ->> 'needs', CASE
        WHEN value ->> 'error_trace' IS NOT NULL THEN NULL
        WHEN (SELECT status FROM batches WHERE id = value ->> 'batch_id') = 'pending' THEN 'filling'
        WHEN value ->> 'reserved' THEN 'burst' END
FROM json_each(:jobs) WHERE true ORDER BY key
ON CONFLICT (config_name) DO NOTHING
RETURNING id, config_name;

-- name: note_submitted
INSERT INTO events (at, event, job_id)
SELECT strftime('%Y-%m-%d %H:%M:%f', 'now'), 'job.submitted', value FROM json_each(:ids) WHERE true ORDER BY key;

-- name: cancel_job
-- The fence goes up: the worker that runs it can change nothing any more. An agent takes its prompt back.
UPDATE jobs SET
    status = 'failed', failure_class = 'cancelled', error_trace = :error_trace,
    end_time = strftime('%Y-%m-%d %H:%M:%f', 'now'), worker_id = NULL, lease_expires_at = NULL, hold = NULL,
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
UPDATE jobs SET dismissed_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'failed' AND dismissed_at IS NULL;

-- name: dismiss_batch
UPDATE jobs INDEXED BY idx_jobs_batch_attention SET dismissed_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE batch_id = :id AND status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL;

-- name: remove_job
DELETE FROM jobs WHERE id = :id AND status IN ('done', 'failed');

-- name: forget_attempts
-- An open attempt may be at its server: it is taken back first.
DELETE FROM attempts WHERE job_id = :job_id AND outcome IS NOT NULL;

-- name: disclaim_files
DELETE FROM files WHERE job_id = :job_id;

-- name: set_priority
UPDATE jobs SET priority = :priority WHERE id = :id;

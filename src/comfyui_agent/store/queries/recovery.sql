-- name: open_attempts
-- Every prompt that may be at a server, with the state of its job. There are at most as many as the windows hold.
SELECT attempts.id AS attempt_id, attempts.job_id, attempts.server, attempts.prompt_id,
    attempts.worker_id AS attempt_worker, jobs.status, jobs.worker_id AS worker, jobs.fence,
    coalesce(jobs.lease_expires_at < {now}, true) AS has_expired,
    jobs.batch_id, coalesce(jobs.reserved, 0) AS is_reserved, jobs.lost_at IS NOT NULL AS is_lost,
    jobs.worker_id IS NOT NULL AND NOT {is_alive(jobs.worker_id)} AS is_worker_dead,
    attempts.worker_id IS NOT NULL AND NOT {is_alive(attempts.worker_id)} AS is_attempt_worker_dead
FROM attempts {index(idx_attempts_open)} LEFT JOIN jobs ON jobs.id = attempts.job_id
WHERE {is_open} ORDER BY attempts.id;

-- name: adopt_job
-- Take over a run, if the fence is as it was read. The run stays the same run.
UPDATE jobs SET
    status = 'processing', worker_id = :worker, fence = coalesce(fence, 0) + 1, hold = NULL, next_attempt_at = NULL,
    lease_expires_at = {in_seconds(:seconds)},
    server = :server, prompt_id = :prompt_id, lost_at = NULL,
    failure_class = CASE WHEN lost_at IS NULL THEN failure_class END,
    error_trace = CASE WHEN lost_at IS NULL THEN error_trace END
WHERE id = :id AND coalesce(fence, 0) = :fence AND status IN ('pending', 'processing')
    AND EXISTS (SELECT 1 FROM attempts WHERE id = :attempt_id AND outcome IS NULL)
RETURNING id, fence, config_name, job_type, workflow_id, template_hash, inputs, server, prompt_id, retries_attempted,
    strikes, retry_limit, failure_class, file_path, output_node, timeout_seconds, avoids, source, digest, pictures,
    batch_id, needs, take;

-- name: adopt_attempt
UPDATE attempts SET worker_id = :worker WHERE id = :attempt_id
RETURNING running_seconds;

-- name: withdraw_attempt
-- The prompt was taken back, or nobody wants it. Not if the job is open again.
UPDATE attempts SET outcome = 'cancelled', error = :error, ended_at = {now}
WHERE id = :attempt_id AND outcome IS NULL
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = attempts.job_id AND status IN ('pending', 'processing'));

-- name: owned_prompts
SELECT prompt_id FROM attempts {index(idx_attempts_open)} WHERE {is_open};

-- name: put_back_unattended
-- Processing although nothing is at a server, with a lease that ran out or a dead worker: someone made it so by hand.
UPDATE jobs SET status = 'pending', worker_id = NULL, lease_expires_at = NULL, fence = coalesce(fence, 0) + 1
WHERE status = 'processing'
    AND NOT EXISTS (SELECT 1 FROM attempts WHERE job_id = jobs.id AND outcome IS NULL)
    AND (coalesce(lease_expires_at < {now}, true) OR worker_id <> '' AND NOT {is_alive(jobs.worker_id)});

-- name: put_back_orphans
UPDATE jobs SET status = 'pending', worker_id = NULL, lease_expires_at = NULL, fence = coalesce(fence, 0) + 1
WHERE status = 'processing'
    AND (coalesce(lease_expires_at < {now}, true) OR worker_id <> '' AND NOT {is_alive(jobs.worker_id)});

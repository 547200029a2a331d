-- name: known_jobs
SELECT id, config_name, status, source, digest, resubmit, failure_class IS 'cancelled' AS is_cancelled FROM jobs
WHERE config_name IN (SELECT value FROM json_each(:names));

-- name: owners_of_paths
-- Owners of paths: jobs and grids whose files are there or will be. A failed job has given up its path.
SELECT value AS path, jobs.config_name, jobs.source, jobs.status, NULL AS batch_id
FROM json_each(:paths) JOIN jobs ON jobs.file_path = value
WHERE jobs.status <> 'failed'
UNION
SELECT files.path, jobs.config_name, jobs.source, jobs.status, NULL
FROM json_each(:paths) JOIN files ON files.path = value JOIN jobs ON jobs.id = files.job_id
UNION
SELECT grid_files.path, NULL, NULL, NULL, batches.id
FROM json_each(:paths) JOIN grid_files ON grid_files.path = value JOIN batches ON batches.id = grid_files.batch_id;

-- name: batches_named
SELECT id FROM batches WHERE id IN (SELECT value FROM json_each(:ids));

-- name: renew_job
-- The row gets what its file says now, and begins anew. The fence goes up: nobody has a lease on it.
UPDATE jobs SET
    job_type = :job ->> 'job_type', workflow_id = :job ->> 'workflow_id', priority = :job ->> 'priority',
    retry_limit = :job ->> 'retry_limit', metadata = :job ->> 'metadata', template_hash = :job ->> 'template_hash',
    inputs = :job ->> 'inputs', file_path = :job ->> 'file_path', output_node = :job ->> 'output_node',
    timeout_seconds = :job ->> 'timeout_seconds', source = :job ->> 'source', digest = :job ->> 'digest',
    pictures = :job ->> 'pictures', needs = :job ->> 'needs', error_trace = :job ->> 'error_trace', created_by = NULL,
    status = iif(:job ->> 'error_trace' IS NULL, 'pending', 'failed'),
    failure_class = iif(:job ->> 'error_trace' IS NULL, NULL, 'invalid'),
    needs_regeneration = :job ->> 'error_trace' IS NOT NULL,
    end_time = iif(:job ->> 'error_trace' IS NULL, NULL, strftime('%Y-%m-%d %H:%M:%f', 'now')),
    created_at = strftime('%Y-%m-%d %H:%M:%f', 'now'),
    dismissed_at = NULL, resubmit = NULL, retries_attempted = 0, strikes = 0, avoids = NULL, hold = NULL,
    next_attempt_at = NULL, duration = NULL, worker_id = NULL, lease_expires_at = NULL, fence = coalesce(fence, 0) + 1
WHERE id = :id AND status <> 'processing';

-- name: withdraw_attempts
UPDATE attempts SET outcome = 'cancelled', ended_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE job_id = :job_id AND outcome IS NULL;

-- name: locate_job
UPDATE jobs SET source = :source, digest = :digest, resubmit = NULL WHERE id = :id;

-- name: note_file_moved
UPDATE jobs SET source = :target WHERE config_name = :name AND source = :source AND status = 'done';

-- name: note_change
UPDATE jobs SET resubmit = 1 WHERE id = :id AND resubmit IS NULL AND status IN ('processing', 'done');

-- name: forget_changes
-- The file was changed while its job ran, and is gone now: there is nothing to submit again.
UPDATE jobs SET resubmit = NULL
WHERE config_name IN (SELECT value FROM json_each(:names)) AND resubmit = 1
    AND source IN (SELECT value FROM json_each(:sources));

-- name: jobs_of_sources
SELECT id FROM jobs INDEXED BY idx_jobs_source
WHERE status = 'pending' AND source IS NOT NULL AND source IN (SELECT value FROM json_each(:sources));

-- name: cancel_deleted
UPDATE jobs INDEXED BY idx_jobs_source SET
    status = 'failed', failure_class = 'cancelled', error_trace = 'cancelled: its file ' || source || ' was deleted',
    end_time = strftime('%Y-%m-%d %H:%M:%f', 'now'), worker_id = NULL, lease_expires_at = NULL, hold = NULL,
    next_attempt_at = NULL, fence = coalesce(fence, 0) + 1, digest = NULL
WHERE status = 'pending' AND source IN (SELECT value FROM json_each(:sources))
RETURNING id, config_name;

-- name: finished_files
-- Jobs from files that were done within a range of seconds ago.
SELECT source, digest, job_type FROM jobs INDEXED BY idx_jobs_ended
WHERE status = 'done' AND source IS NOT NULL
    AND end_time > strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :longest || ' seconds')
    AND end_time < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :shortest || ' seconds');

-- name: file_of_job
SELECT source, digest FROM jobs WHERE id = :id;

-- name: forget_file
UPDATE jobs SET source = NULL, digest = NULL WHERE id = :id;

-- name: pending_sources
SELECT source FROM jobs INDEXED BY idx_jobs_source WHERE status = 'pending' AND source IS NOT NULL;

-- name: keep_rejection
-- The file that was rejected under this path has a new name. Its reason stays with it.
UPDATE OR REPLACE rejections SET path = :kept WHERE path = :path;

-- name: reject_file
INSERT INTO rejections (path, reason) VALUES (:path, :reason)
ON CONFLICT (path) DO UPDATE SET reason = excluded.reason, at = strftime('%Y-%m-%d %H:%M:%f', 'now');

-- name: rejections
SELECT path, reason FROM rejections ORDER BY at;

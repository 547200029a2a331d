-- name: known_jobs
SELECT id, config_name, status, source, digest, resubmit, failure_class IS NOT DISTINCT FROM 'cancelled' AS is_cancelled FROM jobs
WHERE config_name IN ({texts(:names)}) ORDER BY id {hold(jobs)};

-- name: owners_of_paths
-- Owners of paths: jobs and grids whose files are there or will be. A failed job has given up its path.
SELECT value AS path, jobs.config_name, jobs.source, jobs.status, NULL AS batch_id
FROM {listed_texts(:paths)} JOIN jobs ON jobs.file_path = value
WHERE jobs.status <> 'failed'
UNION
SELECT files.path, jobs.config_name, jobs.source, jobs.status, NULL
FROM {listed_texts(:paths)} JOIN files ON files.path = value JOIN jobs ON jobs.id = files.job_id
UNION
SELECT grid_files.path, NULL, NULL, NULL, batches.id
FROM {listed_texts(:paths)} JOIN grid_files ON grid_files.path = value JOIN batches ON batches.id = grid_files.batch_id;

-- name: batches_named
SELECT id FROM batches WHERE id IN ({texts(:ids)});

-- name: withdraw_attempts
UPDATE attempts SET outcome = 'cancelled', ended_at = {now}
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
WHERE config_name IN ({texts(:names)}) AND resubmit = 1
    AND source IN ({texts(:sources)});

-- name: jobs_of_sources
SELECT id FROM jobs {index(idx_jobs_source)}
WHERE status = 'pending' AND source IS NOT NULL AND source IN ({texts(:sources)});

-- name: cancel_deleted
UPDATE jobs {index(idx_jobs_source)} SET
    status = 'failed', failure_class = 'cancelled', error_trace = 'cancelled: its file ' || source || ' was deleted',
    end_time = {now}, worker_id = NULL, lease_expires_at = NULL, hold = NULL,
    next_attempt_at = NULL, fence = coalesce(fence, 0) + 1, digest = NULL
WHERE status = 'pending' AND source IN ({texts(:sources)})
RETURNING id, config_name;

-- name: finished_files
-- Jobs from files that were done within a range of seconds ago.
SELECT source, digest, job_type FROM jobs {index(idx_jobs_ended)}
WHERE status = 'done' AND source IS NOT NULL AND source <> 'gateway'
    AND end_time > {seconds_ago(:longest)}
    AND end_time < {seconds_ago(:shortest)};

-- name: file_of_job
SELECT source, digest FROM jobs WHERE id = :id;

-- name: forget_file
UPDATE jobs SET source = NULL, digest = NULL WHERE id = :id;

-- name: pending_sources
SELECT source FROM jobs {index(idx_jobs_source)} WHERE status = 'pending' AND source IS NOT NULL AND source <> 'gateway';

-- name: reject_file
INSERT INTO rejections (path, reason) VALUES (:path, :reason)
ON CONFLICT (path) DO UPDATE SET reason = excluded.reason, at = {now};

-- name: rejections
SELECT path, reason FROM rejections ORDER BY at;

-- name: template
SELECT graph FROM templates WHERE hash = :hash;

-- name: job_by_id
SELECT * FROM jobs WHERE id = :id;

-- name: holders_of_external_ids
-- The jobs and batches that have a caller's own keys. What is still being filled is left out unless it is asked for.
SELECT external_id, 'job' AS kind, CAST(id AS text) AS id, config_name AS name, digest FROM jobs
WHERE coalesce(created_by, 0) = :owner AND external_id IS NOT NULL AND external_id {is_among(:ids)}
UNION ALL
SELECT external_id, CASE kind WHEN 'book' THEN 'book' ELSE 'batch' END, id, name, NULL FROM batches
WHERE coalesce(created_by, 0) = :owner AND external_id IS NOT NULL AND external_id {is_among(:ids)}
    AND (:with_filling OR status <> 'pending');

-- name: job_by_name
SELECT * FROM jobs WHERE config_name = :name;

-- name: attempts_of_job
SELECT * FROM attempts WHERE job_id = :job_id ORDER BY number, id;

-- name: counts
SELECT status, sum(jobs) AS jobs FROM job_counts GROUP BY status;

-- name: open_jobs_of
SELECT count(*) AS jobs FROM (
    SELECT 1 FROM jobs {index(idx_jobs_open_by)}
    WHERE created_by = :token_id AND status IN ('pending', 'processing') LIMIT :most) AS counted;

-- name: is_work_waiting
SELECT EXISTS (
    SELECT 1 FROM jobs {index(idx_jobs_next)} WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL) AS waits;

-- name: is_idle
-- Paused jobs and jobs for a later burst do not count. A grid that is due counts.
SELECT NOT EXISTS (
        SELECT 1 FROM jobs {index(idx_jobs_next)} WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL)
    AND NOT EXISTS (
        SELECT 1 FROM jobs {index(idx_jobs_held)}
        WHERE status = 'pending' AND hold IN ('backoff', 'turn', 'filling', 'server') AND reserved IS NULL)
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE status = 'processing' AND reserved IS NULL)
    AND NOT EXISTS (
        SELECT 1 FROM batches {index(idx_batches_grid)}
        WHERE wants_grid = 1 AND status = 'complete' AND grid_generation < generation) AS idle;

-- name: queued_first
-- Processing jobs, pending ones as they will run, then failed and done ones, newest first.
SELECT * FROM (SELECT * FROM jobs WHERE status = 'processing' ORDER BY start_time NULLS FIRST LIMIT :most) AS processing
UNION ALL SELECT * FROM (SELECT * FROM jobs WHERE status = 'pending' ORDER BY priority NULLS FIRST, id LIMIT :most) AS pending
UNION ALL SELECT * FROM (SELECT * FROM jobs WHERE status = 'failed' ORDER BY end_time DESC NULLS LAST LIMIT :most) AS failed
UNION ALL SELECT * FROM (SELECT * FROM jobs WHERE status = 'done' ORDER BY end_time DESC NULLS LAST LIMIT :most) AS done
LIMIT :most;

-- name: jobs_pending
SELECT * FROM jobs WHERE status = 'pending' ORDER BY priority NULLS FIRST, id LIMIT :most;

-- name: jobs_processing
SELECT * FROM jobs WHERE status = 'processing' ORDER BY start_time NULLS FIRST, id LIMIT :most;

-- name: jobs_done
SELECT * FROM jobs WHERE status = 'done' ORDER BY end_time DESC NULLS LAST LIMIT :most;

-- name: jobs_failed
SELECT * FROM jobs WHERE status = 'failed' ORDER BY end_time DESC NULLS LAST LIMIT :most;

-- name: jobs_attention
SELECT * FROM jobs {index(idx_jobs_attention)}
WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL ORDER BY end_time DESC NULLS LAST LIMIT :most;

-- name: jobs_of_batch
SELECT * FROM jobs WHERE batch_id = :batch_id AND (CAST(:status AS text) IS NULL OR status = :status)
    AND (CAST(:attention AS integer) IS NULL OR status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL)
ORDER BY batch_index NULLS FIRST, id LIMIT :most;

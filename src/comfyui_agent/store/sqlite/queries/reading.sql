-- name: template
SELECT graph FROM templates WHERE hash = :hash;

-- name: job_by_id
SELECT * FROM jobs WHERE id = :id;

-- name: job_by_name
SELECT * FROM jobs WHERE config_name = :name;

-- name: attempts_of_job
SELECT * FROM attempts WHERE job_id = :job_id ORDER BY number, id;

-- name: counts
SELECT status, jobs FROM job_counts;

-- name: is_idle
SELECT NOT EXISTS (SELECT 1 FROM jobs WHERE status = 'pending')
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE status = 'processing') AS idle;

-- name: queued_first
-- What runs, then what waits in the order in which it will run, then what ended, the newest first.
SELECT * FROM (SELECT * FROM jobs WHERE status = 'processing' ORDER BY start_time LIMIT :most)
UNION ALL SELECT * FROM (SELECT * FROM jobs WHERE status = 'pending' ORDER BY priority, id LIMIT :most)
UNION ALL SELECT * FROM (SELECT * FROM jobs WHERE status = 'failed' ORDER BY end_time DESC LIMIT :most)
UNION ALL SELECT * FROM (SELECT * FROM jobs WHERE status = 'done' ORDER BY end_time DESC LIMIT :most)
LIMIT :most;

-- name: jobs_pending
SELECT * FROM jobs WHERE status = 'pending' ORDER BY priority, id LIMIT :most;

-- name: jobs_processing
SELECT * FROM jobs WHERE status = 'processing' ORDER BY start_time, id LIMIT :most;

-- name: jobs_done
SELECT * FROM jobs WHERE status = 'done' ORDER BY end_time DESC LIMIT :most;

-- name: jobs_failed
SELECT * FROM jobs WHERE status = 'failed' ORDER BY end_time DESC LIMIT :most;

-- name: jobs_of_batch
SELECT * FROM jobs WHERE batch_id = :batch_id AND (:status IS NULL OR status = :status)
ORDER BY batch_index, id LIMIT :most;

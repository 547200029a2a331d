-- name: owner_of_file
-- A job, or the batch of a grid.
SELECT files.job_id, jobs.config_name, NULL AS batch_id FROM files JOIN jobs ON jobs.id = files.job_id
WHERE files.path = :path
UNION ALL
SELECT NULL, NULL, batches.id FROM grid_files JOIN batches ON batches.id = grid_files.batch_id
WHERE grid_files.path = :path;

-- name: claim_file
-- Nothing if another job has claimed it meanwhile.
INSERT INTO files (path, job_id, sha256, bytes) VALUES (:path, :job_id, :sha256, :bytes)
ON CONFLICT (path) DO UPDATE SET job_id = excluded.job_id, sha256 = excluded.sha256, bytes = excluded.bytes
WHERE files.job_id = excluded.job_id OR NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = files.job_id);

-- name: claim_free_file
-- Nothing if the name is not free, or the lease is lost.
INSERT INTO files (path, job_id, sha256, bytes)
SELECT :path, id, :sha256, CAST(:bytes AS bigint) FROM jobs
WHERE id = :id AND fence = :fence AND status = 'processing'
    AND NOT EXISTS (SELECT 1 FROM grid_files WHERE grid_files.path = :path)
ON CONFLICT (path) DO NOTHING;

-- name: digests_of_files
SELECT path, sha256, bytes FROM files WHERE path {is_among(:paths)};

-- name: files_of_job
SELECT path FROM files WHERE job_id = :job_id;

-- name: undelivered_files
-- Files of a job that belong to none of its results.
SELECT path FROM files WHERE job_id = :job_id AND {of_no_take};

-- name: disclaim_file
-- It stays on record as nobody's until it is removed.
UPDATE files SET job_id = 0 WHERE path = :path AND job_id = :job_id;

-- name: forget_stray
DELETE FROM files WHERE path = :path AND job_id = 0;

-- part: of_no_take
NOT EXISTS (SELECT 1 FROM takes WHERE takes.job_id = files.job_id AND files.path IN ({texts(takes.outputs)}))

-- part: strays
-- Files that the job claimed and did not deliver.
(SELECT {json_list(path)} FROM files
    WHERE job_id = jobs.id AND path NOT IN ({texts(:outputs)}) AND {of_no_take}) AS strays

-- part: completed
-- The result is a new one: what people thought of the last one does not count.
UPDATE jobs SET
    status = 'done', outputs = :outputs, end_time = {now}, rating = NULL, reused_from = NULL,
    duration = coalesce(:duration, {seconds_since(start_time)}),
    worker_id = NULL, lease_expires_at = NULL, error_trace = NULL, failure_class = NULL, needs_regeneration = 0,
    hold = NULL, next_attempt_at = NULL, strikes = 0, avoids = NULL
WHERE id = :id AND fence = :fence AND status = 'processing'
RETURNING id, prompt_id, server, needs, duration, {strays}

-- name: requeue_job
UPDATE jobs SET
    status = 'pending', worker_id = NULL, lease_expires_at = NULL,
    retries_attempted = coalesce(retries_attempted, 0) + CAST(:charged AS integer),
    strikes = coalesce(strikes, 0) + CAST(:strike AS integer),
    error_trace = :error_trace, failure_class = :failure_class,
    hold = CASE WHEN :wait > 0 THEN 'backoff' END,
    next_attempt_at = CASE WHEN :wait > 0 THEN {in_seconds(:wait)} END,
    avoids = CASE WHEN :avoid THEN coalesce(avoids, '') || server || {newline} WHEN NOT :charged THEN avoids END
WHERE id = :id AND fence = :fence AND status = 'processing'
RETURNING prompt_id, server;

-- name: wait_for_server
-- The server does not answer: the job waits for it or another server, and its run stays open.
UPDATE jobs SET
    status = 'pending', worker_id = NULL, lease_expires_at = NULL, error_trace = :error_trace,
    failure_class = :failure_class, lost_at = {seconds_ago(:away)},
    hold = CASE WHEN :is_held THEN 'server' END
WHERE id = :id AND fence = :fence AND status = 'processing'
RETURNING prompt_id, server;

-- name: note_executed
UPDATE attempts SET running_seconds = :seconds
WHERE id = :attempt_id AND outcome IS NULL;

-- name: fail_job
UPDATE jobs SET
    status = 'failed', end_time = {now},
    duration = {seconds_since(start_time)},
    worker_id = NULL, lease_expires_at = NULL, error_trace = :error_trace, failure_class = :failure_class,
    needs_regeneration = CASE WHEN :needs_regeneration OR EXISTS (
        SELECT 1 FROM batches WHERE batches.id = jobs.batch_id AND batches.kind = 'book') THEN 1 ELSE 0 END,
    hold = NULL, next_attempt_at = NULL, strikes = coalesce(strikes, 0) + CAST(:strike AS integer)
WHERE id = :id AND fence = :fence AND status = 'processing'
RETURNING prompt_id, server;

-- name: unsend_job
-- Nothing reached the server: as if it had not been leased.
UPDATE jobs SET
    status = 'pending', worker_id = NULL, lease_expires_at = NULL, server = NULL, prompt_id = NULL, start_time = NULL,
    run_count = run_count - 1
WHERE id = :id AND fence = :fence AND status = 'processing'
RETURNING id;

-- name: forget_attempt
DELETE FROM attempts WHERE id = :attempt_id AND outcome IS NULL;

-- name: end_attempt
UPDATE attempts SET outcome = :outcome, error = :error, ended_at = {now},
    sent = coalesce(:sent, sent)
WHERE id = :attempt_id AND outcome IS NULL;

-- name: refuse_job
UPDATE jobs SET
    status = 'failed', end_time = {now}, error_trace = :error_trace,
    failure_class = :failure_class, needs_regeneration = 1, hold = NULL, next_attempt_at = NULL
WHERE id = :id AND fence = :fence AND status = 'pending'
RETURNING id;

-- name: owned_files
SELECT files.path FROM files JOIN jobs ON jobs.id = files.job_id
WHERE files.path IN ({texts(:paths)})
UNION ALL
SELECT grid_files.path FROM grid_files JOIN batches ON batches.id = grid_files.batch_id
WHERE grid_files.path IN ({texts(:paths)});

-- name: recorded_files
-- Including files whose job or batch is gone.
SELECT path FROM files WHERE path IN ({texts(:paths)})
UNION ALL SELECT path FROM grid_files WHERE path IN ({texts(:paths)});

-- name: had_result
SELECT 1 FROM attempts WHERE job_id = :job_id AND outcome = 'done' LIMIT 1;

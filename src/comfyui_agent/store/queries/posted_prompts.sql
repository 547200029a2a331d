-- name: post_prompt
INSERT INTO posted_prompts (job_id, prompt_id, client_id, number, extra_data, targets, created_by, secrets)
VALUES (:job_id, :prompt_id, :client_id, CAST(:number AS double precision), :extra_data, :targets, :created_by, :secrets);

-- name: open_prompt_of_client
-- The newest prompt of a client that has not ended, and its batch, unless that has ended.
SELECT posted_prompts.job_id, batches.id AS batch_id,
    (SELECT max(batch_index) + 1 FROM jobs WHERE batch_id = batches.id) AS next_index
FROM posted_prompts {index(idx_posted_of_client)} JOIN jobs ON jobs.id = posted_prompts.job_id
LEFT JOIN batches ON batches.id = jobs.batch_id AND batches.status IN ('active', 'collecting')
WHERE ended_at IS NULL AND client_id = :client_id AND posted_prompts.created_by IS NOT DISTINCT FROM :created_by
    AND (jobs.batch_id IS NULL OR batches.id IS NOT NULL)
ORDER BY posted_prompts.job_id DESC LIMIT 1;

-- part: has_run
-- Whether a server was seen to execute it for a while.
EXISTS (SELECT 1 FROM attempts WHERE attempts.job_id = posted_prompts.job_id AND running_seconds > 0)

-- part: posted
SELECT posted_prompts.job_id, posted_prompts.prompt_id, client_id, number, extra_data, targets, entry, run_id,
    posted_prompts.created_by, ended_at, told_at, status, failure_class, error_trace, jobs.server, jobs.outputs,
    jobs.start_time, jobs.end_time, jobs.created_at, graph AS template, inputs, {has_run} AS has_run, priority, take
FROM posted_prompts JOIN jobs ON jobs.id = posted_prompts.job_id
LEFT JOIN templates ON templates.hash = jobs.template_hash

-- name: posted_prompt
{posted} WHERE posted_prompts.prompt_id = :prompt_id;

-- name: posted_prompts_by_id
{posted} WHERE posted_prompts.job_id IN ({numbers(:ids)});

-- name: prompt_of_job
SELECT prompt_id, client_id, extra_data, targets, secrets FROM posted_prompts WHERE job_id = :job_id;

-- name: open_prompts
-- What waits or runs, for one caller or for all.
SELECT posted_prompts.job_id, posted_prompts.prompt_id, client_id, status, priority,
    status = 'processing' AND {has_run} AS has_run
FROM posted_prompts {index(idx_posted_open)} JOIN jobs ON jobs.id = posted_prompts.job_id
WHERE ended_at IS NULL AND (CAST(:owner AS bigint) IS NULL OR posted_prompts.created_by = :owner)
ORDER BY posted_prompts.job_id LIMIT :most;

-- name: newest_prompts
-- Of one caller or of all, newest first.
SELECT job_id FROM posted_prompts
WHERE job_id < :before AND (CAST(:owner AS bigint) IS NULL OR created_by = :owner) ORDER BY job_id DESC LIMIT :most;

-- name: first_posted_priority
SELECT min(priority) AS priority FROM posted_prompts {index(idx_posted_open)} JOIN jobs ON jobs.id = posted_prompts.job_id
WHERE ended_at IS NULL AND status = 'pending';

-- name: count_open_prompts
SELECT count(*) AS prompts FROM posted_prompts {index(idx_posted_open)} WHERE ended_at IS NULL;

-- name: ended_prompts
-- The newest that have ended and are listed, for one caller or for all, newest first.
SELECT job_id FROM posted_prompts {index(idx_posted_ended)}
WHERE ended_at IS NOT NULL AND hidden_at IS NULL AND (CAST(:owner AS bigint) IS NULL OR created_by = :owner)
ORDER BY ended_at DESC, job_id DESC LIMIT :most;

-- name: untold_prompts
-- Ended prompts whose clients have not heard so, not older than some seconds, oldest first.
SELECT job_id FROM posted_prompts {index(idx_posted_untold)}
WHERE told_at IS NULL AND ended_at IS NOT NULL AND client_id IN ({texts(:clients)})
    AND ended_at > {seconds_ago(:seconds)}
ORDER BY ended_at, job_id LIMIT :most;

-- name: note_told
UPDATE posted_prompts SET told_at = {now} WHERE job_id IN ({numbers(:ids)}) AND told_at IS NULL AND ended_at IS NOT NULL;

-- name: hide_prompts
UPDATE posted_prompts SET hidden_at = {now}
WHERE job_id IN ({numbers(:ids)}) AND ended_at IS NOT NULL AND hidden_at IS NULL;

-- name: keep_entry
-- What a server's history said about a run. Nothing if the lease is lost.
UPDATE posted_prompts SET entry = :entry, run_id = (SELECT prompt_id FROM attempts WHERE attempts.id = :attempt_id)
WHERE job_id = :job_id AND EXISTS (
    SELECT 1 FROM jobs WHERE id = :job_id AND fence = :fence AND status = 'processing');

-- name: note_interrupted
-- What was seen of a run that is stopped now. Its agent cannot say any more.
UPDATE posted_prompts SET entry = :entry, run_id = :run_id WHERE job_id = :job_id AND ended_at IS NULL;

-- name: names_of_files
SELECT origin, path FROM posted_files WHERE job_id = :job_id;

-- name: owner_of_posted_file
SELECT job_id, origin FROM posted_files WHERE path = :path;

-- name: next_number_of_prefix
INSERT INTO posted_counters (prefix, last) VALUES (:prefix, 1)
ON CONFLICT (prefix) DO UPDATE SET last = posted_counters.last + 1 RETURNING last;

-- name: name_file
INSERT INTO posted_files (path, job_id, origin) VALUES (:path, :job_id, :origin) ON CONFLICT (path) DO NOTHING;

-- name: keep_upload
INSERT INTO uploads (path, kept) VALUES (:path, :kept)
ON CONFLICT (path) DO UPDATE SET kept = excluded.kept, at = {now};

-- name: newest_uploads
SELECT path FROM uploads ORDER BY at DESC LIMIT :most;

-- name: find_uploads
SELECT path, kept FROM uploads WHERE path IN ({texts(:paths)});

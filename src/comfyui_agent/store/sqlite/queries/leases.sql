-- name: end_backoffs
-- Jobs whose backoff is over may run. A wait that is longer than any backoff was written before the clock stepped back.
UPDATE jobs SET hold = NULL, next_attempt_at = NULL
WHERE id IN (
    SELECT id FROM jobs INDEXED BY idx_jobs_backoff WHERE status = 'pending' AND hold = 'backoff'
        AND next_attempt_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')
    UNION ALL
    SELECT id FROM jobs INDEXED BY idx_jobs_backoff WHERE status = 'pending' AND hold = 'backoff'
        AND next_attempt_at IS NULL
    UNION ALL
    SELECT id FROM jobs INDEXED BY idx_jobs_backoff WHERE status = 'pending' AND hold = 'backoff'
        AND next_attempt_at > strftime('%Y-%m-%d %H:%M:%f', 'now', :longest || ' seconds'));

-- name: load_of_server
-- How many prompts of all agents are at a server, how many of them are suspects, and whether people took the server
-- out of work. Prompts without a living lease count only for agents that may take them over.
SELECT count(*) AS open, coalesce(sum(jobs.strikes > 0), 0) AS suspects,
    coalesce(sum(jobs.batch_id IS :batch_id), 0) AS own,
    EXISTS (SELECT 1 FROM server_states WHERE server_states.server = :server) AS is_out_of_work
FROM attempts LEFT JOIN jobs ON jobs.id = attempts.job_id
WHERE attempts.server = :server AND attempts.outcome IS NULL AND (
    iif(:batch_id IS NULL, jobs.reserved IS NULL, jobs.batch_id IS :batch_id)
    OR (jobs.status = 'processing' AND jobs.lease_expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now')));

-- part: for_this_server
-- The job is at no server, its batch is not being ended, and it does not avoid this one. A job with an open attempt is
-- taken over, not run again; one whose server was lost may go to another.
NOT EXISTS (
    SELECT 1 FROM attempts WHERE job_id = jobs.id AND outcome IS NULL AND (lost_at IS NULL OR attempts.server = :server))
AND NOT EXISTS (SELECT 1 FROM ending_members WHERE job_id = jobs.id)
AND (avoids IS NULL OR :is_only OR instr(char(10) || avoids, char(10) || :server || char(10)) = 0)

-- name: heads_of_queue
-- The next priority that has jobs for a server, and the first of them for each needs. Found without reading the others.
WITH RECURSIVE heads(id, priority, needs) AS (
    SELECT id, max(coalesce(priority, -1e18), -1e18), coalesce(needs, '') FROM jobs WHERE id = (
        SELECT id FROM jobs INDEXED BY idx_jobs_sets
        WHERE jobs.status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND max(coalesce(priority, -1e18), -1e18) > :after
            AND {for_this_server}
        ORDER BY max(coalesce(priority, -1e18), -1e18), coalesce(needs, ''), id LIMIT 1)
    UNION ALL
    SELECT next.id, heads.priority, coalesce(next.needs, '') FROM heads CROSS JOIN jobs AS next ON next.id = (
        SELECT id FROM jobs INDEXED BY idx_jobs_sets
        WHERE jobs.status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND max(coalesce(priority, -1e18), -1e18) = heads.priority AND coalesce(needs, '') > heads.needs
            AND {for_this_server}
        ORDER BY coalesce(needs, ''), id LIMIT 1))
SELECT heads.id, heads.priority, heads.needs,
    coalesce((julianday('now') - julianday(overtaken_at)) * 86400.0, 0) AS overtaken_seconds
FROM heads CROSS JOIN jobs ON jobs.id = heads.id;

-- name: heads_of_batch
WITH RECURSIVE heads(id, priority, needs) AS (
    SELECT id, max(coalesce(priority, -1e18), -1e18), coalesce(needs, '') FROM jobs WHERE id = (
        SELECT id FROM jobs INDEXED BY idx_jobs_batch_next
        WHERE jobs.batch_id = :batch_id AND jobs.batch_id IS NOT NULL AND jobs.status = 'pending' AND hold IS NULL
            AND max(coalesce(priority, -1e18), -1e18) > :after
            AND {for_this_server}
        ORDER BY max(coalesce(priority, -1e18), -1e18), coalesce(needs, ''), id LIMIT 1)
    UNION ALL
    SELECT next.id, heads.priority, coalesce(next.needs, '') FROM heads CROSS JOIN jobs AS next ON next.id = (
        SELECT id FROM jobs INDEXED BY idx_jobs_batch_next
        WHERE jobs.batch_id = :batch_id AND jobs.batch_id IS NOT NULL AND jobs.status = 'pending' AND hold IS NULL
            AND max(coalesce(priority, -1e18), -1e18) = heads.priority AND coalesce(needs, '') > heads.needs
            AND {for_this_server}
        ORDER BY coalesce(needs, ''), id LIMIT 1))
SELECT heads.id, heads.priority, heads.needs,
    coalesce((julianday('now') - julianday(overtaken_at)) * 86400.0, 0) AS overtaken_seconds
FROM heads CROSS JOIN jobs ON jobs.id = heads.id;

-- name: next_jobs
-- The next jobs of a priority with certain needs, oldest first. One that was being executed at a server when that was
-- lost is a suspect.
SELECT jobs.id, jobs.batch_id, lost_at IS NOT NULL AS is_lost,
    coalesce(jobs.strikes, 0) + EXISTS (
        SELECT 1 FROM attempts WHERE job_id = jobs.id AND outcome IS NULL AND running_seconds > 0) AS strikes,
    coalesce(batches.is_serial OR (batches.kind = 'book' AND :one_page), 0) AS is_serial
FROM jobs INDEXED BY idx_jobs_sets LEFT JOIN batches ON batches.id = jobs.batch_id
WHERE jobs.status = 'pending' AND hold IS NULL AND reserved IS NULL
  AND max(coalesce(priority, -1e18), -1e18) = :priority AND coalesce(needs, '') = :needs
  AND (:below IS NULL OR jobs.id < :below)
  AND {for_this_server}
ORDER BY jobs.id LIMIT :most;

-- name: next_jobs_of_batch
SELECT jobs.id, jobs.batch_id, lost_at IS NOT NULL AS is_lost,
    coalesce(jobs.strikes, 0) + EXISTS (
        SELECT 1 FROM attempts WHERE job_id = jobs.id AND outcome IS NULL AND running_seconds > 0) AS strikes,
    coalesce(batches.is_serial OR (batches.kind = 'book' AND :one_page), 0) AS is_serial
FROM jobs INDEXED BY idx_jobs_batch_next LEFT JOIN batches ON batches.id = jobs.batch_id
WHERE jobs.batch_id = :batch_id AND jobs.batch_id IS NOT NULL AND jobs.status = 'pending' AND hold IS NULL
  AND max(coalesce(priority, -1e18), -1e18) = :priority AND coalesce(needs, '') = :needs
  AND (:below IS NULL OR jobs.id < :below)
  AND {for_this_server}
ORDER BY jobs.id LIMIT :most;

-- name: server_set
SELECT model_set FROM server_sets WHERE server = :server;

-- name: sets_elsewhere
SELECT server, model_set FROM server_sets
WHERE server <> :server AND model_set IS NOT NULL AND EXISTS (
    SELECT 1 FROM attempts WHERE attempts.server = server_sets.server AND outcome IS NULL);

-- name: count_of_set
SELECT count(*) AS jobs FROM (
    SELECT 1 FROM jobs INDEXED BY idx_jobs_sets
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
        AND max(coalesce(priority, -1e18), -1e18) = :priority AND coalesce(needs, '') = :needs LIMIT :most);

-- name: note_set
-- A server gets jobs of another model set than before.
INSERT INTO server_sets (server, model_set, needs, since, loads)
VALUES (:server, :model_set, :needs, strftime('%Y-%m-%d %H:%M:%f', 'now'), 1)
ON CONFLICT (server) DO UPDATE SET
    model_set = excluded.model_set, needs = excluded.needs, since = excluded.since, loads = loads + 1
WHERE model_set IS NOT excluded.model_set;

-- name: note_overtaken
-- The oldest job for a server waits while later ones are taken. Its time counts from the first time on, at any server.
UPDATE jobs SET overtaken_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE id = :id AND overtaken_at IS NULL;

-- name: count_overtake
UPDATE server_sets SET overtakes = overtakes + 1, stays = stays + :is_stay WHERE server = :server;

-- name: forget_set
-- The server was restarted, or may have been: nothing is loaded there.
UPDATE server_sets SET model_set = NULL WHERE server = :server AND model_set IS NOT NULL;

-- name: leave_server
-- Another server takes a job whose server was lost. The prompt at the lost server is deleted when it returns.
UPDATE attempts SET outcome = 'server_lost', ended_at = strftime('%Y-%m-%d %H:%M:%f', 'now'),
    error = json_object('kind', 'server_lost', 'message', 'its server did not answer any more: another took the job',
        'server', server, 'prompt_id', prompt_id)
WHERE job_id = :id AND outcome IS NULL
RETURNING coalesce(running_seconds, 0) > 0 AS was_running;

-- name: strike_job
UPDATE jobs SET strikes = coalesce(strikes, 0) + 1 WHERE id = :id;

-- name: take_job
UPDATE jobs SET
    status = 'processing', worker_id = :worker, server = :server, prompt_id = :prompt_id,
    lease_expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now', :seconds || ' seconds'),
    start_time = strftime('%Y-%m-%d %H:%M:%f', 'now'), end_time = NULL, duration = NULL,
    run_count = coalesce(run_count, 0) + 1, fence = coalesce(fence, 0) + 1, overtaken_at = NULL
WHERE id = :id AND status = 'pending'
RETURNING id, fence, config_name, job_type, workflow_id, template_hash, inputs, server, prompt_id, retries_attempted,
    strikes, retry_limit, failure_class, file_path, output_node, timeout_seconds, avoids, source, digest, pictures,
    batch_id, run_count, needs;

-- name: open_attempt
INSERT INTO attempts (job_id, number, server, prompt_id, worker_id, is_load, started_at)
VALUES (:job_id, :number, :server, :prompt_id, :worker, :is_load, strftime('%Y-%m-%d %H:%M:%f', 'now'))
RETURNING id;

-- name: renew_leases
UPDATE jobs SET lease_expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now', :seconds || ' seconds')
WHERE worker_id = :worker AND status = 'processing'
RETURNING id, fence;

-- name: held_leases
SELECT id, fence FROM jobs WHERE worker_id = :worker AND status = 'processing';

-- name: prove_lease
UPDATE jobs SET lease_expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now', :seconds || ' seconds')
WHERE id = :id AND fence = :fence AND status = 'processing'
RETURNING id;

-- name: note_running
-- Seconds, not a time: clocks step, and seconds without an agent do not count.
UPDATE attempts SET running_seconds = :seconds, sent = coalesce(:sent, sent)
WHERE id = :attempt_id AND outcome IS NULL
    AND EXISTS (SELECT 1 FROM jobs WHERE id = attempts.job_id AND fence = :fence AND status = 'processing');

-- name: release_jobs
-- At a clean end. The prompts stay at their servers for the next agent.
UPDATE jobs SET status = 'pending', worker_id = NULL, lease_expires_at = NULL
WHERE worker_id = :worker AND status = 'processing';

-- name: seconds_until_next
SELECT (julianday(min(next_attempt_at)) - julianday('now')) * 86400.0 AS seconds
FROM jobs INDEXED BY idx_jobs_backoff WHERE status = 'pending' AND hold = 'backoff';

-- name: take_lock
-- False if another process keeps this lock for long.
SELECT {try_lock(:name)} AS is_locked;

-- name: load_of_server
-- How many prompts of all agents are at a server, how many of them are suspects, whether people took the server out of
-- work, and the model set that it was given last. Prompts without a living lease count only for agents that may take
-- them over.
SELECT count(*) AS open, count(*) FILTER (WHERE jobs.strikes > 0) AS suspects,
    count(*) FILTER (WHERE jobs.batch_id IS NOT DISTINCT FROM :batch_id) AS own,
    EXISTS (SELECT 1 FROM server_states WHERE server_states.server = :server) AS is_out_of_work,
    (SELECT model_set FROM server_sets WHERE server_sets.server = :server) AS model_set
FROM attempts LEFT JOIN jobs ON jobs.id = attempts.job_id
WHERE attempts.server = :server AND {is_open} AND (
    CASE WHEN CAST(:batch_id AS text) IS NULL THEN jobs.reserved IS NULL ELSE jobs.batch_id = :batch_id END
    OR (jobs.status = 'processing' AND jobs.lease_expires_at > {now}));

-- part: for_this_server
-- The job is at no server, its batch is not being ended, and it does not avoid this one. A job with an open attempt is
-- taken over, not run again; one whose server was lost may go to another. It has one open attempt at most: asked for as
-- a value, it is always looked up by its job.
(SELECT job_id FROM attempts
    WHERE job_id = jobs.id AND outcome IS NULL AND (lost_at IS NULL OR attempts.server = :server)) IS NULL
AND NOT EXISTS (SELECT 1 FROM ending_members WHERE job_id = jobs.id)
AND (avoids IS NULL OR :is_only OR {instr}({newline} || avoids, {newline} || :server || {newline}) = 0)

-- part: queue_index
{index(idx_jobs_sets)}

-- part: queue_waits
jobs.status = 'pending' AND hold IS NULL AND reserved IS NULL

-- part: batch_index
{index(idx_jobs_batch_next)}

-- part: batch_waits
jobs.batch_id = :batch_id AND jobs.batch_id IS NOT NULL AND jobs.status = 'pending' AND hold IS NULL

-- part: candidate
-- What a lease has to know of a job. One that was being executed at a server when that was lost is a suspect.
jobs.id, jobs.batch_id, jobs.lost_at IS NOT NULL AS is_lost,
    coalesce(jobs.strikes, 0) + CASE WHEN EXISTS (
        SELECT 1 FROM attempts WHERE job_id = jobs.id AND outcome IS NULL AND running_seconds > 0) THEN 1 ELSE 0 END AS strikes,
    coalesce(batches.is_serial = 1 OR batches.kind = 'book' AND :one_page, false) AS is_serial

-- part: heads_of(which)
-- The next priority that has jobs for a server, and the first of them for each needs. Found without reading the others.
WITH RECURSIVE heads(id, priority, needs) AS (
    SELECT id, {rank(priority)}, coalesce(needs, '') FROM jobs WHERE id = (
        SELECT id FROM jobs {{which}_index}
        WHERE {{which}_waits} AND {rank(priority)} > CAST(:after AS {whole_number}) AND {for_this_server}
        ORDER BY {rank(priority)}, coalesce(needs, ''), id LIMIT 1)
    UNION ALL
    SELECT next.id, heads.priority, coalesce(next.needs, '') FROM heads CROSS JOIN jobs AS next WHERE next.id = (
        SELECT id FROM jobs {{which}_index}
        WHERE {{which}_waits} AND {rank(priority)} = heads.priority AND coalesce(needs, '') > heads.needs
            AND {for_this_server}
        ORDER BY coalesce(needs, ''), id LIMIT 1))
SELECT {candidate}, heads.priority, heads.needs, coalesce({seconds_since(overtaken_at)}, 0) AS overtaken_seconds
FROM heads CROSS JOIN jobs LEFT JOIN batches ON batches.id = jobs.batch_id WHERE jobs.id = heads.id;

-- name: heads_of_queue
{heads_of(queue)}

-- name: heads_of_batch
{heads_of(batch)}

-- name: heads_from
-- The same in a priority, from the jobs on that were the first before: what lies in front of them is not walked through.
SELECT {candidate}, {rank(jobs.priority)} AS priority, coalesce(jobs.needs, '') AS needs,
    coalesce({seconds_since(jobs.overtaken_at)}, 0) AS overtaken_seconds
FROM {listed_numbers(:ids)} CROSS JOIN jobs AS before CROSS JOIN jobs LEFT JOIN batches ON batches.id = jobs.batch_id
WHERE before.id = listed.value AND jobs.id = (
    SELECT id FROM jobs {queue_index}
    WHERE {queue_waits}
        AND {rank(priority)} = :priority AND coalesce(needs, '') = coalesce(before.needs, '') AND id >= before.id
        AND {for_this_server}
    ORDER BY id LIMIT 1);

-- part: next_of(which)
-- The next jobs of a priority with certain needs, oldest first.
SELECT {candidate} FROM jobs {{which}_index} LEFT JOIN batches ON batches.id = jobs.batch_id
WHERE {{which}_waits} AND {rank(priority)} = :priority AND coalesce(needs, '') = :needs
    AND (CAST(:below AS bigint) IS NULL OR jobs.id < :below) AND jobs.id >= :first AND {for_this_server}
ORDER BY jobs.id LIMIT :most {lock(jobs)};

-- name: next_jobs
{next_of(queue)}

-- name: next_jobs_of_batch
{next_of(batch)}

-- name: sets_elsewhere
SELECT server, model_set FROM server_sets
WHERE server <> :server AND model_set IS NOT NULL AND EXISTS (
    SELECT 1 FROM attempts WHERE attempts.server = server_sets.server AND {is_open});

-- name: count_of_set
SELECT count(*) AS jobs FROM (
    SELECT 1 FROM jobs {queue_index}
    WHERE {queue_waits} AND {rank(priority)} = :priority AND coalesce(needs, '') = :needs LIMIT :most) AS waiting;

-- name: note_set
-- A server gets jobs of another model set than before.
INSERT INTO server_sets (server, model_set, needs, since, loads)
VALUES (:server, :model_set, :needs, {now}, 1)
ON CONFLICT (server) DO UPDATE SET
    model_set = excluded.model_set, needs = excluded.needs, since = excluded.since, loads = server_sets.loads + 1
WHERE server_sets.model_set IS DISTINCT FROM excluded.model_set;

-- name: note_overtaken
-- The oldest job for a server waits while later ones are taken. Its time counts from the first time on, at any server.
UPDATE jobs SET overtaken_at = {now} WHERE id = :id AND overtaken_at IS NULL;

-- name: count_overtake
UPDATE server_sets SET overtakes = overtakes + 1, stays = stays + CAST(:is_stay AS integer) WHERE server = :server;

-- name: forget_set
-- The server was restarted, or may have been: nothing is loaded there.
UPDATE server_sets SET model_set = NULL WHERE server = :server AND model_set IS NOT NULL;

-- name: strike_job
UPDATE jobs SET strikes = coalesce(strikes, 0) + 1 WHERE id = :id;

-- part: taken
UPDATE jobs SET
    status = 'processing', worker_id = :worker, server = :server, prompt_id = :prompt_id,
    lease_expires_at = {in_seconds(:seconds)},
    start_time = {now}, end_time = NULL, duration = NULL,
    run_count = coalesce(run_count, 0) + 1, fence = coalesce(fence, 0) + 1, overtaken_at = NULL
WHERE id = (SELECT id FROM jobs WHERE id = :id AND status = 'pending' AND hold IS NULL {lock(jobs)})

-- part: leased
id, fence, config_name, job_type, workflow_id, template_hash, inputs, server, prompt_id, retries_attempted, strikes,
    retry_limit, failure_class, file_path, output_node, timeout_seconds, avoids, source, digest, pictures, batch_id,
    run_count, needs, take, reuse

-- name: leased_prompts
-- What a worker has under these prompt ids.
SELECT jobs.*, attempts.id AS attempt_id FROM attempts JOIN jobs ON jobs.id = attempts.job_id
WHERE attempts.prompt_id IN ({texts(:prompt_ids)}) AND attempts.outcome IS NULL AND jobs.status = 'processing'
    AND jobs.worker_id = :worker;

-- part: opened(taken)
INSERT INTO attempts (job_id, number, server, prompt_id, worker_id, is_load, started_at)
SELECT id, run_count, :server, :prompt_id, :worker, CAST(:is_load AS integer), {now} FROM {taken}

-- part: started(taken)
INSERT INTO events (at, event, job_id, prompt_id, server, wait_sec)
SELECT {now}, 'job.started', id, prompt_id, server,
    round(CAST({seconds_since(created_at)} AS numeric), 3)
FROM {taken}

-- name: held_leases
SELECT id, fence FROM jobs WHERE worker_id = :worker AND status = 'processing';

-- name: prove_lease
UPDATE jobs SET lease_expires_at = {in_seconds(:seconds)}
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
SELECT min(-({seconds_since(next_attempt_at)})) AS seconds
FROM jobs {index(idx_jobs_backoff)} WHERE status = 'pending' AND hold = 'backoff';

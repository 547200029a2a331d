-- name: waiting_by_needs
-- How many jobs may run, by priority and needs. Each is found without reading the others, and counted up to a limit.
WITH RECURSIVE heads(id, priority, needs) AS (
    SELECT id, max(coalesce(priority, -1e18), -1e18), coalesce(needs, '') FROM jobs WHERE id = (
        SELECT id FROM jobs INDEXED BY idx_jobs_sets
        WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND max(coalesce(priority, -1e18), -1e18) > -2e18
        ORDER BY max(coalesce(priority, -1e18), -1e18), coalesce(needs, ''), id LIMIT 1)
    UNION ALL
    SELECT next.id, max(coalesce(next.priority, -1e18), -1e18), coalesce(next.needs, '')
    FROM heads CROSS JOIN jobs AS next ON next.id = coalesce(
        (SELECT id FROM jobs INDEXED BY idx_jobs_sets
        WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND max(coalesce(priority, -1e18), -1e18) = heads.priority AND coalesce(needs, '') > heads.needs
        ORDER BY coalesce(needs, ''), id LIMIT 1),
        (SELECT id FROM jobs INDEXED BY idx_jobs_sets
        WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND max(coalesce(priority, -1e18), -1e18) > heads.priority
        ORDER BY max(coalesce(priority, -1e18), -1e18), coalesce(needs, ''), id LIMIT 1))
    LIMIT :most_groups)
SELECT heads.priority, heads.needs, heads.id AS first, coalesce(workflow, heads.needs) AS workflow,
    coalesce(model_set, heads.needs) AS model_set, coalesce(pixels, 0) AS pixels,
    (SELECT id FROM jobs INDEXED BY idx_jobs_sets
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
        AND max(coalesce(priority, -1e18), -1e18) = heads.priority AND coalesce(needs, '') = heads.needs
    ORDER BY id DESC LIMIT 1) AS last,
    (SELECT count(*) FROM (
        SELECT 1 FROM jobs INDEXED BY idx_jobs_sets
        WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND max(coalesce(priority, -1e18), -1e18) = heads.priority AND coalesce(needs, '') = heads.needs
        LIMIT :most)) AS jobs
FROM heads LEFT JOIN needs ON needs.key = heads.needs;

-- name: members_by_needs
-- The same of one batch.
WITH RECURSIVE heads(id, priority, needs) AS (
    SELECT id, max(coalesce(priority, -1e18), -1e18), coalesce(needs, '') FROM jobs WHERE id = (
        SELECT id FROM jobs INDEXED BY idx_jobs_batch_next
        WHERE batch_id = :batch_id AND batch_id IS NOT NULL AND status = 'pending' AND hold IS NULL
        ORDER BY max(coalesce(priority, -1e18), -1e18), coalesce(needs, ''), id LIMIT 1)
    UNION ALL
    SELECT next.id, max(coalesce(next.priority, -1e18), -1e18), coalesce(next.needs, '')
    FROM heads CROSS JOIN jobs AS next ON next.id = coalesce(
        (SELECT id FROM jobs INDEXED BY idx_jobs_batch_next
        WHERE batch_id = :batch_id AND batch_id IS NOT NULL AND status = 'pending' AND hold IS NULL
            AND max(coalesce(priority, -1e18), -1e18) = heads.priority AND coalesce(needs, '') > heads.needs
        ORDER BY coalesce(needs, ''), id LIMIT 1),
        (SELECT id FROM jobs INDEXED BY idx_jobs_batch_next
        WHERE batch_id = :batch_id AND batch_id IS NOT NULL AND status = 'pending' AND hold IS NULL
            AND max(coalesce(priority, -1e18), -1e18) > heads.priority
        ORDER BY max(coalesce(priority, -1e18), -1e18), coalesce(needs, ''), id LIMIT 1))
    LIMIT :most_groups)
SELECT heads.priority, heads.needs, heads.id AS first, coalesce(workflow, heads.needs) AS workflow,
    coalesce(model_set, heads.needs) AS model_set, coalesce(pixels, 0) AS pixels,
    (SELECT id FROM jobs INDEXED BY idx_jobs_batch_next
    WHERE batch_id = :batch_id AND batch_id IS NOT NULL AND status = 'pending' AND hold IS NULL
        AND max(coalesce(priority, -1e18), -1e18) = heads.priority AND coalesce(needs, '') = heads.needs
    ORDER BY id DESC LIMIT 1) AS last,
    (SELECT count(*) FROM (
        SELECT 1 FROM jobs INDEXED BY idx_jobs_batch_next
        WHERE batch_id = :batch_id AND batch_id IS NOT NULL AND status = 'pending' AND hold IS NULL
            AND max(coalesce(priority, -1e18), -1e18) = heads.priority AND coalesce(needs, '') = heads.needs
        LIMIT :most)) AS jobs
FROM heads LEFT JOIN needs ON needs.key = heads.needs;

-- name: count_before
-- How many jobs of a priority and needs have a smaller id.
SELECT count(*) AS jobs FROM (
    SELECT 1 FROM jobs INDEXED BY idx_jobs_sets
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
        AND max(coalesce(priority, -1e18), -1e18) = :priority AND coalesce(needs, '') = :needs
        AND id < :below LIMIT :most);

-- name: held_jobs
-- Jobs that run by themselves later: after a backoff, or when it is their turn.
SELECT max(coalesce(priority, -1e18), -1e18) AS priority, jobs.id AS first, jobs.id AS last, 1 AS jobs, batch_id,
    coalesce(needs, '') AS needs, coalesce(workflow, needs, '') AS workflow, coalesce(model_set, needs, '') AS model_set,
    coalesce(pixels, 0) AS pixels, max(0.0, coalesce((julianday(next_attempt_at) - julianday('now')) * 86400.0, 0.0)) AS after
FROM jobs INDEXED BY idx_jobs_held LEFT JOIN needs ON needs.key = jobs.needs
WHERE status = 'pending' AND hold IN ('backoff', 'turn') AND reserved IS NULL LIMIT :most;

-- name: count_held
SELECT count(*) AS jobs FROM jobs INDEXED BY idx_jobs_held WHERE status = 'pending' AND hold IS NOT NULL;

-- name: runs_at_servers
-- What living agents have at each server, in the order in which it was given to it.
SELECT attempts.server, batch_id, coalesce(is_load, 0) AS is_load, coalesce(jobs.needs, '') AS needs,
    jobs.id AS last_job, max(coalesce(priority, -1e18), -1e18) AS last_priority,
    coalesce(workflow, jobs.needs, '') AS workflow, coalesce(model_set, jobs.needs, '') AS model_set,
    coalesce(pixels, 0) AS pixels, (julianday('now') - julianday(started_at)) * 86400.0 AS age
FROM attempts INDEXED BY idx_attempts_at_server CROSS JOIN jobs ON jobs.id = attempts.job_id
    LEFT JOIN needs ON needs.key = jobs.needs
WHERE outcome IS NULL AND attempts.server IS NOT NULL AND status = 'processing'
    AND lease_expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now')
ORDER BY attempts.server, attempts.id;

-- name: newest_ends
-- How long ago each server has ended a job, of those that did so last.
SELECT server, (julianday('now') - julianday(max(end_time))) * 86400.0 AS ago FROM (
    SELECT server, end_time FROM jobs INDEXED BY idx_jobs_ended
    WHERE status = 'done' AND end_time IS NOT NULL ORDER BY end_time DESC LIMIT :most)
WHERE server IS NOT NULL GROUP BY server;

-- name: sets_of_servers
SELECT server, model_set FROM server_sets;

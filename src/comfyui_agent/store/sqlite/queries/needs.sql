-- name: keep_needs
INSERT INTO needs (key, workflow, model_set, models, classes, pixels)
VALUES (:key, :workflow, :model_set, :models, :classes, :pixels)
ON CONFLICT (key) DO NOTHING;

-- name: find_needs
SELECT key, workflow, model_set, models, classes, pixels, memory_over FROM needs
WHERE key IN (SELECT value FROM json_each(:keys));

-- name: needs_of_memory
SELECT key, workflow, model_set, models, classes, pixels, memory_over FROM needs WHERE memory_over IS NOT NULL;

-- name: jobs_without_needs
-- Rows that were made by hand, or before needs were known.
SELECT id, template_hash, workflow_id, inputs FROM jobs INDEXED BY idx_jobs_sets
WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
    AND max(coalesce(priority, -1e18), -1e18) = :priority AND coalesce(needs, '') = ''
ORDER BY id LIMIT :most;

-- name: set_needs
UPDATE jobs SET needs = :needs WHERE id = :id AND needs IS NULL;

-- name: raise_memory
-- Jobs with these needs ran out of memory where so much could be had.
UPDATE needs SET memory_over = max(coalesce(memory_over, 0), :memory) WHERE key = :key;

-- name: note_timing
-- How long a render took: a running mean, apart for renders that had to load models.
INSERT INTO timings (needs, server, runs, seconds, loads, cold_seconds)
SELECT jobs.needs, attempts.server, NOT is_load, iif(is_load, NULL, :seconds), is_load, iif(is_load, :seconds, NULL)
FROM attempts CROSS JOIN jobs ON jobs.id = attempts.job_id
WHERE attempts.id = :attempt_id AND jobs.needs IS NOT NULL AND is_load IS NOT NULL AND attempts.server IS NOT NULL
ON CONFLICT (needs, server) DO UPDATE SET
    runs = runs + excluded.runs, loads = loads + excluded.loads,
    seconds = coalesce(seconds + 0.3 * (excluded.seconds - seconds), excluded.seconds, seconds),
    cold_seconds = coalesce(
        cold_seconds + 0.3 * (excluded.cold_seconds - cold_seconds), excluded.cold_seconds, cold_seconds);

-- name: timings
SELECT timings.needs, server, runs, seconds, loads, cold_seconds, workflow, pixels, model_set
FROM timings JOIN needs ON needs.key = timings.needs;

-- name: renders_at
SELECT needs, sum(runs + loads) AS renders, avg(coalesce(seconds, cold_seconds)) AS seconds FROM timings
WHERE server IN (SELECT value FROM json_each(:servers)) GROUP BY needs;

-- name: server_sets
SELECT server_sets.server, server_sets.model_set, since, loads, stays, overtakes, models
FROM server_sets LEFT JOIN needs ON needs.key = server_sets.needs;

-- name: waiting_needs
-- What the jobs that may run need, each once for every priority. Found without reading the others.
WITH RECURSIVE waiting(id, priority, needs) AS (
    SELECT id, max(coalesce(priority, -1e18), -1e18), coalesce(needs, '') FROM jobs WHERE id = (
        SELECT id FROM jobs INDEXED BY idx_jobs_sets WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND max(coalesce(priority, -1e18), -1e18) > -2e18
        ORDER BY max(coalesce(priority, -1e18), -1e18), coalesce(needs, ''), id LIMIT 1)
    UNION ALL
    SELECT next.id, max(coalesce(next.priority, -1e18), -1e18), coalesce(next.needs, '')
    FROM waiting CROSS JOIN jobs AS next ON next.id = coalesce(
        (SELECT id FROM jobs INDEXED BY idx_jobs_sets WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND max(coalesce(priority, -1e18), -1e18) = waiting.priority AND coalesce(needs, '') > waiting.needs
            ORDER BY coalesce(needs, ''), id LIMIT 1),
        (SELECT id FROM jobs INDEXED BY idx_jobs_sets WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND max(coalesce(priority, -1e18), -1e18) > waiting.priority
            ORDER BY max(coalesce(priority, -1e18), -1e18), coalesce(needs, ''), id LIMIT 1))
    LIMIT :most)
SELECT DISTINCT key, workflow, needs.model_set, models, classes, pixels, memory_over
FROM waiting LEFT JOIN needs ON needs.key = waiting.needs;

-- name: jobs_ahead
-- How many jobs that may run come before a job: by their priority, and by their id within its own; since when it is
-- overtaken.
SELECT count(*) AS earlier, min(priority) AS first, max(priority) AS last, (
    SELECT (julianday('now') - julianday(overtaken_at)) * 86400.0 FROM jobs WHERE id = :id) AS overtaken_seconds, (
    SELECT count(*) FROM (
        SELECT 1 FROM jobs INDEXED BY idx_jobs_next
        WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND priority IS :priority AND id < :id
        LIMIT :most)) AS older
FROM (
    SELECT priority FROM jobs INDEXED BY idx_jobs_next
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND priority < :priority
    ORDER BY priority LIMIT :most);

-- name: find_needs
SELECT key, workflow, model_set, models, classes, pixels, memory_over FROM needs
WHERE key IN ({texts(:keys)});

-- name: known_models
SELECT DISTINCT models FROM needs LIMIT :most;

-- name: needs_of_memory
SELECT key, workflow, model_set, models, classes, pixels, memory_over FROM needs WHERE memory_over IS NOT NULL;

-- name: jobs_without_needs
-- Rows that were made by hand, or before needs were known.
SELECT id, template_hash, workflow_id, inputs FROM jobs {index(idx_jobs_sets)}
WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
    AND {rank(priority)} = :priority AND coalesce(needs, '') = ''
ORDER BY id LIMIT :most;

-- name: set_needs
UPDATE jobs SET needs = :needs WHERE id = :id AND coalesce(needs, '') = '';

-- name: raise_memory
-- Jobs with these needs ran out of memory where so much could be had.
UPDATE needs SET memory_over = :memory WHERE key = :key AND coalesce(memory_over, 0) < :memory;

-- part: timed
-- How long renders took: a running mean, apart for renders that had to load models.
INSERT INTO timings (needs, server, runs, seconds, loads, cold_seconds)
SELECT needs, server, 1 - is_load, CASE is_load WHEN 0 THEN took.seconds END, is_load, CASE is_load WHEN 1 THEN took.seconds END
FROM ended CROSS JOIN (SELECT CAST(:duration AS double precision) AS seconds) AS took
WHERE needs IS NOT NULL AND is_load IS NOT NULL AND server IS NOT NULL AND took.seconds IS NOT NULL
ON CONFLICT (needs, server) DO UPDATE SET
    runs = timings.runs + excluded.runs, loads = timings.loads + excluded.loads,
    seconds = coalesce(
        timings.seconds + 0.3 * (excluded.seconds - timings.seconds), excluded.seconds, timings.seconds),
    cold_seconds = coalesce(
        timings.cold_seconds + 0.3 * (excluded.cold_seconds - timings.cold_seconds), excluded.cold_seconds,
        timings.cold_seconds)

-- name: timings
SELECT timings.needs, server, runs, seconds, loads, cold_seconds, model_set
FROM timings JOIN needs ON needs.key = timings.needs;

-- name: renders_at
SELECT needs, sum(runs + loads) AS renders, avg(coalesce(seconds, cold_seconds)) AS seconds FROM timings
WHERE server IN ({texts(:servers)}) GROUP BY needs;

-- name: seconds_like
-- Mean seconds of renders with the same models at the same size, whatever their workflow. NULL if there were none.
SELECT avg(coalesce(seconds, cold_seconds)) AS seconds FROM timings JOIN needs ON needs.key = timings.needs
WHERE model_set = :model_set AND model_set <> '' AND pixels = :pixels;

-- name: server_sets
SELECT server_sets.server, server_sets.model_set, since, loads, stays, overtakes, models
FROM server_sets LEFT JOIN needs ON needs.key = server_sets.needs;

-- name: waiting_needs
-- What the jobs that may run need, each once for every priority. Found without reading the others.
WITH RECURSIVE waiting(id, priority, needs, number) AS (
    SELECT id, {rank(priority)}, coalesce(needs, ''), 1 FROM jobs WHERE id = (
        SELECT id FROM jobs {index(idx_jobs_sets)} WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND {rank(priority)} > CAST(-2e18 AS {whole_number})
        ORDER BY {rank(priority)}, coalesce(needs, ''), id LIMIT 1)
    UNION ALL
    SELECT next.id, {rank(next.priority)}, coalesce(next.needs, ''), number + 1
    FROM waiting CROSS JOIN jobs AS next WHERE number < :most AND next.id = coalesce(
        (SELECT id FROM jobs {index(idx_jobs_sets)} WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND {rank(priority)} = waiting.priority AND coalesce(needs, '') > waiting.needs
            ORDER BY coalesce(needs, ''), id LIMIT 1),
        (SELECT id FROM jobs {index(idx_jobs_sets)} WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
            AND {rank(priority)} > waiting.priority
            ORDER BY {rank(priority)}, coalesce(needs, ''), id LIMIT 1)))
SELECT DISTINCT key, workflow, needs.model_set, models, classes, pixels, memory_over
FROM waiting LEFT JOIN needs ON needs.key = waiting.needs;

-- name: jobs_ahead
-- How many jobs that may run come before a job: by their priority, and by their id within its own; since when it is
-- overtaken.
SELECT count(*) AS earlier, min(priority) AS first, max(priority) AS last, (
    SELECT {seconds_since(overtaken_at)} FROM jobs WHERE id = :id) AS overtaken_seconds, (
    SELECT count(*) FROM (
        SELECT 1 FROM jobs {index(idx_jobs_next)}
        WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND priority IS NOT DISTINCT FROM :priority AND id < :id
        LIMIT :most) AS mine) AS older
FROM (
    SELECT priority FROM jobs {index(idx_jobs_next)}
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND priority < :priority
    ORDER BY priority LIMIT :most) AS better;

-- name: work_left
-- How many jobs wait or run, by priority and needs, each at every server at work that can run it, with the mean
-- seconds of what is most like it. With a batch: what is done by the time its last job is, and apart what is later in
-- its priority. What runs counts half. Nothing if there are too many kinds to play through.
WITH last(priority, id) AS (
    SELECT {rank(priority)}, id FROM jobs {index(idx_jobs_batch_status)}
    WHERE batch_id = :batch_id AND status IN ('pending', 'processing')
        AND coalesce(hold, 'backoff') IN ('backoff', 'turn') AND reserved IS NULL
    ORDER BY 1 DESC, 2 DESC LIMIT 1),
counts(priority, needs, jobs, later) AS (
    SELECT {rank(priority)}, coalesce(needs, ''), count(*),
        count(*) FILTER (WHERE ({rank(priority)}, id) > (SELECT priority, id FROM last))
    FROM jobs {index(idx_jobs_sets)}
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
    GROUP BY {rank(priority)}, coalesce(needs, '')
    UNION ALL
    SELECT {rank(priority)}, coalesce(needs, ''), count(*),
        count(*) FILTER (WHERE ({rank(priority)}, id) > (SELECT priority, id FROM last))
    FROM jobs {index(idx_jobs_held)}
    WHERE status = 'pending' AND hold IN ('backoff', 'turn') AND reserved IS NULL GROUP BY 1, 2
    UNION ALL
    SELECT {rank(priority)}, coalesce(needs, ''), 0.5 * count(*),
        0.5 * count(*) FILTER (WHERE ({rank(priority)}, jobs.id) > (SELECT priority, id FROM last))
    FROM attempts {index(idx_attempts_at_server)} CROSS JOIN jobs
    WHERE jobs.id = attempts.job_id AND {is_open} AND attempts.server IS NOT NULL AND status = 'processing' AND reserved IS NULL GROUP BY 1, 2),
kinds AS (
    SELECT priority, counts.needs, coalesce(workflow, counts.needs) AS workflow, pixels,
        coalesce(model_set, counts.needs) AS model_set, is_later,
        CAST(sum(CASE is_later WHEN 1 THEN later ELSE jobs - later END) AS double precision) AS jobs
    FROM counts CROSS JOIN (SELECT 0 AS is_later UNION ALL SELECT 1) AS parts LEFT JOIN needs ON needs.key = counts.needs
    WHERE (CAST(:batch_id AS text) IS NULL OR priority <= (SELECT priority FROM last)) AND (SELECT count(*) FROM counts) <= 500
        AND CASE is_later WHEN 1 THEN later ELSE jobs - later END > 0
    GROUP BY priority, counts.needs, is_later, workflow, pixels, model_set),
busy(server) AS (
    SELECT attempts.server FROM attempts {index(idx_attempts_at_server)} CROSS JOIN jobs
    WHERE jobs.id = attempts.job_id AND {is_open} AND attempts.server IS NOT NULL AND lease_expires_at > {now}
    UNION
    SELECT server FROM jobs {index(idx_jobs_ended)}
    WHERE status = 'done' AND server IS NOT NULL AND end_time > {seconds_ago(10)}),
at_work AS (
    SELECT known.server, model_set FROM (
        SELECT server FROM busy
        UNION
        {texts(:configured)} WHERE NOT EXISTS (SELECT 1 FROM busy)) AS known
    LEFT JOIN server_sets ON server_sets.server = known.server
    WHERE known.server NOT IN (SELECT server FROM server_states)),
measured AS MATERIALIZED (
    SELECT timings.needs, server, workflow, pixels, model_set, runs + loads AS renders, seconds,
        CASE WHEN cold_seconds < seconds THEN 0.0 ELSE cold_seconds - seconds END AS load_seconds
    FROM timings JOIN needs ON needs.key = timings.needs)
SELECT priority, kinds.needs, kinds.model_set, is_later, jobs, coalesce(at_work.server, '') AS server,
    at_work.model_set AS loaded,
    {greatest}(0.001, coalesce(
        (SELECT seconds FROM measured AS alike WHERE alike.needs = kinds.needs AND alike.server = at_work.server),
        (SELECT avg(seconds) FROM measured AS alike WHERE alike.workflow = kinds.workflow
            AND alike.pixels = kinds.pixels AND alike.server = at_work.server),
        (SELECT avg(seconds) FROM measured AS alike WHERE alike.needs = kinds.needs),
        (SELECT avg(seconds) FROM measured AS alike WHERE alike.workflow = kinds.workflow),
        (SELECT avg(seconds) FROM measured), 0.0)) AS seconds,
    coalesce(
        (SELECT avg(load_seconds) FROM measured AS alike WHERE alike.model_set = kinds.model_set),
        (SELECT avg(load_seconds) FROM measured), 0.0) AS load_seconds
-- A server that never had these models counts until others have rendered with them a hundred times.
FROM kinds LEFT JOIN at_work ON EXISTS (SELECT 1 FROM measured WHERE seconds IS NOT NULL) AND (
    EXISTS (SELECT 1 FROM measured AS own WHERE own.model_set = kinds.model_set AND own.server = at_work.server)
    OR (SELECT coalesce(sum(renders), 0) FROM measured AS found WHERE found.model_set = kinds.model_set) < 100)
ORDER BY at_work.server, priority, kinds.needs;

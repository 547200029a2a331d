-- Queries that use what only PostgreSQL has.

-- name: pages_of_book
-- Failures that are too long are cut to the newest one. Metadata that is too long is left out.
WITH pages AS MATERIALIZED (
    SELECT * FROM book_pages
    WHERE book_id = :id AND coalesce(page, 0) > :after AND coalesce(page, 0) <= :until)
SELECT book_id, page, status, retry_count, last_attempted_at, needs_regeneration,
    CASE WHEN octet_length(image_error) > :longest THEN CAST(json_build_array(json_build_object(
        'kind', CAST(image_error AS json) -> -1 ->> 'kind',
        'message', left(CAST(image_error AS json) -> -1 ->> 'message', 200),
        'at', CAST(image_error AS json) -> -1 ->> 'at',
        'attempt', CAST(image_error AS json) -> -1 -> 'attempt')) AS text) ELSE image_error END AS image_error,
    CASE WHEN octet_length(job_metadata) > :longest THEN '{}' ELSE job_metadata END AS job_metadata
FROM pages ORDER BY page;

-- name: keep_burst
UPDATE batches SET metadata = CAST(jsonb_set(coalesce(CAST(metadata AS jsonb), '{}'), ARRAY[CAST(:key AS text)],
    CAST(:value AS jsonb)) AS text) WHERE id = :id;

-- name: check_pages
-- PostgreSQL checks its pages itself, if its checksums are on.
SELECT 'ok' AS problem;

-- name: wrong_counts
SELECT status, said, counted FROM (
    SELECT status, CAST(sum(jobs) AS bigint) AS said, CASE status
        WHEN 'attention' THEN (SELECT count(*) FROM jobs AS job WHERE e3_needs_attention(job))
        ELSE (SELECT count(*) FROM jobs WHERE jobs.status = job_counts.status) END AS counted
    FROM job_counts GROUP BY status) AS both_counts
WHERE said <> counted;

-- name: recount
WITH wrong AS (DELETE FROM job_counts)
INSERT INTO job_counts
SELECT status, count(jobs.id) FROM (VALUES ('pending'), ('processing'), ('done'), ('failed')) AS known(status)
LEFT JOIN jobs USING (status) GROUP BY status
UNION ALL SELECT 'attention', count(*) FROM jobs AS job WHERE e3_needs_attention(job);

-- name: size_of_database
SELECT pg_database_size(current_database()) AS bytes, 0 AS free;

-- name: kept_pictures
-- The names of kept input files that jobs use, or clients have uploaded.
SELECT DISTINCT named.value AS name FROM (SELECT pictures FROM jobs UNION ALL SELECT pictures FROM takes) AS used
CROSS JOIN jsonb_each_text(e3_json(used.pictures)) AS named
WHERE used.pictures IS NOT NULL AND jsonb_typeof(e3_json(used.pictures)) = 'object'
UNION SELECT kept FROM uploads;

-- part: inserted
-- All of a submission in one statement. A name or an external id that is taken is left out. A job with an error_trace has failed already.
-- A job whose batch is not whole yet waits for that. The creator of the batch is the creator of its jobs.
INSERT INTO jobs (config_name, job_type, workflow_id, priority, status, retry_limit, metadata, template_hash, inputs,
    file_path, output_node, timeout_seconds, batch_id, batch_index, source, digest, pictures, error_trace,
    failure_class, needs_regeneration, end_time, created_at, retries_attempted, run_count, reserved, created_by, needs,
    external_id, reuse, hold)
SELECT job.config_name, job_type, workflow_id, priority, CASE WHEN error_trace IS NULL THEN 'pending' ELSE 'failed' END,
    retry_limit, job.metadata, template_hash, inputs, file_path, output_node, timeout_seconds, batch_id, batch_index,
    source, digest, pictures, error_trace, CASE WHEN error_trace IS NOT NULL THEN 'invalid' END,
    CASE WHEN error_trace IS NULL THEN 0 ELSE 1 END, CASE WHEN error_trace IS NOT NULL THEN {now} END, {now}, 0, 0,
    reserved, coalesce(job.created_by, batches.created_by), needs, job.external_id, job.reuse, CASE
        WHEN error_trace IS NOT NULL THEN NULL
        WHEN batches.status = 'pending' THEN 'filling'
        WHEN reserved = 1 THEN 'burst' END
FROM ROWS FROM (json_to_recordset(CAST(:jobs AS json)) AS (
    config_name text, job_type text, workflow_id text, priority bigint, retry_limit bigint, metadata text,
    template_hash text, inputs text, file_path text, output_node text, timeout_seconds double precision, batch_id text,
    batch_index bigint, source text, digest text, pictures text, error_trace text, reserved bigint, created_by bigint,
    needs text, external_id text, reuse text)) WITH ORDINALITY AS job
LEFT JOIN batches ON batches.id = job.batch_id
ORDER BY job.ordinality
ON CONFLICT DO NOTHING
RETURNING id, config_name

-- name: insert_jobs
{inserted};

-- name: submit_jobs
-- The same, told as submitted.
WITH {kept_workflows},
inserted AS ({inserted}),
told AS (INSERT INTO events (at, event, job_id) SELECT {now}, 'job.submitted', id FROM inserted ORDER BY id)
SELECT id, config_name FROM inserted;

-- name: jobs_of_lost_commit
-- Jobs of these names that were made by the last transaction whose answer was lost, or later. Its time is rounded, those of
-- jobs are cut off.
SELECT id, config_name FROM jobs
WHERE config_name IN ({texts(:names)})
    AND created_at >= CAST(current_setting('e3.lost_commit_at') AS timestamptz) - interval '1 millisecond';

-- name: renew_job
-- The row gets what its file says now, and begins anew. The fence goes up: nobody has a lease on it.
UPDATE jobs SET
    job_type = job.job_type, workflow_id = job.workflow_id, priority = job.priority, retry_limit = job.retry_limit,
    metadata = job.metadata, template_hash = job.template_hash, inputs = job.inputs, file_path = job.file_path,
    output_node = job.output_node, timeout_seconds = job.timeout_seconds, source = job.source, digest = job.digest,
    pictures = job.pictures, needs = job.needs, error_trace = job.error_trace, created_by = NULL, external_id = NULL,
    status = CASE WHEN job.error_trace IS NULL THEN 'pending' ELSE 'failed' END,
    failure_class = CASE WHEN job.error_trace IS NOT NULL THEN 'invalid' END,
    needs_regeneration = CASE WHEN job.error_trace IS NULL THEN 0 ELSE 1 END,
    end_time = CASE WHEN job.error_trace IS NOT NULL THEN {now} END, created_at = {now},
    dismissed_at = NULL, resubmit = NULL, retries_attempted = 0, strikes = 0, avoids = NULL, hold = NULL,
    next_attempt_at = NULL, duration = NULL, worker_id = NULL, lease_expires_at = NULL, fence = coalesce(fence, 0) + 1
FROM json_to_record(CAST(:job AS json)) AS job(
    job_type text, workflow_id text, priority bigint, retry_limit bigint, metadata text, template_hash text, inputs text,
    file_path text, output_node text, timeout_seconds double precision, source text, digest text, pictures text,
    needs text, error_trace text)
WHERE jobs.id = :id AND jobs.status <> 'processing';

-- name: keep_rejection
-- The file that was rejected under this path has a new name. Its reason stays with it.
WITH moved AS (DELETE FROM rejections WHERE path = :path RETURNING reason, at)
INSERT INTO rejections (path, reason, at) SELECT :kept, reason, at FROM moved
ON CONFLICT (path) DO UPDATE SET reason = excluded.reason, at = excluded.at;

-- part: matches
-- The letters are taken apart once, not for every row.
trigrams @> (SELECT e3_trigrams(:match)) AND job_id < :id AND job_id > :above

-- name: names_matching
-- What many names contain is found among the newest, by their order; the index would have to sort all that it finds.
WITH near AS MATERIALIZED (
    SELECT job_id FROM (
        SELECT job_id, trigrams FROM job_names WHERE job_id < :id AND job_id > :above
        ORDER BY job_id DESC LIMIT 32 * CAST(:most AS bigint)) AS newest
    WHERE {matches} LIMIT :most)
SELECT {json_list(job_id)} AS ids FROM (
    SELECT job_id FROM near WHERE (SELECT count(*) FROM near) >= :most
    UNION ALL SELECT job_id FROM (
        SELECT job_id FROM (SELECT job_id FROM job_names WHERE {matches} OFFSET 0) AS indexed
        ORDER BY job_id DESC LIMIT :most) AS sorted
    WHERE (SELECT count(*) FROM near) < :most) AS listed;

-- name: names_indexed
-- The last indexed id and the newest id. The index counts as empty if its last id was never given: someone has reset
-- the ids by hand.
SELECT coalesce((
        SELECT CAST(value AS bigint) FROM about
        WHERE key = 'names_indexed'
            AND CAST(value AS bigint) <= (SELECT greatest(last_value, (SELECT max(id) FROM jobs)) FROM jobs_id_seq)),
        CAST(:first AS bigint)) AS indexed,
    (SELECT max(id) FROM jobs) AS newest;

-- name: forget_names
DELETE FROM job_names;

-- name: index_names
INSERT INTO job_names (job_id, trigrams)
SELECT id, e3_trigrams(config_name) FROM jobs WHERE id > :after AND id <= :last ORDER BY id
ON CONFLICT (job_id) DO NOTHING;

-- name: prompts_matching
-- As with names: what many prompts contain is found among the newest.
WITH near AS MATERIALIZED (
    SELECT id, job_id FROM (
        SELECT id, job_id, text FROM prompts WHERE id < :id ORDER BY id DESC LIMIT 8 * CAST(:most AS bigint)) AS prompts
    WHERE {has_words} LIMIT :most)
SELECT {json_list(job_id)} AS ids, {json_list(id)} AS places FROM (
    SELECT id, job_id FROM near WHERE (SELECT count(*) FROM near) >= :most
    UNION ALL SELECT id, job_id FROM (
        SELECT id, job_id FROM (
            SELECT id, job_id FROM prompts
            WHERE e3_trigrams(text) @> (
                SELECT array_agg(part) FROM json_array_elements_text(CAST(:letters AS json)), unnest(e3_trigrams(value)) AS part)
                AND id < :id OFFSET 0) AS indexed
        ORDER BY id DESC LIMIT :most) AS sorted
    WHERE (SELECT count(*) FROM near) < :most) AS listed;

-- name: add_prompts
INSERT INTO prompts (job_id, text)
SELECT CAST(value ->> 0 AS bigint), value ->> 1
FROM json_array_elements(CAST(:found AS json)) WITH ORDINALITY AS each(value, key) ORDER BY key;

-- name: forget_prompts
DELETE FROM prompts WHERE job_id IN ({numbers(:ids)});

-- name: forget_all_prompts
DELETE FROM prompts;

-- name: leave_server
-- Another server takes a job whose server was lost. The prompt at the lost server is deleted when it returns.
UPDATE attempts SET outcome = 'server_lost', ended_at = {now},
    error = CAST(json_build_object('kind', 'server_lost', 'message',
        'its server did not answer any more: another took the job', 'server', server, 'prompt_id', prompt_id) AS text)
WHERE job_id = :id AND outcome IS NULL
RETURNING coalesce(running_seconds, 0) > 0 AS was_running;

-- name: sessions
SELECT hash, token_id, least(
    created_at + CAST(:longest AS double precision) * interval '1 second',
    used_at + CAST(:idle AS double precision) * interval '1 second') AS ends_at
FROM sessions;

-- name: count_commit
-- The last statement of a transaction, for one that has changed something. It fails if the token is retired.
INSERT INTO writers (token, commits) SELECT :token, :commits WHERE pg_current_xact_id_if_assigned() IS NOT NULL
ON CONFLICT (token) DO UPDATE SET
    commits = CASE WHEN writers.commits >= 0 THEN excluded.commits END, at = excluded.at
RETURNING commits;

-- part: kept_workflows
-- Templates and needs of jobs, each once. To the end of the transaction unused templates are not removed: their jobs are
-- still on their way.
kept AS (
    INSERT INTO templates (hash, graph)
    SELECT hash, graph FROM json_to_recordset(CAST(:templates AS json)) AS each(hash text, graph text)
    CROSS JOIN pg_advisory_xact_lock_shared(hashtextextended('templates', 0))
    ON CONFLICT (hash) DO NOTHING),
needed AS (
    INSERT INTO needs (key, workflow, model_set, models, classes, pixels)
    SELECT key, workflow, model_set, models, classes, pixels FROM json_to_recordset(CAST(:needs AS json)) AS each(
        key text, workflow text, model_set text, models text, classes text, pixels bigint)
    ON CONFLICT (key) DO NOTHING)

-- name: keep_workflows
WITH {kept_workflows} SELECT 1 AS kept;

-- name: take_job
WITH taken AS ({taken} RETURNING {leased}, created_at),
opened AS ({opened(taken)} RETURNING id AS attempt_id),
told AS ({started(taken)})
SELECT taken.*, attempt_id FROM taken CROSS JOIN opened;

-- name: complete_job
-- It fails if the lease is lost.
WITH completed AS ({completed}),
told AS (
    INSERT INTO events (at, event, job_id, prompt_id, server, duration_sec)
    SELECT {now}, :event, id, prompt_id, server, round(CAST(duration AS numeric), 3) FROM completed),
ended AS (
    UPDATE attempts SET outcome = :outcome, ended_at = {now}, sent = coalesce(:sent, sent), is_cached = :is_cached FROM completed
    WHERE attempts.id = :attempt_id AND outcome IS NULL
    RETURNING completed.needs, attempts.server, is_load),
disclaimed AS (
    UPDATE files SET job_id = 0 FROM completed
    WHERE files.job_id = completed.id AND strays <> '[]' AND path IN ({texts(strays)})),
timed AS ({timed})
SELECT strays FROM completed UNION ALL SELECT e3_nothing() WHERE NOT EXISTS (SELECT 1 FROM completed);

-- name: begin_lease
-- Jobs whose backoff is over may run. A wait that is longer than any backoff was written before the clock stepped back.
-- The lock is that of the server's window, which is one for all agents; false if another keeps it for long.
WITH awake AS (UPDATE jobs SET hold = NULL, next_attempt_at = NULL
WHERE id = ANY (ARRAY(
    SELECT id FROM jobs WHERE status = 'pending' AND hold = 'backoff' AND id = ANY (ARRAY(
        SELECT id FROM jobs WHERE status = 'pending' AND hold = 'backoff' AND next_attempt_at <= {now}
        UNION ALL
        SELECT id FROM jobs WHERE status = 'pending' AND hold = 'backoff' AND next_attempt_at IS NULL
        UNION ALL
        SELECT id FROM jobs WHERE status = 'pending' AND hold = 'backoff' AND next_attempt_at > {in_seconds(:longest)}))
    FOR UPDATE SKIP LOCKED)))
SELECT {try_lock(:lock)} AS is_locked;

-- name: renew_leases
-- One that somebody has locked is still held, and is prolonged the next time.
WITH renewed AS (
    UPDATE jobs SET lease_expires_at = {in_seconds(:seconds)}
    WHERE id = ANY (ARRAY(
        SELECT id FROM jobs WHERE worker_id = :worker AND status = 'processing' FOR UPDATE SKIP LOCKED)))
SELECT id, fence FROM jobs WHERE worker_id = :worker AND status = 'processing';

-- Places in an order are compared as rows: two conditions could be met by way of another index.

-- name: rendering_after
SELECT {json_list(id)} AS ids FROM (
    SELECT id FROM jobs WHERE status = 'processing' AND (start_time, id) > (:key, :id)
    ORDER BY start_time NULLS FIRST, id LIMIT :most) AS listed;

-- name: waiting_after
SELECT {json_list(id)} AS ids FROM (
    SELECT id FROM jobs WHERE status = 'pending' AND (priority, id) > (:key, :id)
    ORDER BY priority NULLS FIRST, id LIMIT :most) AS listed;

-- name: ended_after
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs WHERE status = :status AND (end_time, id) < (:key, :id)
        ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs WHERE status = :status AND end_time IS NULL ORDER BY id DESC LIMIT :most) AS part
    LIMIT :most) AS listed;

-- name: attention_after
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs
        WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL
            AND (end_time, id) < (:key, :id) ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs
        WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL
            AND end_time IS NULL ORDER BY id DESC LIMIT :most) AS part
    LIMIT :most) AS listed;

-- name: rated_after
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs WHERE rating = :rating AND (end_time, id) < (:key, :id)
        ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs WHERE rating = :rating AND end_time IS NULL ORDER BY id DESC LIMIT :most) AS part
    LIMIT :most) AS listed;

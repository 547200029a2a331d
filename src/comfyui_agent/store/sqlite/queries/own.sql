-- Queries that use what only SQLite has.

-- name: pages_of_book
-- Failures that are too long are cut to the newest one. Metadata that is too long is left out.
WITH pages AS MATERIALIZED (
    SELECT * FROM book_pages
    WHERE book_id = :id AND coalesce(page, 0) > :after AND coalesce(page, 0) <= :until)
SELECT book_id, page, status, retry_count, last_attempted_at, needs_regeneration,
    iif(octet_length(image_error) > :longest, json_array(json_object(
        'kind', image_error ->> '$[#-1].kind', 'message', substr(image_error ->> '$[#-1].message', 1, 200),
        'at', image_error ->> '$[#-1].at', 'attempt', image_error ->> '$[#-1].attempt')), image_error) AS image_error,
    iif(octet_length(job_metadata) > :longest, '{}', job_metadata) AS job_metadata
FROM pages ORDER BY page;

-- name: keep_burst
UPDATE batches SET metadata = json_set(coalesce(metadata, '{}'), '$.' || :key, json(:value)) WHERE id = :id;

-- name: check_pages
PRAGMA integrity_check(5);

-- name: wrong_counts
SELECT status, said, counted FROM (
    SELECT status, jobs AS said, iif(status = 'attention',
        (SELECT count(*) FROM jobs WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL),
        (SELECT count(*) FROM jobs WHERE jobs.status = job_counts.status)) AS counted
    FROM job_counts)
WHERE said <> counted;

-- name: size_of_database
SELECT pages.page_count * sizes.page_size AS bytes, free.freelist_count * sizes.page_size AS free
FROM pragma_page_count AS pages, pragma_page_size AS sizes, pragma_freelist_count AS free;

-- name: kept_pictures
-- The names of kept input files that jobs use, or clients have uploaded.
SELECT DISTINCT CAST(named.value AS TEXT) AS name
FROM (SELECT pictures FROM jobs UNION ALL SELECT pictures FROM takes) AS used,
    json_each(CASE WHEN json_valid(used.pictures) THEN used.pictures ELSE '{}' END) AS named
WHERE used.pictures IS NOT NULL
UNION SELECT kept FROM uploads;

-- part: inserted
-- All of a submission in one statement. A name or an external id that is taken is left out. A job with an error_trace has failed already.
-- A job whose batch is not whole yet waits for that. The creator of the batch is the creator of its jobs.
INSERT INTO jobs (config_name, job_type, workflow_id, priority, status, retry_limit, metadata, template_hash, inputs,
    file_path, output_node, timeout_seconds, batch_id, batch_index, source, digest, pictures, error_trace,
    failure_class, needs_regeneration, end_time, created_at, retries_attempted, run_count, reserved, created_by, needs,
    external_id, reuse, hold)
SELECT value ->> 'config_name', value ->> 'job_type', value ->> 'workflow_id', value ->> 'priority',
    iif(value ->> 'error_trace' IS NULL, 'pending', 'failed'), value ->> 'retry_limit', value ->> 'metadata',
    value ->> 'template_hash', value ->> 'inputs', value ->> 'file_path', value ->> 'output_node',
    value ->> 'timeout_seconds', value ->> 'batch_id', value ->> 'batch_index', value ->> 'source', value ->> 'digest',
    value ->> 'pictures', value ->> 'error_trace', iif(value ->> 'error_trace' IS NULL, NULL, 'invalid'),
    value ->> 'error_trace' IS NOT NULL,
    iif(value ->> 'error_trace' IS NULL, NULL, {now}),
    {now}, 0, 0, value ->> 'reserved',
    coalesce(value ->> 'created_by', (SELECT created_by FROM batches WHERE id = value ->> 'batch_id')),
    value ->> 'needs', value ->> 'external_id', value ->> 'reuse', CASE
        WHEN value ->> 'error_trace' IS NOT NULL THEN NULL
        WHEN (SELECT status FROM batches WHERE id = value ->> 'batch_id') = 'pending' THEN 'filling'
        WHEN value ->> 'reserved' THEN 'burst' END
FROM json_each(:jobs) WHERE true ORDER BY key
ON CONFLICT DO NOTHING
RETURNING id, config_name

-- name: insert_jobs
{inserted};

-- name: submit_jobs
-- The same, told as submitted. The new jobs are those with the highest ids.
{keep_workflows}
{inserted};
INSERT INTO events (at, event, job_id)
SELECT {now}, 'job.submitted', id FROM (SELECT id FROM jobs WHERE id > 0 ORDER BY id DESC LIMIT changes()) ORDER BY id;

-- name: renew_job
-- The row gets what its file says now, and begins anew. The fence goes up: nobody has a lease on it.
UPDATE jobs SET
    job_type = :job ->> 'job_type', workflow_id = :job ->> 'workflow_id', priority = :job ->> 'priority',
    retry_limit = :job ->> 'retry_limit', metadata = :job ->> 'metadata', template_hash = :job ->> 'template_hash',
    inputs = :job ->> 'inputs', file_path = :job ->> 'file_path', output_node = :job ->> 'output_node',
    timeout_seconds = :job ->> 'timeout_seconds', source = :job ->> 'source', digest = :job ->> 'digest',
    pictures = :job ->> 'pictures', needs = :job ->> 'needs', error_trace = :job ->> 'error_trace', created_by = NULL, external_id = NULL,
    status = iif(:job ->> 'error_trace' IS NULL, 'pending', 'failed'),
    failure_class = iif(:job ->> 'error_trace' IS NULL, NULL, 'invalid'),
    needs_regeneration = :job ->> 'error_trace' IS NOT NULL,
    end_time = iif(:job ->> 'error_trace' IS NULL, NULL, {now}),
    created_at = {now},
    dismissed_at = NULL, resubmit = NULL, retries_attempted = 0, strikes = 0, avoids = NULL, hold = NULL,
    next_attempt_at = NULL, duration = NULL, worker_id = NULL, lease_expires_at = NULL, fence = coalesce(fence, 0) + 1
WHERE id = :id AND status <> 'processing';

-- name: keep_rejection
-- The file that was rejected under this path has a new name. Its reason stays with it.
UPDATE OR REPLACE rejections SET path = :kept WHERE path = :path;

-- name: names_matching
SELECT json_group_array(id) AS ids FROM (
    SELECT rowid AS id FROM job_names
    WHERE job_names MATCH '"' || replace(:match, '"', '""') || '"' AND rowid < :id AND rowid > :above
    ORDER BY rowid DESC LIMIT :most);

-- name: names_indexed
-- The last indexed id and the newest id. The index counts as empty if its last id was never given: someone has reset
-- the ids by hand.
SELECT coalesce((
        SELECT CAST(value AS INTEGER) FROM about
        WHERE key = 'names_indexed'
            AND CAST(value AS INTEGER) <= (SELECT seq FROM sqlite_sequence WHERE name = 'jobs')), :first) AS indexed,
    (SELECT max(id) FROM jobs) AS newest;

-- name: forget_names
INSERT INTO job_names (job_names) VALUES ('delete-all');

-- name: index_names
INSERT INTO job_names (rowid, config_name)
SELECT id, config_name FROM jobs WHERE id > :after AND id <= :last ORDER BY id;

-- name: prompts_matching
-- The index knows three letters in a row, not longer words: readers check the text.
SELECT json_group_array(job_id) AS ids, json_group_array(id) AS places FROM (
    SELECT prompts.id, job_id FROM (
        SELECT rowid AS id FROM prompt_trigrams
        WHERE prompt_trigrams MATCH (
            SELECT group_concat('"' || replace(value, '"', '""') || '"', ' AND ') FROM json_each(:letters))
            AND rowid < :id
        ORDER BY rowid DESC LIMIT :most) AS found
    CROSS JOIN prompts WHERE prompts.id = found.id
    ORDER BY prompts.id DESC);

-- name: add_prompts
INSERT INTO prompts (job_id, text) SELECT value ->> 0, value ->> 1 FROM json_each(:found) ORDER BY key;
INSERT INTO prompt_trigrams (rowid, text)
SELECT id, text FROM prompts WHERE job_id IN (SELECT value ->> 0 FROM json_each(:found)) ORDER BY id;

-- name: forget_prompts
INSERT INTO prompt_trigrams (prompt_trigrams, rowid, text)
SELECT 'delete', id, text FROM prompts WHERE job_id IN ({numbers(:ids)});
DELETE FROM prompts WHERE job_id IN ({numbers(:ids)});

-- name: forget_all_prompts
INSERT INTO prompt_trigrams (prompt_trigrams) VALUES ('delete-all');
DELETE FROM prompts;

-- name: leave_server
-- Another server takes a job whose server was lost. The prompt at the lost server is deleted when it returns.
UPDATE attempts SET outcome = 'server_lost', ended_at = {now},
    error = json_object('kind', 'server_lost', 'message', 'its server did not answer any more: another took the job',
        'server', server, 'prompt_id', prompt_id)
WHERE job_id = :id AND outcome IS NULL
RETURNING coalesce(running_seconds, 0) > 0 AS was_running;

-- name: recount
UPDATE job_counts SET jobs = iif(status = 'attention',
    (SELECT count(*) FROM jobs WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL),
    (SELECT count(*) FROM jobs WHERE jobs.status = job_counts.status));

-- name: sessions
SELECT hash, token_id, min(
    strftime('%Y-%m-%d %H:%M:%f', created_at, :longest || ' seconds'),
    strftime('%Y-%m-%d %H:%M:%f', used_at, :idle || ' seconds')
) AS ends_at
FROM sessions;

-- name: keep_workflows
-- Templates and needs of jobs, each once.
INSERT INTO templates (hash, graph) SELECT value ->> 'hash', value ->> 'graph' FROM json_each(:templates) WHERE true
ON CONFLICT (hash) DO NOTHING;
INSERT INTO needs (key, workflow, model_set, models, classes, pixels)
SELECT value ->> 'key', value ->> 'workflow', value ->> 'model_set', value ->> 'models', value ->> 'classes',
    value ->> 'pixels' FROM json_each(:needs) WHERE true
ON CONFLICT (key) DO NOTHING;

-- name: take_job
{taken};
{opened(jobs)} WHERE id = :id;
{started(jobs)} WHERE id = :id;
SELECT {leased}, (SELECT attempts.id FROM attempts WHERE attempts.prompt_id = :prompt_id) AS attempt_id
FROM jobs WHERE id = :id;

-- name: complete_job
{note_ending}
{completed};
{end_attempt}
UPDATE attempts SET is_cached = :is_cached WHERE id = :attempt_id;
UPDATE files SET job_id = 0 WHERE job_id = :id AND path NOT IN ({texts(:outputs)}) AND {of_no_take};
WITH ended AS (
    SELECT jobs.needs, attempts.server, is_load FROM attempts JOIN jobs ON jobs.id = attempts.job_id
    WHERE attempts.id = :attempt_id)
{timed};

-- name: begin_lease
-- Jobs whose backoff is over may run. A wait that is longer than any backoff was written before the clock stepped back.
UPDATE jobs SET hold = NULL, next_attempt_at = NULL
WHERE id IN (
    SELECT id FROM jobs {index(idx_jobs_backoff)} WHERE status = 'pending' AND hold = 'backoff'
        AND next_attempt_at <= {now}
    UNION ALL
    SELECT id FROM jobs {index(idx_jobs_backoff)} WHERE status = 'pending' AND hold = 'backoff'
        AND next_attempt_at IS NULL
    UNION ALL
    SELECT id FROM jobs {index(idx_jobs_backoff)} WHERE status = 'pending' AND hold = 'backoff'
        AND next_attempt_at > {in_seconds(:longest)});
SELECT true AS is_locked;

-- name: renew_leases
UPDATE jobs SET lease_expires_at = {in_seconds(:seconds)}
WHERE worker_id = :worker AND status = 'processing'
RETURNING id, fence;

-- name: rendering_after
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_rendering)}
        WHERE status = 'processing' AND start_time = :key AND id > :id ORDER BY id LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_rendering)}
        WHERE status = 'processing' AND start_time > :key ORDER BY start_time NULLS FIRST, id LIMIT :most) AS part
    LIMIT :most) AS listed;

-- name: waiting_after
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_status_priority)}
        WHERE status = 'pending' AND priority = :key AND id > :id ORDER BY id LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_status_priority)}
        WHERE status = 'pending' AND priority > :key ORDER BY priority NULLS FIRST, id LIMIT :most) AS part
    LIMIT :most) AS listed;

-- name: ended_after
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_ended)}
        WHERE status = :status AND end_time = :key AND id < :id ORDER BY id DESC LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_ended)}
        WHERE status = :status AND end_time < :key ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_ended)}
        WHERE status = :status AND end_time IS NULL ORDER BY id DESC LIMIT :most) AS part
    LIMIT :most) AS listed;

-- name: rated_after
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_rated)}
        WHERE rating = :rating AND end_time = :key AND id < :id ORDER BY id DESC LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_rated)}
        WHERE rating = :rating AND end_time < :key ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_rated)}
        WHERE rating = :rating AND end_time IS NULL ORDER BY id DESC LIMIT :most) AS part
    LIMIT :most) AS listed;

-- name: attention_after
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_attention)}
        WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL
            AND end_time = :key AND id < :id ORDER BY id DESC LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_attention)}
        WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL
            AND end_time < :key ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_attention)}
        WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL
            AND end_time IS NULL ORDER BY id DESC LIMIT :most) AS part
    LIMIT :most) AS listed;

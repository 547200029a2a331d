-- Ids in the order in which people see jobs, read from indexes alone, from one place on. A place is the value that the
-- order goes by, and an id. Ids come in one text: rows would cost more than the reading.

-- name: rendering_after_none
-- By start. Jobs without a start come first.
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_rendering)}
        WHERE status = 'processing' AND start_time IS NULL AND id > :id ORDER BY id LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_rendering)}
        WHERE status = 'processing' AND start_time IS NOT NULL ORDER BY start_time NULLS FIRST, id LIMIT :most) AS part
    LIMIT :most) AS listed;

-- name: waiting_after_none
-- As they will run. Jobs without a priority come first.
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_status_priority)}
        WHERE status = 'pending' AND priority IS NULL AND id > :id ORDER BY id LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_status_priority)}
        WHERE status = 'pending' AND priority IS NOT NULL ORDER BY priority NULLS FIRST, id LIMIT :most) AS part
    LIMIT :most) AS listed;

-- part: ended_jobs
jobs {index(idx_jobs_ended)} WHERE status = :status

-- part: attention_jobs
jobs {index(idx_jobs_attention)}
WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL

-- part: rated_jobs
jobs {index(idx_jobs_rated)} WHERE rating = :rating

-- part: newest_of(which)
SELECT {json_list(id)} AS ids FROM (
    SELECT id FROM {{which}_jobs} ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :most) AS listed

-- part: without_end_of(which)
SELECT {json_list(id)} AS ids FROM (
    SELECT id FROM {{which}_jobs} AND end_time IS NULL AND id < :id ORDER BY id DESC LIMIT :most) AS listed

-- name: ended_first
-- Newest first. Jobs without an end come last.
{newest_of(ended)};

-- name: ended_after
{older_of(ended)};

-- name: ended_after_none
{without_end_of(ended)};

-- name: attention_first
{newest_of(attention)};

-- name: attention_after
{older_of(attention)};

-- name: attention_after_none
{without_end_of(attention)};

-- name: rated_first
{newest_of(rated)};

-- name: rated_after
{older_of(rated)};

-- name: rated_after_none
{without_end_of(rated)};

-- name: members_first
-- The members of a batch in their order. Members without a place come last.
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_batch)}
        WHERE batch_id = :batch_id AND batch_index IS NOT NULL ORDER BY batch_index, id LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_batch)}
        WHERE batch_id = :batch_id AND batch_index IS NULL ORDER BY id LIMIT :most) AS part
    LIMIT :most) AS listed;

-- name: members_from
SELECT {json_list(id)} AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_batch)}
        WHERE batch_id = :batch_id AND batch_index = :key AND id > :id ORDER BY id LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_batch)}
        WHERE batch_id = :batch_id AND batch_index > :key ORDER BY batch_index, id LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs {index(idx_jobs_batch)}
        WHERE batch_id = :batch_id AND batch_index IS NULL ORDER BY id LIMIT :most) AS part
    LIMIT :most) AS listed;

-- name: members_from_none
SELECT {json_list(id)} AS ids FROM (
    SELECT id FROM jobs {index(idx_jobs_batch)}
    WHERE batch_id = :batch_id AND batch_index IS NULL AND id > :id ORDER BY id LIMIT :most) AS listed;

-- name: members_in_state
SELECT {json_list(id)} AS ids FROM (
    SELECT id FROM jobs {index(idx_jobs_batch_status)}
    WHERE batch_id = :batch_id AND status = :status AND id > :id ORDER BY id LIMIT :most) AS listed;

-- name: newest_before
SELECT {json_list(id)} AS ids FROM (
    SELECT id FROM jobs WHERE id < :id AND id > :above ORDER BY id DESC LIMIT :most) AS listed;

-- name: names_beginning_first
-- Backwards: names often hold the time, and the newest are to come first.
SELECT {json_list(id)} AS ids FROM (
    SELECT id FROM jobs WHERE config_name >= :text AND config_name < :end ORDER BY config_name DESC LIMIT :most) AS listed;

-- name: names_beginning
SELECT {json_list(id)} AS ids FROM (
    SELECT id FROM jobs WHERE config_name >= :text AND config_name < :key ORDER BY config_name DESC LIMIT :most) AS listed;

-- name: keys_of_job
-- The values that lists are ordered by.
SELECT id, start_time, priority, end_time, batch_index, config_name FROM jobs WHERE id = :id;

-- name: jobs_among
-- The jobs with these ids that match a filter, in the order of the ids.
SELECT brief_jobs.* FROM {listed_numbers(:ids)} CROSS JOIN brief_jobs
WHERE brief_jobs.id = listed.value
    AND (CAST(:status AS text) IS NULL OR status = :status)
    AND (CAST(:attention AS integer) IS NULL OR CAST(:attention AS integer) = CASE
        WHEN status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL THEN 1 ELSE 0 END)
    AND (CAST(:workflow_id AS text) IS NULL OR workflow_id = :workflow_id)
    AND (CAST(:server AS text) IS NULL OR server = :server)
    AND (CAST(:job_type AS text) IS NULL OR job_type = :job_type)
    AND (CAST(:failure_class AS text) IS NULL OR failure_class = :failure_class)
    AND (CAST(:rated AS text) IS NULL OR coalesce(rating, 0) >= 0 AND :rated = 'kept'
        OR rating = 1 AND :rated = 'starred' OR rating = -1 AND :rated = 'rejected')
    AND (CAST(:needs AS text) IS NULL OR needs IN ({texts(:needs)}))
    AND ({moment(:since)} IS NULL OR end_time >= {moment(:since)})
    AND ({moment(:until)} IS NULL OR end_time < {moment(:until)})
    AND (CAST(:words AS text) IS NULL OR EXISTS (
        SELECT 1 FROM prompts WHERE prompts.job_id = brief_jobs.id AND {has_words}))
    AND (CAST(:text AS text) IS NULL OR {instr}({lower(config_name)}, {lower(:text)}) > 0)
    AND (CAST(:not_beginning AS text) IS NULL
        OR NOT (config_name >= :not_beginning AND config_name < :not_beginning || {last_character}))
{in_order(listed.key)} LIMIT :most;

-- part: has_words
NOT EXISTS (
    SELECT 1 FROM ({texts(:words)}) AS word WHERE {instr}({lower(prompts.text)}, {lower(word.value)}) = 0)

-- name: needs_with_model
-- Needs that name a model file. `:named` is the end of its entry, as JSON.
SELECT key FROM needs WHERE {instr}(models, :named) > 0 LIMIT :most;

-- name: last_of_next
SELECT max(id) AS id, count(*) AS names FROM (
    SELECT id FROM jobs WHERE id > :after AND {has_no_younger(created_at)} ORDER BY id LIMIT :most) AS next;

-- name: note_indexed
INSERT INTO about (key, value) VALUES ('names_indexed', CAST(:last AS TEXT))
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: batches_first
SELECT listed.place, brief_batches.* FROM (
    SELECT {place} AS place, id FROM batches {index(idx_batches_created)}
    ORDER BY created_at DESC, {place} DESC LIMIT :most) AS listed
CROSS JOIN brief_batches WHERE brief_batches.id = listed.id
{in_order(brief_batches.created_at DESC, listed.place DESC)};

-- name: batches_before
SELECT listed.place, brief_batches.* FROM (
    SELECT {place} AS place, id FROM batches {index(idx_batches_created)}
    WHERE (created_at, {place}) < (:key, :id) ORDER BY created_at DESC, {place} DESC LIMIT :most) AS listed
CROSS JOIN brief_batches WHERE brief_batches.id = listed.id
{in_order(brief_batches.created_at DESC, listed.place DESC)};

-- name: batches_of_kind_first
SELECT listed.place, brief_batches.* FROM (
    SELECT {place} AS place, id FROM batches {index(idx_batches_kind)}
    WHERE kind = :kind ORDER BY created_at DESC, {place} DESC LIMIT :most) AS listed
CROSS JOIN brief_batches WHERE brief_batches.id = listed.id
{in_order(brief_batches.created_at DESC, listed.place DESC)};

-- name: batches_of_kind_before
SELECT listed.place, brief_batches.* FROM (
    SELECT {place} AS place, id FROM batches {index(idx_batches_kind)}
    WHERE kind = :kind AND (created_at, {place}) < (:key, :id) ORDER BY created_at DESC, {place} DESC LIMIT :most) AS listed
CROSS JOIN brief_batches WHERE brief_batches.id = listed.id
{in_order(brief_batches.created_at DESC, listed.place DESC)};

-- name: open_batches
SELECT brief_batches.* FROM (
    SELECT id FROM batches {index(idx_batches_open)}
    WHERE status IN ('active', 'collecting') ORDER BY created_at DESC LIMIT :most) AS listed
CROSS JOIN brief_batches WHERE brief_batches.id = listed.id
{in_order(brief_batches.created_at DESC)};

-- name: now
SELECT {now} AS now;

-- name: endings
-- How many jobs ended in each ten seconds. `at` is their first moment.
SELECT at, status, sum(jobs) AS jobs FROM endings WHERE at >= :since AND at <= :until GROUP BY at, status;

-- name: results_of_batch
-- How many members were done at each moment.
SELECT end_time AS at, status, count(*) AS jobs FROM jobs {index(idx_jobs_ended)}
WHERE status = 'done' AND end_time >= :since AND end_time <= :until AND batch_id = :id GROUP BY end_time, status;

-- name: newest_results
-- Jobs with files to show, among the newest.
SELECT brief_jobs.* FROM (
    SELECT id FROM jobs {index(idx_jobs_ended)}
    WHERE status = 'done' AND end_time IS NOT NULL ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :looked_at) AS newest
CROSS JOIN brief_jobs WHERE brief_jobs.id = newest.id AND outputs <> '' AND outputs <> '[]'
{in_order(end_time DESC, newest.id DESC)} LIMIT :most;

-- name: newest_failures
SELECT brief_jobs.* FROM (
    SELECT id FROM jobs {index(idx_jobs_attention)}
    WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL AND end_time IS NOT NULL
    ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :most) AS newest
CROSS JOIN brief_jobs WHERE brief_jobs.id = newest.id
{in_order(end_time DESC, newest.id DESC)};

-- name: longest_waiting
-- The oldest job of each priority that may run, found without reading the others.
WITH RECURSIVE levels(priority, number) AS (
    SELECT min(priority), 1 FROM jobs {index(idx_jobs_next)}
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
    UNION ALL
    SELECT (
        SELECT min(priority) FROM jobs {index(idx_jobs_next)}
        WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND priority > levels.priority), number + 1
    FROM levels WHERE levels.priority IS NOT NULL AND number < :most),
heads(id) AS (
    SELECT min(id) FROM jobs {index(idx_jobs_next)}
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND priority IS NULL
    UNION ALL
    SELECT (
        SELECT min(id) FROM jobs {index(idx_jobs_next)}
        WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND priority = levels.priority)
    FROM levels WHERE levels.priority IS NOT NULL)
SELECT max(CASE WHEN start_time > created_at THEN {seconds_since(start_time)} ELSE {seconds_since(created_at)} END) AS seconds
FROM heads CROSS JOIN jobs WHERE jobs.id = heads.id;

-- name: unfinished_by_status
SELECT status, count(*) AS batches FROM batches {index(idx_batches_open)}
WHERE status IN ('active', 'collecting') GROUP BY status
UNION ALL SELECT 'pending', count(*) FROM batches {index(idx_batches_filling)} WHERE status = 'pending';

-- name: kept_back
SELECT count(*) AS jobs FROM (
    SELECT 1 FROM jobs {index(idx_jobs_held)}
    WHERE status = 'pending' AND hold IN ('paused', 'burst') LIMIT :most) AS kept;

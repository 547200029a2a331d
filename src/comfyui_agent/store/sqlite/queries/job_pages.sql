-- Ids in the order in which people see jobs, read from indexes alone, from one place on. A place is the value that the
-- order goes by, and an id. Ids come in one text: rows would cost more than the reading.

-- name: rendering_after_none
-- By start. Jobs without a start come first.
SELECT json_group_array(id) AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_rendering
        WHERE status = 'processing' AND start_time IS NULL AND id > :id ORDER BY id LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_rendering
        WHERE status = 'processing' AND start_time IS NOT NULL ORDER BY start_time, id LIMIT :most)
    LIMIT :most);

-- name: rendering_after
SELECT json_group_array(id) AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_rendering
        WHERE status = 'processing' AND start_time = :key AND id > :id ORDER BY id LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_rendering
        WHERE status = 'processing' AND start_time > :key ORDER BY start_time, id LIMIT :most)
    LIMIT :most);

-- name: waiting_after_none
-- As they will run. Jobs without a priority come first.
SELECT json_group_array(id) AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_status_priority
        WHERE status = 'pending' AND priority IS NULL AND id > :id ORDER BY id LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_status_priority
        WHERE status = 'pending' AND priority IS NOT NULL ORDER BY priority, id LIMIT :most)
    LIMIT :most);

-- name: waiting_after
SELECT json_group_array(id) AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_status_priority
        WHERE status = 'pending' AND priority = :key AND id > :id ORDER BY id LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_status_priority
        WHERE status = 'pending' AND priority > :key ORDER BY priority, id LIMIT :most)
    LIMIT :most);

-- name: ended_first
-- Newest first. Jobs without an end come last.
SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM jobs INDEXED BY idx_jobs_ended WHERE status = :status
    ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :most);

-- name: ended_after
SELECT json_group_array(id) AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_ended
        WHERE status = :status AND end_time = :key AND id < :id ORDER BY id DESC LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_ended
        WHERE status = :status AND end_time < :key ORDER BY end_time DESC, id DESC LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_ended
        WHERE status = :status AND end_time IS NULL ORDER BY id DESC LIMIT :most)
    LIMIT :most);

-- name: ended_after_none
SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM jobs INDEXED BY idx_jobs_ended
    WHERE status = :status AND end_time IS NULL AND id < :id ORDER BY id DESC LIMIT :most);

-- name: attention_first
SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM jobs INDEXED BY idx_jobs_attention
    WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL
    ORDER BY end_time DESC NULLS LAST, id DESC LIMIT :most);

-- name: attention_after
SELECT json_group_array(id) AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_attention
        WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL
            AND end_time = :key AND id < :id ORDER BY id DESC LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_attention
        WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL
            AND end_time < :key ORDER BY end_time DESC, id DESC LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_attention
        WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL
            AND end_time IS NULL ORDER BY id DESC LIMIT :most)
    LIMIT :most);

-- name: attention_after_none
SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM jobs INDEXED BY idx_jobs_attention
    WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL
        AND end_time IS NULL AND id < :id ORDER BY id DESC LIMIT :most);

-- name: members_first
-- The members of a batch in their order. Members without a place come last.
SELECT json_group_array(id) AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_batch
        WHERE batch_id = :batch_id AND batch_index IS NOT NULL ORDER BY batch_index, id LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_batch
        WHERE batch_id = :batch_id AND batch_index IS NULL ORDER BY id LIMIT :most)
    LIMIT :most);

-- name: members_from
SELECT json_group_array(id) AS ids FROM (
    SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_batch
        WHERE batch_id = :batch_id AND batch_index = :key AND id > :id ORDER BY id LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_batch
        WHERE batch_id = :batch_id AND batch_index > :key ORDER BY batch_index, id LIMIT :most)
    UNION ALL SELECT * FROM (
        SELECT id FROM jobs INDEXED BY idx_jobs_batch
        WHERE batch_id = :batch_id AND batch_index IS NULL ORDER BY id LIMIT :most)
    LIMIT :most);

-- name: members_from_none
SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM jobs INDEXED BY idx_jobs_batch
    WHERE batch_id = :batch_id AND batch_index IS NULL AND id > :id ORDER BY id LIMIT :most);

-- name: members_in_state
SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM jobs INDEXED BY idx_jobs_batch_status
    WHERE batch_id = :batch_id AND status = :status AND id > :id ORDER BY id LIMIT :most);

-- name: newest_before
SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM jobs WHERE id < :id AND id > :above ORDER BY id DESC LIMIT :most);

-- name: names_beginning_first
-- Backwards: names often hold the time, and the newest are to come first.
SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM jobs WHERE config_name >= :text AND config_name < :end ORDER BY config_name DESC LIMIT :most);

-- name: names_beginning
SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM jobs WHERE config_name >= :text AND config_name < :key ORDER BY config_name DESC LIMIT :most);

-- name: names_matching
SELECT json_group_array(id) AS ids FROM (
    SELECT rowid AS id FROM job_names
    WHERE job_names MATCH :match AND rowid < :id ORDER BY rowid DESC LIMIT :most);

-- name: keys_of_job
-- The values that lists are ordered by.
SELECT id, start_time, priority, end_time, batch_index, config_name FROM jobs WHERE id = :id;

-- name: jobs_among
-- The jobs with these ids that match a filter, in the order of the ids.
SELECT brief_jobs.* FROM json_each(:ids) AS listed CROSS JOIN brief_jobs ON brief_jobs.id = listed.value
WHERE (:status IS NULL OR status = :status)
    AND (:attention IS NULL
        OR (status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL) = :attention)
    AND (:workflow_id IS NULL OR workflow_id = :workflow_id)
    AND (:server IS NULL OR server = :server)
    AND (:job_type IS NULL OR job_type = :job_type)
    AND (:failure_class IS NULL OR failure_class = :failure_class)
    AND (:text IS NULL OR instr(lower(config_name), lower(:text)) > 0)
    AND (:not_beginning IS NULL OR NOT (config_name >= :not_beginning AND config_name < :not_beginning || char(1114111)))
LIMIT :most;

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

-- name: last_of_next
SELECT max(id) AS id, count(*) AS names FROM (SELECT id FROM jobs WHERE id > :after ORDER BY id LIMIT :most);

-- name: index_names
INSERT INTO job_names (rowid, config_name)
SELECT id, config_name FROM jobs WHERE id > :after AND id <= :last ORDER BY id;

-- name: note_indexed
INSERT INTO about (key, value) VALUES ('names_indexed', CAST(:last AS TEXT))
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: batches_first
SELECT listed.place, brief_batches.* FROM (
    SELECT rowid AS place, id FROM batches INDEXED BY idx_batches_created
    ORDER BY created_at DESC, rowid DESC LIMIT :most) AS listed
CROSS JOIN brief_batches ON brief_batches.id = listed.id;

-- name: batches_before
SELECT listed.place, brief_batches.* FROM (
    SELECT rowid AS place, id FROM batches INDEXED BY idx_batches_created
    WHERE (created_at, rowid) < (:key, :id) ORDER BY created_at DESC, rowid DESC LIMIT :most) AS listed
CROSS JOIN brief_batches ON brief_batches.id = listed.id;

-- name: batches_of_kind_first
SELECT listed.place, brief_batches.* FROM (
    SELECT rowid AS place, id FROM batches INDEXED BY idx_batches_kind
    WHERE kind = :kind ORDER BY created_at DESC, rowid DESC LIMIT :most) AS listed
CROSS JOIN brief_batches ON brief_batches.id = listed.id;

-- name: batches_of_kind_before
SELECT listed.place, brief_batches.* FROM (
    SELECT rowid AS place, id FROM batches INDEXED BY idx_batches_kind
    WHERE kind = :kind AND (created_at, rowid) < (:key, :id) ORDER BY created_at DESC, rowid DESC LIMIT :most) AS listed
CROSS JOIN brief_batches ON brief_batches.id = listed.id;

-- name: open_batches
SELECT brief_batches.* FROM (
    SELECT id FROM batches INDEXED BY idx_batches_open
    WHERE status IN ('active', 'collecting') ORDER BY created_at DESC LIMIT :most) AS listed
CROSS JOIN brief_batches ON brief_batches.id = listed.id;

-- name: now
SELECT strftime('%Y-%m-%d %H:%M:%f', 'now') AS now;

-- name: endings
-- How many jobs ended in each ten seconds. `at` is their first moment.
SELECT at, status, jobs FROM endings WHERE at >= :since AND at <= :until;

-- name: newest_results
-- Jobs with files to show, among the newest.
SELECT brief_jobs.* FROM (
    SELECT id FROM jobs INDEXED BY idx_jobs_ended
    WHERE status = 'done' AND end_time IS NOT NULL ORDER BY end_time DESC, id DESC LIMIT :looked_at) AS newest
CROSS JOIN brief_jobs ON brief_jobs.id = newest.id WHERE outputs <> '' AND outputs <> '[]' LIMIT :most;

-- name: newest_failures
SELECT brief_jobs.* FROM (
    SELECT id FROM jobs INDEXED BY idx_jobs_attention
    WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL AND end_time IS NOT NULL
    ORDER BY end_time DESC, id DESC LIMIT :most) AS newest
CROSS JOIN brief_jobs ON brief_jobs.id = newest.id;

-- name: longest_waiting
-- The oldest job of each priority that may run, found without reading the others.
WITH RECURSIVE levels(priority) AS (
    SELECT min(priority) FROM jobs INDEXED BY idx_jobs_next
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL
    UNION ALL
    SELECT (
        SELECT min(priority) FROM jobs INDEXED BY idx_jobs_next
        WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND priority > levels.priority)
    FROM levels WHERE levels.priority IS NOT NULL LIMIT :most),
heads(id) AS (
    SELECT min(id) FROM jobs INDEXED BY idx_jobs_next
    WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND priority IS NULL
    UNION ALL
    SELECT (
        SELECT min(id) FROM jobs INDEXED BY idx_jobs_next
        WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL AND priority = levels.priority)
    FROM levels WHERE levels.priority IS NOT NULL)
SELECT max((julianday('now') - max(julianday(created_at), coalesce(julianday(start_time), 0))) * 86400.0) AS seconds
FROM heads CROSS JOIN jobs ON jobs.id = heads.id;

-- name: unfinished_by_status
SELECT status, count(*) AS batches FROM batches INDEXED BY idx_batches_open
WHERE status IN ('active', 'collecting') GROUP BY status
UNION ALL SELECT 'pending', count(*) FROM batches INDEXED BY idx_batches_filling WHERE status = 'pending';

-- name: kept_back
SELECT count(*) AS jobs FROM (
    SELECT 1 FROM jobs INDEXED BY idx_jobs_held
    WHERE status = 'pending' AND hold IN ('paused', 'burst') LIMIT :most);

-- name: takes_of_job
-- The results of a job that do not count, oldest first.
SELECT number, outputs, start_time, end_time, duration, server, inputs FROM takes WHERE job_id = :job_id ORDER BY number;

-- name: names_of_others
-- Paths that another job or a grid has.
SELECT files.path FROM files JOIN jobs ON jobs.id = files.job_id
WHERE files.path IN ({texts(:paths)}) AND files.job_id <> :job_id
UNION SELECT path FROM grid_files WHERE path IN ({texts(:paths)});

-- name: hold_job
SELECT id FROM jobs WHERE id = :job_id {hold(jobs)};

-- name: keep_take
-- The result that counts is about to be replaced by another one.
INSERT INTO takes (job_id, number, outputs, start_time, end_time, duration, server, prompt_id, workflow_id, template_hash,
    inputs, pictures, metadata, needs)
SELECT id, coalesce(take, 1), outputs, start_time, end_time, duration, server, prompt_id, workflow_id, template_hash,
    inputs, pictures, metadata, needs
FROM jobs WHERE id = :job_id AND status = 'done'
    AND EXISTS (SELECT 1 FROM takes WHERE takes.job_id = jobs.id AND takes.number = :number)
ON CONFLICT DO NOTHING;

-- name: choose_take
-- The fence goes up, so that nobody shows the pictures of another take from memory.
UPDATE jobs SET
    (outputs, start_time, end_time, duration, server, prompt_id, workflow_id, template_hash, inputs, pictures, metadata,
        needs) = (
        SELECT outputs, start_time, end_time, duration, server, prompt_id, workflow_id, template_hash, inputs, pictures,
            metadata, needs FROM takes WHERE takes.job_id = jobs.id AND takes.number = :number),
    take = :number, rating = NULL, fingerprint = NULL, reused_from = NULL, status = 'done', error_trace = NULL, failure_class = NULL, needs_regeneration = 0,
    fence = coalesce(fence, 0) + 1
WHERE id = :job_id AND status IN ('done', 'failed')
    AND EXISTS (SELECT 1 FROM takes WHERE takes.job_id = jobs.id AND takes.number = :number);

-- name: forget_take
DELETE FROM takes WHERE job_id = :job_id AND number = :number;

-- name: grid_is_stale
-- A member has another result now: the grid of its batch is due again, also if it is being drawn at this moment.
UPDATE batches SET grid_generation = generation - 1, grid_worker = NULL
WHERE id = (SELECT batch_id FROM jobs WHERE jobs.id = :job_id) AND status = 'complete' AND wants_grid = 1;

-- name: old_takes
-- Of jobs that have not ended, all stay: one of them may be what a page shows meanwhile.
SELECT takes.job_id, takes.number, takes.outputs FROM takes JOIN jobs ON jobs.id = takes.job_id
WHERE takes.end_time < :before AND jobs.status = 'done' ORDER BY takes.end_time LIMIT :most {lock(jobs)};

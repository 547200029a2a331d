-- name: create_batch
INSERT INTO batches (id, name, kind, status, metadata, creator, is_serial, wants_grid, created_by,
    external_id, created_at)
VALUES (:id, :name, :kind, 'pending', :metadata, :creator, CAST(:is_serial AS integer), CAST(:wants_grid AS integer), :created_by,
    :external_id, {now})
ON CONFLICT DO NOTHING;

-- name: release_members
UPDATE jobs SET hold = NULL WHERE batch_id = :id AND status = 'pending' AND hold = 'filling';

-- name: note_members_submitted
INSERT INTO events (at, event, job_id)
SELECT {now}, 'job.submitted', id FROM jobs
WHERE batch_id = :id AND status = 'pending' AND hold = 'filling' ORDER BY batch_index, id;

-- name: open_batch
UPDATE batches SET status = 'active', creator = NULL WHERE id = :id AND status = 'pending';

-- name: complete_empty
-- No member is open: every one was invalid from the start.
UPDATE batches SET status = 'complete', completed_at = {now}
WHERE id = :id AND status IN ('active', 'collecting')
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE batch_id = :id AND status IN ('pending', 'processing'));

-- name: join_batch
UPDATE jobs SET batch_id = :id, batch_index = (SELECT key FROM {listed_numbers(:ids)} WHERE value = jobs.id)
WHERE id IN ({numbers(:ids)}) AND batch_id IS NULL;

-- name: abandoned_batches
-- Their creators died before the batches were whole.
SELECT id FROM batches {index(idx_batches_filling)}
WHERE status = 'pending' AND creator IS NOT NULL AND NOT {is_alive(creator)};

-- name: discard_members
DELETE FROM jobs WHERE id IN (
    SELECT id FROM jobs WHERE batch_id = :id LIMIT :most);

-- name: discard_batch
DELETE FROM batches WHERE id = :id AND status = 'pending';

-- name: count_of_pages
SELECT count(*) AS pages FROM jobs
WHERE batch_id = :id AND coalesce(batch_index + 1, 0) > :after AND coalesce(batch_index + 1, 0) <= :until;

-- name: batch_by_id
SELECT * FROM batches WHERE id = :id;

-- name: newest_batches
SELECT * FROM brief_batches WHERE CAST(:kind AS text) IS NULL OR kind = :kind ORDER BY created_at DESC, id LIMIT :most;

-- name: counts_of_batch
SELECT status, count(*) AS jobs FROM jobs {index(idx_jobs_batch_status)} WHERE batch_id = :id GROUP BY status;

-- name: attention_of_batch
SELECT count(*) AS jobs FROM jobs {index(idx_jobs_batch_attention)}
WHERE batch_id = :id AND status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL;

-- name: members_after
-- Members in their order, behind one place.
SELECT * FROM jobs WHERE batch_id = :id AND (batch_index, id) > (:after, :after_id) ORDER BY batch_index, id LIMIT :most;

-- name: brief_members_after
SELECT * FROM brief_jobs
WHERE batch_id = :id AND (batch_index, id) > (:after, :after_id) ORDER BY batch_index, id LIMIT :most;

-- name: brief_members_at
SELECT brief_jobs.* FROM {listed_numbers(:indexes)} CROSS JOIN brief_jobs
WHERE brief_jobs.batch_id = :id AND brief_jobs.batch_index = listed.value ORDER BY listed.key, brief_jobs.id;

-- name: brief_members_without_place
SELECT * FROM brief_jobs WHERE batch_id = :id AND batch_index IS NULL ORDER BY id LIMIT :most;

-- name: members_without_place
-- Added by hand.
SELECT * FROM jobs WHERE batch_id = :id AND batch_index IS NULL ORDER BY id LIMIT :most;

-- name: end_batch
UPDATE batches SET status = :status, reason = :reason, completed_at = {now},
    is_paused = 0
WHERE id = :id AND status IN ('active', 'collecting');

-- name: begin_ending
INSERT INTO batch_endings (batch_id, status, reason) VALUES (:id, :status, :reason)
ON CONFLICT (batch_id) DO UPDATE SET status = excluded.status, reason = excluded.reason;

-- name: processing_members
SELECT id AS job_id FROM jobs {index(idx_jobs_batch_status)} WHERE batch_id = :id AND status = 'processing';

-- name: list_open_members
-- In one look: a member that is leased or comes back meanwhile is listed, too.
INSERT INTO ending_members (job_id, batch_id)
SELECT id, batch_id FROM jobs {index(idx_jobs_batch_status)}
WHERE batch_id = :id AND status IN ('pending', 'processing')
ON CONFLICT (job_id) DO NOTHING;

-- name: next_ending
SELECT batch_id, status, reason FROM batch_endings ORDER BY batch_id LIMIT 1 {lock(batch_endings)};

-- name: next_ending_members
SELECT job_id FROM ending_members WHERE batch_id = :id ORDER BY job_id LIMIT :most;

-- name: note_members_ended
INSERT INTO events (at, event, job_id, prompt_id, server, failure_class, message)
SELECT {now}, :event, id, prompt_id, server, :failure_class, :message
FROM jobs WHERE id IN ({numbers(:ids)}) AND status IN ('pending', 'processing') ORDER BY id;

-- name: end_members
-- The fences go up: workers that run one can change nothing any more. Agents take the prompts back.
UPDATE jobs SET
    status = 'failed', failure_class = :failure_class, error_trace = :error_trace,
    needs_regeneration = :needs_regeneration, end_time = {now}, worker_id = NULL,
    lease_expires_at = NULL, hold = NULL, next_attempt_at = NULL, fence = coalesce(fence, 0) + 1
WHERE id IN ({numbers(:ids)}) AND status IN ('pending', 'processing');

-- name: unlist_ending_members
DELETE FROM ending_members WHERE job_id IN ({numbers(:ids)});

-- name: finish_ending
DELETE FROM batch_endings WHERE batch_id = :id;

-- name: retry_members
-- The same as for one job.
UPDATE jobs SET
    status = 'pending', retries_attempted = 0, strikes = 0, needs_regeneration = 0, hold = NULL,
    next_attempt_at = NULL, avoids = NULL, end_time = NULL, duration = NULL, error_trace = NULL,
    failure_class = CASE failure_class WHEN 'output' THEN 'output' END
WHERE batch_id = :id AND status = 'failed' AND (:with_cancelled OR (failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL));

-- name: pause_batch
UPDATE batches SET is_paused = 1 WHERE id = :id AND status IN ('active', 'collecting') AND is_paused = 0;

-- name: pause_members
UPDATE jobs SET hold = 'paused' WHERE batch_id = :id AND status = 'pending';

-- name: resume_batch
UPDATE batches SET is_paused = 0 WHERE id = :id AND is_paused = 1;

-- name: resume_members
UPDATE jobs SET hold = CASE WHEN next_attempt_at IS NOT NULL THEN 'backoff' WHEN reserved = 1 THEN 'burst' END
WHERE batch_id = :id AND status = 'pending' AND hold = 'paused';

-- name: tick_batch
-- Add the seconds since the last look, if that was a moment ago. Time that no agent saw does not count.
UPDATE batches SET
    quiet_seconds = quiet_seconds + CASE
        WHEN is_paused = 0 AND {seconds_since(ticked_at)} BETWEEN 0 AND :most
        THEN {seconds_since(ticked_at)} ELSE 0 END,
    ticked_at = {now}
WHERE id = :id AND status IN ('active', 'collecting')
RETURNING quiet_seconds;

-- name: lock_batch
SELECT 1 FROM batches WHERE id = :id {hold(batches)};

-- name: turn_is_taken
-- Taken by a member at a server. A member whose server was lost takes the turn only there.
SELECT 1 FROM attempts {index(idx_attempts_open)} CROSS JOIN jobs
WHERE jobs.id = attempts.job_id AND {is_open} AND jobs.batch_id = :batch_id
    AND (jobs.lost_at IS NULL OR attempts.server = :server) LIMIT 1;

-- name: hold_for_turn
UPDATE jobs SET hold = 'turn' WHERE batch_id = :batch_id AND status = 'pending' AND hold IS NULL AND (
    lost_at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM attempts WHERE job_id = jobs.id AND outcome IS NULL));

-- name: free_turns
-- Members that wait for a turn that no other member has.
UPDATE jobs SET hold = NULL WHERE status = 'pending' AND hold = 'turn' AND (batch_id IS NULL OR batch_id NOT IN (
    SELECT other.batch_id FROM attempts {index(idx_attempts_open)} CROSS JOIN jobs AS other
    WHERE other.id = attempts.job_id AND {is_open} AND other.batch_id IS NOT NULL
        AND other.lost_at IS NULL));

-- name: is_batch_idle
-- No member runs or may run soon. Paused members, members for a later burst and retries of a burst do not count.
SELECT NOT EXISTS (SELECT 1 FROM jobs WHERE batch_id = :id AND status = 'processing')
    AND NOT EXISTS (
        SELECT 1 FROM jobs {index(idx_jobs_batch_next)}
        WHERE batch_id = :id AND status = 'pending' AND hold IS NULL AND batch_id IS NOT NULL)
    AND NOT EXISTS (
        SELECT 1 FROM jobs {index(idx_jobs_held)}
        WHERE hold IN ('turn', 'filling', 'server') AND batch_id = :id AND status = 'pending')
    AND (EXISTS (SELECT 1 FROM batches WHERE id = :id AND kind = 'burst') OR NOT EXISTS (
        SELECT 1 FROM jobs {index(idx_jobs_held)}
        WHERE hold = 'backoff' AND batch_id = :id AND status = 'pending'))
    AND NOT EXISTS (
        SELECT 1 FROM batches WHERE id = :id
            AND wants_grid = 1 AND status = 'complete' AND grid_generation < generation) AS idle;

-- name: due_grid
-- One that no living worker makes.
SELECT id, generation FROM batches {index(idx_batches_grid)}
WHERE wants_grid = 1 AND status = 'complete' AND grid_generation < generation AND (CAST(:id AS text) IS NULL OR id = :id)
    AND (grid_worker IS NULL OR NOT {is_alive(grid_worker)})
LIMIT 1 {lock(batches)};

-- name: claim_grid
UPDATE batches SET grid_worker = :worker WHERE id = :id;

-- name: settle_grid
UPDATE batches SET grid = coalesce(:grid, grid), grid_problem = :problem, grid_generation = :generation,
    grid_worker = NULL
WHERE id = :id AND grid_worker = :worker;

-- name: release_grids
UPDATE batches SET grid_worker = NULL WHERE grid_worker = :worker;

-- name: grid_files_of
SELECT path, output FROM grid_files WHERE batch_id = :id;

-- name: claim_grid_file
INSERT INTO grid_files (path, batch_id, output) VALUES (:path, :id, :output)
ON CONFLICT (path) DO UPDATE SET batch_id = excluded.batch_id, output = excluded.output;

-- name: disclaim_grid_file
DELETE FROM grid_files WHERE path = :path AND batch_id = :id;

-- name: note_grid
-- Made by request. It is the grid that was due, if the batch was complete when the drawing began.
UPDATE batches SET grid = :grid, grid_problem = NULL,
    grid_generation = CASE WHEN status = 'complete' AND generation = :generation THEN generation ELSE grid_generation END
WHERE id = :id;

-- name: past_durations
-- Of one workflow, among the newest results.
SELECT duration FROM (
    SELECT duration, workflow_id FROM jobs {index(idx_jobs_ended)} WHERE status = 'done'
    ORDER BY end_time DESC NULLS LAST LIMIT 5000) AS newest
WHERE workflow_id = :workflow_id AND duration IS NOT NULL LIMIT :most;

-- name: resubmit_job
-- An ended job is to run again, as it is now. Its result stays until there is another.
UPDATE jobs SET
    status = 'pending', retries_attempted = 0, strikes = 0, needs_regeneration = 0, hold = NULL,
    next_attempt_at = NULL, avoids = NULL, end_time = NULL, duration = NULL, error_trace = NULL,
    failure_class = CASE WHEN :avoid_cache THEN 'output' END, fence = coalesce(fence, 0) + 1
WHERE id = :id AND status IN ('done', 'failed');

-- name: change_job
UPDATE jobs SET template_hash = :template_hash, inputs = :inputs, pictures = :pictures, metadata = :metadata,
    workflow_id = :workflow_id, needs = :needs
WHERE id = :id AND status IN ('pending', 'done', 'failed');

-- name: burst_items
SELECT id AS job_id, config_name, status, written, outputs, error_trace, metadata,
    status = 'pending' AND next_attempt_at > {now} AS is_backing_off,
    status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL AS needs_attention,
    EXISTS (SELECT 1 FROM attempts WHERE job_id = jobs.id AND outcome IS NULL) AS is_at_server
FROM jobs WHERE batch_id = :id ORDER BY batch_index, id;

-- name: put_off_items
-- Pending items are for a later burst, unless their prompts are at a server.
UPDATE jobs SET hold = 'burst' WHERE batch_id = :id AND status = 'pending' AND hold IS DISTINCT FROM 'burst'
    AND NOT EXISTS (SELECT 1 FROM attempts WHERE job_id = jobs.id AND outcome IS NULL);

-- name: pick_item
UPDATE jobs SET hold = CASE (SELECT is_paused FROM batches WHERE id = jobs.batch_id) WHEN 1 THEN 'paused' END,
    next_attempt_at = NULL, inputs = :inputs, template_hash = :template_hash,
    file_path = :file_path, needs = :needs
WHERE id = :id AND status = 'pending';

-- name: place_item
-- It is at a server already. Its result goes to the new place.
UPDATE jobs SET file_path = :file_path WHERE id = :id AND status IN ('pending', 'processing');

-- name: fail_item
UPDATE jobs SET
    status = 'failed', failure_class = :failure_class, error_trace = :error_trace,
    end_time = {now}, worker_id = NULL, lease_expires_at = NULL, hold = NULL,
    next_attempt_at = NULL, fence = coalesce(fence, 0) + 1
WHERE id = :id AND status IN ('pending', 'processing', 'done');

-- name: trust_item
-- It is done because the state file says so.
UPDATE jobs SET
    status = 'done', outputs = coalesce(outputs, '[]'), end_time = {now},
    worker_id = NULL, lease_expires_at = NULL, error_trace = NULL, failure_class = NULL, needs_regeneration = 0,
    hold = NULL, next_attempt_at = NULL, fence = coalesce(fence, 0) + 1
WHERE id = :id AND status <> 'done';

-- name: forget_items
DELETE FROM jobs WHERE id IN ({numbers(:ids)}) AND reserved = 1;

-- name: note_written
UPDATE jobs SET written = :word WHERE id IN ({numbers(:ids)});

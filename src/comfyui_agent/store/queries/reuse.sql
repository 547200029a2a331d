-- name: note_fingerprint
UPDATE jobs SET fingerprint = :fingerprint WHERE id = :id AND fence = :fence AND status = 'processing' RETURNING id;

-- name: same_result
-- The newest job with this fingerprint and a result.
SELECT id, outputs, coalesce(reused_from, id) AS origin FROM jobs {index(idx_jobs_fingerprint)}
WHERE fingerprint = :fingerprint AND status = 'done' AND id <> :id ORDER BY id DESC LIMIT 1;

-- name: note_reused
-- Nothing was sent: there was no run.
UPDATE jobs SET reused_from = :origin, run_count = run_count - 1, server = NULL, prompt_id = NULL
WHERE id = :id;

-- name: remove_attempt
DELETE FROM attempts WHERE id = :attempt_id;

-- name: reusable_job
-- The oldest waiting job for which a job of the same values has a result that may be the same.
SELECT waiting.id FROM jobs AS waiting {index(idx_jobs_reuse)}
WHERE waiting.status = 'pending' AND waiting.hold IS NULL AND waiting.reuse IS NOT NULL
    AND waiting.fingerprint IS NULL AND waiting.reserved IS NULL AND waiting.take IS NULL
    AND EXISTS (
        SELECT 1 FROM jobs AS made {index(idx_jobs_made)}
        WHERE made.status = 'done' AND made.fingerprint IS NOT NULL AND made.template_hash = waiting.template_hash
            AND made.inputs IS NOT DISTINCT FROM waiting.inputs AND made.pictures IS NOT DISTINCT FROM waiting.pictures)
ORDER BY waiting.id LIMIT 1;

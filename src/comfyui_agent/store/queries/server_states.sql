-- name: servers_out_of_work
SELECT server, state, EXISTS (
    SELECT 1 FROM attempts WHERE attempts.server = server_states.server AND {is_open}) AS has_runs
FROM server_states ORDER BY server;

-- name: state_of_server
SELECT state FROM server_states WHERE server = :server;

-- name: pause_server
INSERT INTO server_states (server, state) VALUES (:server, 'paused')
ON CONFLICT (server) DO UPDATE SET state = 'paused', since = {now}
WHERE server_states.state <> 'paused';

-- name: drain_server
-- A drained server stays drained: nothing was leased for it since.
INSERT INTO server_states (server, state) VALUES (:server, 'draining')
ON CONFLICT (server) DO UPDATE SET state = 'draining', since = {now}
WHERE server_states.state = 'paused';

-- name: finish_drain
UPDATE server_states SET state = 'drained', since = {now}
WHERE server = :server AND state = 'draining'
    AND NOT EXISTS (SELECT 1 FROM attempts WHERE attempts.server = :server AND {is_open});

-- name: resume_server
DELETE FROM server_states WHERE server = :server;

-- name: stuck_prompts
SELECT prompt_id, server, reason, since FROM stuck_prompts ORDER BY since, prompt_id;

-- name: note_stuck
INSERT INTO stuck_prompts (prompt_id, server, reason) VALUES (:prompt_id, :server, :reason)
ON CONFLICT (prompt_id) DO NOTHING;

-- name: forget_stuck
DELETE FROM stuck_prompts WHERE prompt_id = :prompt_id;

-- name: is_blocked
-- Whether all that is left waits for these servers: nothing is at another one, and nothing goes on by itself.
SELECT NOT EXISTS (
        SELECT 1 FROM jobs WHERE status = 'processing' AND server NOT IN ({texts(:servers)})
            AND CASE WHEN CAST(:batch_id AS text) IS NULL THEN reserved IS NULL ELSE batch_id = :batch_id END)
    AND NOT EXISTS (
        SELECT 1 FROM jobs {index(idx_jobs_held)} WHERE status = 'pending' AND hold IN ('backoff', 'filling')
            AND (hold = 'filling' OR next_attempt_at > {now})
            AND CASE WHEN CAST(:batch_id AS text) IS NULL THEN reserved IS NULL ELSE batch_id = :batch_id END)
    AND NOT EXISTS (
        SELECT 1 FROM batches {index(idx_batches_grid)}
        WHERE wants_grid = 1 AND status = 'complete' AND grid_generation < generation
            AND (CAST(:batch_id AS text) IS NULL OR id = :batch_id)) AS blocked;

-- name: lost_servers
SELECT server, count(*) AS jobs, min(lost_at) AS since FROM jobs {index(idx_jobs_lost)}
WHERE status = 'pending' AND lost_at IS NOT NULL AND server IS NOT NULL AND (CAST(:batch_id AS text) IS NULL OR batch_id = :batch_id)
GROUP BY server ORDER BY since;

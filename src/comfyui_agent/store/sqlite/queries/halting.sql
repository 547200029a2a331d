-- name: halted_servers
SELECT server, state, EXISTS (
    SELECT 1 FROM attempts WHERE attempts.server = server_states.server AND outcome IS NULL) AS has_runs
FROM server_states ORDER BY server;

-- name: state_of_server
SELECT state FROM server_states WHERE server = :server;

-- name: pause_server
INSERT INTO server_states (server, state) VALUES (:server, 'paused')
ON CONFLICT (server) DO UPDATE SET state = 'paused', since = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE state <> 'paused';

-- name: drain_server
-- One that is drained stays so: nothing is leased for it, so nothing can have come to it since.
INSERT INTO server_states (server, state) VALUES (:server, 'draining')
ON CONFLICT (server) DO UPDATE SET state = 'draining', since = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE state = 'paused';

-- name: finish_drain
UPDATE server_states SET state = 'drained', since = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE server = :server AND state = 'draining'
    AND NOT EXISTS (SELECT 1 FROM attempts WHERE attempts.server = :server AND outcome IS NULL);

-- name: resume_server
DELETE FROM server_states WHERE server = :server;

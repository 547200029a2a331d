-- part: is_alive(worker)
-- A worker is alive if it has a row, and the row is of the caller's host or its heartbeat is fresh.
EXISTS (SELECT 1 FROM agents WHERE worker_id = {worker} AND (host = :host OR heartbeat_at >= {seconds_ago(60)}))

-- name: register_agent
INSERT INTO agents (worker_id, host, lock) VALUES (:worker, :host, :lock)
ON CONFLICT (worker_id) DO UPDATE SET heartbeat_at = {now};

-- name: beat_agent
UPDATE agents SET heartbeat_at = {now} WHERE worker_id = :worker;

-- name: remove_agent
DELETE FROM agents WHERE worker_id = :worker;

-- name: forget_agents
-- Rows of other hosts that nobody has removed for a long time.
DELETE FROM agents WHERE host <> :host AND heartbeat_at < {seconds_ago(86400 * :days)};

-- name: agents_of_host
SELECT worker_id, lock FROM agents WHERE host = :host;

-- name: agents_elsewhere
SELECT worker_id FROM agents WHERE host <> :host AND heartbeat_at >= {seconds_ago(60)} ORDER BY worker_id;

-- name: living_agents
SELECT worker_id FROM agents
WHERE host = :host OR heartbeat_at >= {seconds_ago(60)}
ORDER BY worker_id;

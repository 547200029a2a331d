-- Webhooks and their messages. Both times are NULL of a message that is still to be sent.

-- part: is_open_delivery
deliveries.delivered_at IS NULL AND deliveries.dead_at IS NULL

-- name: webhooks
SELECT id, name, url, events, secret AS sealed, last_event, created_at, created_by
FROM webhooks WHERE removed_at IS NULL ORDER BY id;

-- name: undelivered
SELECT webhook_id, count(*) AS waiting, 0 AS dead FROM deliveries WHERE {is_open_delivery} GROUP BY webhook_id
UNION ALL SELECT webhook_id, 0 AS waiting, count(*) AS dead FROM deliveries WHERE dead_at IS NOT NULL GROUP BY webhook_id;

-- name: create_webhook
INSERT INTO webhooks (name, url, events, secret, created_by, last_event)
VALUES (:name, :url, :events, :sealed, :created_by, :last_event)
ON CONFLICT (name) DO UPDATE SET url = excluded.url, events = excluded.events, secret = excluded.secret, removed_at = NULL,
    last_event = CASE WHEN webhooks.removed_at IS NULL THEN webhooks.last_event ELSE excluded.last_event END
RETURNING id;

-- name: remove_webhook
UPDATE webhooks SET removed_at = {now}, secret = '', worker = NULL WHERE id = :id AND removed_at IS NULL;

-- name: drop_deliveries
DELETE FROM deliveries WHERE webhook_id = :id AND delivered_at IS NULL;

-- name: hold_webhooks
-- For one agent at a time, and for the next one as soon as that one is known to be dead.
UPDATE webhooks SET worker = :worker, worker_until = {in_seconds(:seconds)}
WHERE id IN ({numbers(:ids)}) AND removed_at IS NULL
    AND (worker IS NULL OR worker = :worker OR worker_until < {now} OR NOT {is_alive(webhooks.worker)})
RETURNING id;

-- name: move_webhook
UPDATE webhooks SET last_event = :last
WHERE id = :id AND last_event = :before AND worker = :worker AND removed_at IS NULL;

-- name: add_delivery
INSERT INTO deliveries (webhook_id, event_id, subject, body) VALUES (:webhook_id, :event_id, :subject, :body);

-- name: count_waiting
SELECT count(*) AS waiting FROM (SELECT 1 FROM deliveries WHERE webhook_id = :id AND {is_open_delivery} LIMIT :most) AS found;

-- name: next_deliveries
-- The oldest message of each subject, those that are due first. A single one is of a subject that was tried least.
SELECT deliveries.*, coalesce(-({seconds_since(next_attempt_at)}), 0) AS wait FROM deliveries
WHERE webhook_id = :id AND {is_open_delivery} AND NOT EXISTS (
    SELECT 1 FROM deliveries AS earlier
    WHERE earlier.webhook_id = deliveries.webhook_id AND earlier.subject = deliveries.subject AND earlier.id < deliveries.id
        AND earlier.delivered_at IS NULL AND earlier.dead_at IS NULL)
ORDER BY CASE WHEN next_attempt_at <= {now} THEN NULL ELSE next_attempt_at END NULLS FIRST,
    CASE WHEN :most = 1 THEN attempts ELSE 0 END, id LIMIT :most;

-- name: note_delivered
UPDATE deliveries SET delivered_at = {now}, attempts = attempts + 1, next_attempt_at = NULL, dead_at = NULL, problem = NULL
WHERE id = :id AND delivered_at IS NULL;

-- name: note_undelivered
-- Nothing changes if another agent delivers by now.
UPDATE deliveries SET attempts = attempts + 1, problem = :problem, next_attempt_at = {in_seconds(:pause)}
WHERE id = :id AND {is_open_delivery} AND webhook_id IN (SELECT id FROM webhooks WHERE worker = :worker);

-- name: bury_delivery
UPDATE deliveries SET dead_at = {now}, next_attempt_at = NULL
WHERE id = :id AND {is_open_delivery} AND created_at < {seconds_ago(:seconds)}
    AND webhook_id IN (SELECT id FROM webhooks WHERE worker = :worker);

-- name: bury_deliveries
-- All that wait for a receiver that is away.
UPDATE deliveries SET dead_at = {now}, next_attempt_at = NULL, problem = :problem
WHERE webhook_id = :webhook_id AND {is_open_delivery} AND created_at < {seconds_ago(:seconds)}
    AND webhook_id IN (SELECT id FROM webhooks WHERE worker = :worker);

-- name: deaths_since_success
SELECT count(*) AS deaths FROM deliveries
WHERE webhook_id = :webhook_id AND dead_at IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM deliveries AS better
    WHERE better.webhook_id = :webhook_id AND better.delivered_at IS NOT NULL AND better.delivered_at >= deliveries.dead_at);

-- name: deliveries_before
SELECT * FROM deliveries
WHERE webhook_id = :webhook_id AND id < coalesce(CAST(:before AS bigint), 9223372036854775807)
    AND (:state = '' OR :state = 'waiting' AND {is_open_delivery}
        OR :state = 'dead' AND dead_at IS NOT NULL OR :state = 'delivered' AND delivered_at IS NOT NULL)
ORDER BY id DESC LIMIT :most;

-- name: repeat_deliveries
-- They have another day.
UPDATE deliveries SET dead_at = NULL, attempts = 0, next_attempt_at = NULL, created_at = {now}
WHERE webhook_id = :webhook_id AND dead_at IS NOT NULL AND (CAST(:id AS bigint) IS NULL OR id = :id);

-- name: forget_deliveries
DELETE FROM deliveries WHERE id IN (
    SELECT id FROM deliveries WHERE delivered_at < {seconds_ago(604800)} LIMIT 5000)
OR id IN (SELECT id FROM deliveries WHERE dead_at < {seconds_ago(2592000)} LIMIT 5000);

-- name: outputs_of_jobs
SELECT id, external_id, outputs FROM jobs WHERE id IN ({numbers(:ids)});

-- name: result_digests
SELECT path, sha256, bytes FROM files WHERE path IN ({texts(:paths)});

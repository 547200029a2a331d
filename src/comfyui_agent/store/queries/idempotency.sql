-- name: prune_requests
DELETE FROM idempotent_requests WHERE created_at < {seconds_ago(86400 * :days)};

-- name: begin_request
INSERT INTO idempotent_requests (key, scope, digest, creator, made) VALUES (:key, :scope, :digest, :creator, :made)
ON CONFLICT (key, scope) DO NOTHING;

-- name: find_request
SELECT digest, creator, made, status, answer, NOT {is_alive(creator)} AS is_creator_dead
FROM idempotent_requests WHERE key = :key AND scope = :scope {hold(idempotent_requests)};

-- name: take_over_request
UPDATE idempotent_requests SET creator = :creator WHERE key = :key AND scope = :scope AND status IS NULL;

-- name: finish_request
UPDATE idempotent_requests SET status = :status, answer = :answer
WHERE key = :key AND scope = :scope AND status IS NULL;

-- name: drop_request
DELETE FROM idempotent_requests WHERE key = :key AND scope = :scope AND status IS NULL;

-- name: claim_key
-- A key that counts once is free again after a day.
INSERT INTO idempotent_requests (key, scope, digest, creator, made, status, answer) VALUES (:key, :scope, '', '', :made, 201, '')
ON CONFLICT (key, scope) DO UPDATE SET made = excluded.made, created_at = {now}
    WHERE idempotent_requests.created_at < {seconds_ago(86400)};

-- name: made_under_key
SELECT made FROM idempotent_requests WHERE key = :key AND scope = :scope AND created_at >= {seconds_ago(86400)};

-- name: release_key
DELETE FROM idempotent_requests WHERE key = :key AND scope = :scope;

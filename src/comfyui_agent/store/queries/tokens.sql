-- name: create_token
INSERT INTO tokens (name, role, hash, is_shared, expires_at)
VALUES (:name, :role, :hash, CAST(:is_shared AS integer), {in_seconds(:seconds)})
RETURNING *;

-- name: enrol
-- The first visit of a user whom a proxy logged in.
INSERT INTO tokens (name, role, hash) VALUES (:name, :role, :hash) ON CONFLICT (hash) DO NOTHING;

-- name: update_enrolled
UPDATE tokens SET role = :role, is_shared = CAST(:is_shared AS integer), revoked_at = NULL,
    expires_at = {in_seconds(:seconds)}
WHERE hash = :hash RETURNING *;

-- name: token_by_hash
SELECT * FROM tokens WHERE hash = :hash;

-- name: tokens
SELECT * FROM tokens ORDER BY id;

-- name: token_name
SELECT name FROM tokens WHERE id = :id;

-- name: remembered_tokens
-- Tokens that ended in the last month are included, so that their users are told why they do not work.
SELECT * FROM tokens WHERE hash LIKE 'proxy:%'
    OR coalesce(revoked_at > {seconds_ago(2592000)}, true) AND coalesce(expires_at > {seconds_ago(2592000)}, true)
ORDER BY id;

-- name: revoke_token
UPDATE tokens SET revoked_at = {now} WHERE id = :id AND revoked_at IS NULL;

-- name: revoke_tokens
UPDATE tokens SET revoked_at = {now} WHERE revoked_at IS NULL;

-- name: note_token_use
-- At most once a minute, however many processes note it.
UPDATE tokens SET last_used_at = {now}
WHERE id = :id AND (last_used_at IS NULL OR last_used_at < {seconds_ago(60)});

-- name: access_state
SELECT value FROM about WHERE key = 'access';

-- name: close_access
INSERT INTO about (key, value) VALUES ('access', 'closed') ON CONFLICT (key) DO NOTHING;

-- name: open_access
DELETE FROM about WHERE key = 'access';

-- name: create_session
INSERT INTO sessions (hash, token_id) VALUES (:hash, :token_id);

-- name: note_session_use
UPDATE sessions SET used_at = {now}
WHERE hash = :hash AND used_at < {seconds_ago(60)};

-- name: end_session
DELETE FROM sessions WHERE hash = :hash;

-- name: end_sessions_of
DELETE FROM sessions WHERE token_id = :token_id;

-- name: end_sessions
DELETE FROM sessions;

-- name: prune_sessions
-- Sessions that have ended, and all but the newest of each token.
DELETE FROM sessions WHERE created_at < {seconds_ago(:longest)}
    OR used_at < {seconds_ago(:idle)}
    OR token_id NOT IN (SELECT id FROM tokens WHERE revoked_at IS NULL)
    OR hash IN (
        SELECT hash FROM (
            SELECT hash, row_number() OVER (PARTITION BY token_id ORDER BY used_at DESC, created_at DESC) AS place FROM sessions
        ) AS numbered WHERE place > :most
    );

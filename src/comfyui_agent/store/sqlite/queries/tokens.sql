-- name: create_token
INSERT INTO tokens (name, role, hash) VALUES (:name, :role, :hash) RETURNING *;

-- name: tokens
SELECT * FROM tokens ORDER BY id;

-- name: revoke_token
DELETE FROM tokens WHERE id = :id;

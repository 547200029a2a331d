-- name: prune_wishes
DELETE FROM wishes WHERE created_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :days || ' days');

-- name: begin_wish
INSERT INTO wishes (key, scope, digest, creator, made) VALUES (:key, :scope, :digest, :creator, :made)
ON CONFLICT (key, scope) DO NOTHING;

-- name: wish
SELECT digest, creator, made, status, answer FROM wishes WHERE key = :key AND scope = :scope;

-- name: take_wish_over
UPDATE wishes SET creator = :creator WHERE key = :key AND scope = :scope AND status IS NULL;

-- name: finish_wish
UPDATE wishes SET status = :status, answer = :answer WHERE key = :key AND scope = :scope AND status IS NULL;

-- name: drop_wish
DELETE FROM wishes WHERE key = :key AND scope = :scope AND status IS NULL;

-- name: about_all
SELECT key, value FROM about;

-- name: clear_about
DELETE FROM about WHERE key NOT IN ('version', 'compatible');

-- name: set_about
INSERT INTO about (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: moved_from
SELECT value FROM about WHERE key = 'moved_from';

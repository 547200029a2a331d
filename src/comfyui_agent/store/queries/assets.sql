-- part: asset
SELECT id, hash, kept, bytes, content_type, file_path, created_by, created_at, expires_at FROM assets

-- part: visible
-- To one caller, or to who may see all.
(CAST(:owner AS bigint) IS NULL OR created_by = :owner) AND (expires_at IS NULL OR expires_at > {now})

-- name: find_asset
{asset} WHERE id = :id AND {visible};

-- name: assets_of_hash
{asset} WHERE hash = :hash AND {visible} ORDER BY created_at DESC, id;

-- name: assets_named
-- The newest come last.
{asset} WHERE file_path IN ({texts(:paths)}) AND {visible} ORDER BY created_at, id;

-- name: identical_asset
{asset} WHERE hash = :hash AND kept = :kept AND file_path IS NOT DISTINCT FROM :file_path AND content_type = :content_type
    AND created_by IS NOT DISTINCT FROM :created_by AND (expires_at IS NULL OR expires_at > {now});

-- name: extend_asset
-- Its time is never shortened.
UPDATE assets SET expires_at = CASE WHEN expires_at < {in_seconds(:seconds)} THEN {in_seconds(:seconds)}
    WHEN {in_seconds(:seconds)} IS NOT NULL THEN expires_at END
WHERE id = :id;

-- name: insert_asset
INSERT INTO assets (id, hash, kept, bytes, content_type, file_path, created_by, expires_at)
VALUES (:id, :hash, :kept, :bytes, :content_type, :file_path, :created_by, {in_seconds(:seconds)});

-- name: remove_asset
-- Unless a job of its owner that is open uses the file.
DELETE FROM assets WHERE id = :id AND {visible} AND NOT EXISTS (
    SELECT 1 FROM posted_prompts {index(idx_posted_open)} JOIN jobs ON jobs.id = posted_prompts.job_id
    WHERE ended_at IS NULL AND posted_prompts.created_by IS NOT DISTINCT FROM assets.created_by
        AND pictures LIKE '%' || kept || '%');

-- name: forget_expired_assets
DELETE FROM assets WHERE expires_at <= {now};

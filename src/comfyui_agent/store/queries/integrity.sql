-- name: count_leases
-- How many jobs are processing, and how many of them have a lease that ran out or a dead worker.
SELECT count(*) AS held, count(*) FILTER (
    WHERE coalesce(lease_expires_at < {now}, true) OR worker_id <> '' AND NOT {is_alive(jobs.worker_id)}) AS orphans
FROM jobs WHERE status = 'processing';

-- name: largest_jobs
SELECT config_name, bytes FROM (
    SELECT config_name,
        coalesce(octet_length(inputs), 0) + coalesce(octet_length(metadata), 0) + coalesce(octet_length(error_trace), 0) AS bytes
    FROM jobs) AS sizes
WHERE bytes > 0 ORDER BY bytes DESC LIMIT 3;

-- part: used_templates
SELECT template_hash FROM jobs WHERE template_hash IS NOT NULL
    UNION ALL SELECT template_hash FROM takes WHERE template_hash IS NOT NULL

-- name: bytes_of_unused_templates
SELECT coalesce(sum(octet_length(graph)), 0) FROM templates
WHERE hash NOT IN ({used_templates});

-- name: await_submissions
SELECT {alone('templates')} AS waited;

-- name: remove_unused_templates
DELETE FROM templates WHERE hash NOT IN ({used_templates});

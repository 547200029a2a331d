-- name: check_pages
PRAGMA integrity_check(5);

-- name: wrong_counts
SELECT status, said, counted FROM (
    SELECT status, jobs AS said, iif(status = 'attention',
        (SELECT count(*) FROM jobs WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL),
        (SELECT count(*) FROM jobs WHERE jobs.status = job_counts.status)) AS counted
    FROM job_counts)
WHERE said <> counted;

-- name: count_leases
-- How many jobs are processing, and how many of them have a lease that ran out or a dead worker.
SELECT count(*) AS held, coalesce(sum(
    coalesce(lease_expires_at < strftime('%Y-%m-%d %H:%M:%f', 'now'), 1) OR worker_id <> '' AND NOT EXISTS (
        SELECT 1 FROM agents WHERE worker_id = jobs.worker_id
            AND (host = :host OR heartbeat_at >= strftime('%Y-%m-%d %H:%M:%f', 'now', '-60 seconds')))), 0) AS orphans
FROM jobs WHERE status = 'processing';

-- name: size_of_database
SELECT pages.page_count * sizes.page_size AS bytes, free.freelist_count * sizes.page_size AS free
FROM pragma_page_count AS pages, pragma_page_size AS sizes, pragma_freelist_count AS free;

-- name: largest_jobs
SELECT config_name, bytes FROM (
    SELECT config_name,
        ifnull(octet_length(inputs), 0) + ifnull(octet_length(metadata), 0) + ifnull(octet_length(error_trace), 0) AS bytes
    FROM jobs)
WHERE bytes > 0 ORDER BY bytes DESC LIMIT 3;

-- name: bytes_of_unused_templates
SELECT ifnull(sum(octet_length(graph)), 0) FROM templates
WHERE hash NOT IN (SELECT template_hash FROM jobs WHERE template_hash IS NOT NULL);

-- name: remove_unused_templates
DELETE FROM templates WHERE hash NOT IN (SELECT template_hash FROM jobs WHERE template_hash IS NOT NULL);

-- name: kept_pictures
-- The names of kept input files that jobs use.
SELECT DISTINCT CAST(named.value AS TEXT) AS name
FROM jobs, json_each(CASE WHEN json_valid(jobs.pictures) THEN jobs.pictures ELSE '{}' END) AS named
WHERE jobs.pictures IS NOT NULL;

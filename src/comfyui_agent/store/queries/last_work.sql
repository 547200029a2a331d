-- The last work, read from the indexes of what has ended.

-- name: last_work
-- The last stretch without half an hour in which nothing ended. Each step goes back half an hour at most, to the first end there.
WITH RECURSIVE back(at, step) AS (
    SELECT max(at), 1 FROM (
        SELECT max(end_time) AS at FROM jobs {index(idx_jobs_ended)} WHERE status = 'done' AND end_time <= {now}
        UNION ALL SELECT max(end_time) FROM jobs {index(idx_jobs_attention)}
        WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL
            AND end_time <= {now}) AS last
    UNION ALL
    SELECT (
        SELECT min(at) FROM (
            SELECT min(end_time) AS at FROM jobs {index(idx_jobs_ended)}
            WHERE status = 'done' AND end_time >= {half_an_hour_before(back.at)} AND end_time < back.at
            UNION ALL SELECT min(end_time) FROM jobs {index(idx_jobs_attention)}
            WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL
                AND end_time >= {half_an_hour_before(back.at)} AND end_time < back.at) AS earlier), step + 1
    FROM back WHERE back.at IS NOT NULL AND step < :most)
SELECT min(at) AS at, max(at) AS ended_at FROM back;

-- name: done_between
-- How many results came, and when the run of the first began.
SELECT count(*) AS done, (
    SELECT start_time FROM jobs {index(idx_jobs_ended)}
    WHERE status = 'done' AND end_time >= :first AND end_time <= :last ORDER BY end_time NULLS FIRST LIMIT 1) AS started_at
FROM (
    SELECT 1 FROM jobs {index(idx_jobs_ended)}
    WHERE status = 'done' AND end_time >= :first AND end_time <= :last LIMIT :most) AS results;

-- name: troubles_between
-- What needs attention, by why it failed, whether it was sent to a server, and whether a file asked for it.
SELECT failure_class, run_count, source, count(*) AS jobs FROM (
    SELECT failure_class, CASE WHEN run_count > 0 THEN 1 ELSE 0 END AS run_count,
        CASE WHEN source IS NULL THEN '' ELSE 'file' END AS source
    FROM jobs {index(idx_jobs_attention)}
    WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL
        AND end_time >= :first AND end_time <= :last LIMIT :most) AS needy
GROUP BY failure_class, run_count, source ORDER BY jobs DESC, failure_class;

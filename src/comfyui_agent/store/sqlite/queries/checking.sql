-- name: check_pages
PRAGMA integrity_check(5);

-- name: wrong_counts
SELECT job_counts.status, job_counts.jobs AS said, count(jobs.id) AS counted
FROM job_counts LEFT JOIN jobs ON jobs.status = job_counts.status
GROUP BY job_counts.status HAVING said <> counted;

-- What people were told of: for each kind, `about` has the time of the last message and the last event that was looked at.

-- name: last_notification
SELECT value FROM about WHERE key = :key;

-- name: claim_notification
-- Nothing changes if another agent was quicker.
INSERT INTO about (key, value) VALUES (:key, :value)
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE about.value = :before;

-- name: events_between
{told(all)}
WHERE events.id > :after AND events.id <= :until AND events.event IN ({texts(:names)}) AND at > {seconds_ago(:seconds)}
ORDER BY events.id LIMIT :most;

-- name: jobs_ended_between
-- Seconds since the first of these jobs was started, and since the last one ended.
SELECT done, {seconds_since(began)} AS began, {seconds_since(ended)} AS ended
FROM (
    SELECT count(CASE WHEN event = 'job.done' THEN 1 END) AS done, min(at) AS began,
        max(CASE WHEN event <> 'job.started' THEN at END) AS ended
    FROM events
    WHERE id > :after AND id <= :until AND event IN ('job.started', 'job.done', 'job.failed')
        AND at > {seconds_ago(:seconds)}) AS found;

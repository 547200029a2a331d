-- name: note_event
INSERT INTO events (at, event, job_id, batch_id, prompt_id, server, failure_class, duration_sec, wait_sec, message,
    actor, address)
VALUES ({now}, :event, :job_id, :batch_id, :prompt_id, :server, :failure_class,
    :duration_sec, :wait_sec, :message, :actor, :address);

-- name: note_ending
-- Recorded before the job ends, so that events which follow from its end come later.
INSERT INTO events (at, event, job_id, prompt_id, server, failure_class, duration_sec, message)
SELECT {now}, :event, id, prompt_id, server, :failure_class,
    CASE WHEN :is_timed THEN
        round(CAST(coalesce(:duration, {seconds_since(start_time)}) AS numeric), 3) END, :message
FROM jobs WHERE id = :job_id AND status IN ('pending', 'processing');

-- part: all_index
-- part: alert_index
{index(idx_events_alert)}

-- part: audit_index
{index(idx_events_audit)}

-- part: told(which)
SELECT events.id, at AS timestamp, event AS name, job_id, events.prompt_id, events.server, events.failure_class, duration_sec,
    wait_sec, message, actor, address, jobs.config_name, jobs.workflow_id,
    coalesce(events.batch_id, jobs.batch_id) AS batch_id, CASE WHEN batches.kind = 'book' THEN batches.id END AS book_id,
    CASE WHEN batches.kind = 'book' THEN jobs.batch_index + 1 END AS page
FROM events {{which}_index} LEFT JOIN jobs ON jobs.id = events.job_id
LEFT JOIN batches ON batches.id = coalesce(events.batch_id, jobs.batch_id)

-- name: events_after
{told(all)}
WHERE events.id > :after AND {is_settled} ORDER BY events.id LIMIT :most;

-- name: newest_alerts
{told(alert)}
WHERE events.event >= 'alert.' AND events.event < 'alert/'
    AND at > {seconds_ago(:seconds)}
ORDER BY events.id DESC LIMIT :most;

-- name: audit_trail
{told(audit)}
WHERE events.event >= 'audit.' AND events.event < 'audit/' AND events.id < coalesce(CAST(:before AS bigint), 9223372036854775807)
    AND (CAST(:seconds AS double precision) IS NULL OR at > {seconds_ago(:seconds)})
    AND (CAST(:actor AS text) IS NULL OR {instr}({lower(actor)}, {lower(:actor)}) > 0)
ORDER BY events.id DESC LIMIT :most;

-- name: newest_event
SELECT coalesce(max(id), 0) AS id FROM events WHERE {is_settled};

-- name: failures_since
-- The burst itself reports its items.
SELECT count(*) AS failures FROM events LEFT JOIN jobs ON jobs.id = events.job_id
WHERE events.id > :after AND event = 'job.failed' AND jobs.reserved IS NULL;

-- name: prune_events
-- The newest audit events stay, whatever else happens.
DELETE FROM events WHERE id IN (
    SELECT id FROM events
    WHERE id <= ({oldest_kept(:keep)}) AND (
        event < 'audit.' OR event >= 'audit/' OR id <= (
            SELECT id FROM events {index(idx_events_audit)} WHERE event >= 'audit.' AND event < 'audit/'
            ORDER BY id DESC LIMIT 1 OFFSET :keep_audit))
    ORDER BY id LIMIT :most);

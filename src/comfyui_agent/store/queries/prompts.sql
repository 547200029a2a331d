-- What results were made with, and the index of their prompts.

-- part: as_made
jobs.id, template_hash, batch_id, CASE WHEN octet_length(inputs) <= :longest THEN inputs END AS inputs

-- name: prompt_sources
SELECT {as_made} FROM jobs WHERE id IN ({numbers(:ids)});

-- name: sent_values
SELECT job_id, sent FROM attempts WHERE job_id IN ({numbers(:ids)}) AND sent IS NOT NULL ORDER BY number;

-- name: results_to_index
-- The results behind a place, in the order in which they ended. What ended just now may be followed by an earlier one.
SELECT {as_made}, jobs.end_time FROM (
    SELECT * FROM (
        SELECT id, end_time FROM jobs {index(idx_jobs_ended)}
        WHERE status = 'done' AND end_time = :key AND id > :id ORDER BY id LIMIT :most) AS part
    UNION ALL SELECT * FROM (
        SELECT id, end_time FROM jobs {index(idx_jobs_ended)}
        WHERE status = 'done' AND end_time > :key AND end_time < {seconds_ago(:lag)} AND {has_no_younger(end_time)}
        ORDER BY end_time NULLS FIRST, id LIMIT :most) AS part
    LIMIT :most) AS next
CROSS JOIN jobs WHERE jobs.id = next.id
{in_order(next.end_time, jobs.id)};

-- name: prompts_indexed
SELECT value FROM about WHERE key = 'prompts_indexed';

-- name: note_prompts_indexed
INSERT INTO about (key, value) VALUES ('prompts_indexed', :note)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- Rows for lists: large values are left out or cut before they are read. Columns that hold JSON are NULL where they take
-- too many bytes, texts are cut. `is_shortened` says whether something was left out.

-- name: add_brief_jobs
CREATE TEMP VIEW IF NOT EXISTS brief_jobs AS
SELECT id, config_name, job_type, workflow_id, priority, status, retries_attempted, run_count, retry_limit, start_time,
    end_time, duration,
    iif(octet_length(error_trace) > 2048, substr(error_trace, 1, 2048), error_trace) AS error_trace,
    iif(octet_length(metadata) > 4096, NULL, metadata) AS metadata,
    worker_id, lease_expires_at, failure_class, next_attempt_at, server, prompt_id, batch_id, batch_index,
    iif(octet_length(outputs) > 65536, NULL, outputs) AS outputs,
    needs_regeneration, created_at, template_hash,
    iif(octet_length(inputs) > 4096, NULL, inputs) AS inputs,
    file_path, output_node, timeout_seconds, hold, fence, strikes,
    iif(octet_length(avoids) > 2048, substr(avoids, 1, 2048), avoids) AS avoids,
    source, digest, resubmit,
    iif(octet_length(pictures) > 4096, NULL, pictures) AS pictures,
    reserved, written, created_by, dismissed_at, lost_at, needs, take, rating, external_id, reuse, fingerprint, reused_from,
    (ifnull(octet_length(inputs), 0) > 4096 OR ifnull(octet_length(metadata), 0) > 4096
        OR ifnull(octet_length(pictures), 0) > 4096 OR ifnull(octet_length(outputs), 0) > 65536
        OR ifnull(octet_length(error_trace), 0) > 2048 OR ifnull(octet_length(avoids), 0) > 2048) AS is_shortened
FROM jobs;

-- name: add_brief_batches
CREATE TEMP VIEW IF NOT EXISTS brief_batches AS
SELECT id, name, kind, status, generation, grid, iif(octet_length(metadata) > 16384, NULL, metadata) AS metadata,
    created_at, completed_at, iif(octet_length(reason) > 2048, substr(reason, 1, 2048), reason) AS reason, is_paused,
    is_serial, wants_grid, grid_generation, grid_problem, created_by, external_id, reopened_at
FROM batches;

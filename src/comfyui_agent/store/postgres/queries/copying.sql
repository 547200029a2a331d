-- name: table_columns
SELECT attname AS name, format_type(atttypid, NULL) AS type FROM pg_attribute
WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped ORDER BY attnum;

-- name: sequences
SELECT 'jobs' AS name, last_value - CASE WHEN is_called THEN 0 ELSE 1 END AS seq FROM jobs_id_seq
UNION ALL SELECT 'tokens', last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM tokens_id_seq
UNION ALL SELECT 'webhooks', last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM webhooks_id_seq
UNION ALL SELECT 'deliveries', last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM deliveries_id_seq
UNION ALL SELECT 'events', e3_event_id(pg_snapshot_xmax(pg_current_snapshot()));

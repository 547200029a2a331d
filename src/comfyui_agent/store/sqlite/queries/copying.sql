-- name: table_columns
SELECT name FROM pragma_table_info(:table) UNION ALL SELECT 'place' WHERE :table = 'batches';

-- name: sequences
SELECT name, seq FROM sqlite_sequence;

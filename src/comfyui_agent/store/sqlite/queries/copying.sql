-- name: table_columns
SELECT name FROM pragma_table_info(:table) UNION ALL SELECT 'place' WHERE :table = 'batches';

-- name: sequences
SELECT name, seq FROM sqlite_sequence;

-- name: clear_sequence
DELETE FROM sqlite_sequence WHERE name = :name;

-- name: set_sequence
INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :seq);

-- Names in braces are filled in from the schema.

-- name: table_columns
SELECT name FROM pragma_table_info(:table) ORDER BY cid;

-- name: table_rows
SELECT {columns} FROM {table} {after} ORDER BY {key} LIMIT :most;

-- name: insert_row
INSERT INTO {table} ({columns}) VALUES ({values});

-- name: sequences
SELECT name, seq FROM sqlite_sequence;

-- name: clear_sequence
DELETE FROM sqlite_sequence WHERE name = :name;

-- name: set_sequence
INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :seq);

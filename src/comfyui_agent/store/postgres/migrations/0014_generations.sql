-- When a batch was opened anew, as in SQLite.
ALTER TABLE batches ADD COLUMN reopened_at e3_time;
CREATE FUNCTION e3_batch_begun_anew() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.reopened_at = e3_now();
    RETURN NEW;
END $$;
CREATE TRIGGER e3_begun_anew BEFORE UPDATE OF generation ON batches FOR EACH ROW
WHEN (NEW.generation > OLD.generation) EXECUTE FUNCTION e3_batch_begun_anew();

CREATE OR REPLACE VIEW brief_batches AS
SELECT id, name, kind, status, generation, grid, CASE WHEN octet_length(metadata) <= 16384 THEN metadata END AS metadata,
    created_at, completed_at, left(reason, 2048) AS reason, is_paused, is_serial, wants_grid, grid_generation, grid_problem,
    created_by, place, external_id, reopened_at
FROM batches;

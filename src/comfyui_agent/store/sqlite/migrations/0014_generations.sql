-- When a batch was opened anew, however that came about: its duration counts from then on.
ALTER TABLE batches ADD COLUMN reopened_at TEXT;
CREATE TRIGGER batch_begun_anew AFTER UPDATE OF generation ON batches WHEN NEW.generation > OLD.generation
BEGIN
    UPDATE batches SET reopened_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE id = NEW.id;
END;

-- Results of jobs that were rendered again. The one that counts is in its job, each of the others is here.
ALTER TABLE jobs ADD COLUMN take INTEGER;  -- the number of the one that counts, or is being made; NULL: it is the first
CREATE TABLE takes (
    job_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    outputs TEXT NOT NULL,                 -- this and all else as the job had it
    start_time TEXT,
    end_time TEXT,
    duration REAL,
    server TEXT,
    prompt_id TEXT,
    workflow_id TEXT,
    template_hash TEXT,
    inputs TEXT,
    pictures TEXT,
    metadata TEXT,
    needs TEXT,
    PRIMARY KEY (job_id, number)
) WITHOUT ROWID;
CREATE INDEX idx_takes_ended ON takes(end_time);

-- Prompts of a burst have one result, whose name is promised.
CREATE TRIGGER trg_take_kept AFTER UPDATE OF status ON jobs
WHEN OLD.status = 'done' AND NEW.status <> 'done' AND OLD.reserved IS NULL AND coalesce(OLD.outputs, '[]') <> '[]'
BEGIN
    INSERT OR IGNORE INTO takes VALUES (OLD.id, coalesce(OLD.take, 1), OLD.outputs, OLD.start_time, OLD.end_time,
        OLD.duration, OLD.server, OLD.prompt_id, OLD.workflow_id, OLD.template_hash, OLD.inputs, OLD.pictures, OLD.metadata,
        OLD.needs);
    UPDATE jobs SET take = (SELECT max(number) + 1 FROM takes WHERE job_id = OLD.id) WHERE id = OLD.id;
END;
CREATE TRIGGER trg_takes_removed AFTER DELETE ON jobs WHEN OLD.take IS NOT NULL
BEGIN
    DELETE FROM takes WHERE job_id = OLD.id;
END;

-- What people think of results, and a search by what they were made with.
ALTER TABLE jobs ADD COLUMN rating INTEGER;  -- 1: a star, -1: rejected
CREATE INDEX idx_jobs_rated ON jobs(rating, end_time) WHERE rating IS NOT NULL;

-- The text that reaches the samplers, for each result. Filled by whoever serves the page, in the order in which jobs end, up
-- to the place that `about` notes as `prompts_indexed`; without that note it is made anew.
CREATE TABLE prompts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- rises with the end of the job, and is never given twice
    job_id INTEGER NOT NULL UNIQUE,
    text TEXT NOT NULL
);
CREATE VIRTUAL TABLE prompt_trigrams USING fts5(text, content='', detail=none, tokenize='trigram');

"""The durable queue: jobs, attempts, results and events in a database."""

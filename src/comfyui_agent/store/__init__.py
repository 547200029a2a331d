"""The one memory: jobs, attempts, results and events, in a database that survives."""

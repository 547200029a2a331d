"""SQLite behind the store: one writer thread, WAL, every commit on disk."""

"""Compaction: unused templates are removed, and the file is rewritten without its free pages."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw

from comfyui_agent.domain.texts import megabytes
from comfyui_agent.store.errors import DatabaseFull
from comfyui_agent.store.records import Compacted
from comfyui_agent.store.sqlite.connection import Patience, connect, in_our_words, log_bytes
from comfyui_agent.store.sqlite.session import SqliteSession

OPERATIONS = 100_000


def compact_file(path: Path, wait: Patience) -> Compacted:
    """Compact a database that nobody uses. Interrupted, it stays as it was. DatabaseFull if there is no room."""
    before = path.stat().st_size + log_bytes(path)
    try:
        database = connect(path, wait=wait, create=False)
        try:
            database.set_progress_handler(lambda: False, OPERATIONS)  # Ctrl-C is heard here
            session = SqliteSession(database)
            size = session.one("size_of_database")
            assert size is not None
            needed = 2 * (size["bytes"] - size["free"])
            if shutil.disk_usage(path.parent).free < needed:
                raise DatabaseFull(f"this needs {megabytes(needed)} free on the disk of {path}: make room first")
            templates = session.run("remove_unused_templates")
            database.execute("PRAGMA temp_store = file; VACUUM; PRAGMA wal_checkpoint(truncate)")
        finally:
            database.close()
    except apsw.Error as error:
        raise in_our_words(error, path) from None
    return Compacted(before, path.stat().st_size + log_bytes(path), templates)

"""Opening the database that a URL or a path names."""

from __future__ import annotations

from pathlib import Path

from comfyui_agent.store.errors import DatabaseUnusable
from comfyui_agent.store.sqlite.driver import SqliteDriver
from comfyui_agent.store.store import Store


def open_store(place: str | Path, *, create: bool = True) -> Store:
    """A path or `sqlite:///path`; other databases are refused in one line."""
    text = str(place)
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        scheme = text.partition("://")[0]
        raise DatabaseUnusable(f"databases of the kind {scheme}:// cannot be used yet: give the path of an SQLite file")
    return Store(SqliteDriver.open(Path(text), create=create))

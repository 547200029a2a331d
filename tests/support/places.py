"""Databases of both kinds by their place, a path or a URL, for tests that move them. Their clock is the real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from comfyui_agent.store.connect import is_postgres, migrate_store
from support import postgres
from support.stores import EMPTY, Rows, in_the_shell, with_texts

AS_NEW = f"""{EMPTY}
DELETE FROM about WHERE key NOT IN ('version', 'compatible');
INSERT INTO about VALUES ('identity', left(replace(gen_random_uuid()::text, '-', ''), 16));
ALTER TABLE jobs ENABLE TRIGGER USER; ALTER TABLE batches ENABLE TRIGGER USER;
ALTER TABLE attempts ENABLE TRIGGER USER; ALTER TABLE events ENABLE TRIGGER USER;
"""
_FREE: list[str] = []
"""Databases that are as new again."""


@contextmanager
def new_place(kind: str, folder: Path, name: str) -> Iterator[str]:
    """An empty database; of SQLite, a file that is not there yet."""
    if kind == "sqlite":
        yield str(folder / f"{name}.db")
        return
    url = _FREE.pop() if _FREE else postgres.new_database()
    migrate_store(url)
    yield url
    postgres.execute(url, AS_NEW)
    _FREE.append(url)


def by_hand(place: str | Path, sql: str) -> Rows:
    """What a user gets who types this."""
    return with_texts(postgres.execute(str(place), sql)) if is_postgres(place) else in_the_shell(Path(place), sql)

"""Copying a whole database into an empty one of any kind: `e3 db copy`.

Rows go in parts, in the order of their keys. The target notes in the transaction of each part how far it is, so that a
copy that was killed goes on there. Until all tables are compared it has no identity, and no agent can open it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from comfyui_agent.domain.texts import json_text, listed
from comfyui_agent.store.errors import CopyRefused
from comfyui_agent.store.liveness import bury_dead
from comfyui_agent.store.liveness import living_agents as find_living
from comfyui_agent.store.operation import OperationRunner
from comfyui_agent.store.rows import time_text

KEYS = (
    "templates:hash needs:key tokens:id sessions:hash batches:id jobs:id attempts:id files:path grid_files:path "
    "events:id rejections:path server_states:server stuck_prompts:prompt_id batch_endings:batch_id "
    "ending_members:job_id idempotent_requests:key,scope endings:at,status timings:needs,server "
    "server_sets:server job_counts:status"
)
TABLES = {table: tuple(key.split(",")) for table, _, key in (each.partition(":") for each in KEYS.split())}
"""Tables and their keys, in the order in which they are copied. `agents` are of the old place, and the search index is
made anew; `about` comes last."""
COPYING, MOVED_FROM = "copying", "moved_from"
LEFT_OUT = (COPYING, MOVED_FROM, "names_indexed", "retention")
ROWS_AT_ONCE = 1_000
MODULUS = 2**256

Values = tuple[Any, ...]


class Tables(Protocol):
    """A database as tables. Rows are tuples in the order of the columns that were asked for; times are `datetime`.

    Triggers do not run. Each method that writes is one transaction.
    """

    @property
    def identity(self) -> str:
        """As the driver of this database says it."""

    def columns(self, table: str) -> list[str]: ...

    def rows(self, table: str, columns: Sequence[str], after: Sequence[Any] | None, most: int) -> list[Values]:
        """The next rows by key. `after`: the key of the last one, as `plain` makes it; None for the first part."""

    def about(self) -> dict[str, str]: ...

    def sequences(self) -> dict[str, int]:
        """The last id that each table has given, also if its row is gone."""

    def begin(self, note: str) -> None:
        """Make `about` nothing but this note under `copying`, and `job_counts` empty."""

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Values], note: str) -> None: ...

    def finish(self, about: Mapping[str, str], sequences: Mapping[str, int]) -> None:
        """Make `about` exactly this, and let new ids follow the sequences."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class ComparedTable:
    """The rows of a table here and there. Digests do not depend on the order of rows."""

    name: str
    rows: int
    digest: str
    rows_there: int
    digest_there: str

    @property
    def is_same(self) -> bool:
        return (self.rows, self.digest) == (self.rows_there, self.digest_there)


async def refuse_living(store: OperationRunner, host: str, name: str) -> None:
    """CopyRefused if a process works with a database."""
    await bury_dead(store, host)
    if living := await store.run(find_living, host):
        raise CopyRefused(f"{name} is in use ({listed(living, 3)}): stop e3 run, e3 serve and the like, then copy it")


def copy_tables(source: Tables, target: Tables, told: Callable[[str, int], None]) -> list[ComparedTable]:
    """Copy all that is not there yet, then compare. Only if all is the same the copy is a database. Tells each part."""
    note = _begin(source, target)
    names = list(TABLES)
    for name in names[names.index(note["table"]) :]:
        columns = _columns(source, target, name)
        count = 0
        for rows, last in _parts(source, name, columns, note["after"] if name == note["table"] else None):
            target.add(name, columns, rows, json_text(note | {"table": name, "after": last}))
            count += len(rows)
            told(f"copied {name}", count)
    both = [[_digest(each, name, source.columns(name), told) for each in (source, target)] for name in names]
    compared = [ComparedTable(name, *here, *there) for name, (here, there) in zip(names, both, strict=True)]
    if all(each.is_same for each in compared):
        about = source.about()
        moved = {MOVED_FROM: f"{source.identity} {about.get(MOVED_FROM, '')}".strip()}
        kept = {key: value for key, value in about.items() if key not in LEFT_OUT}
        target.finish(kept | moved, source.sequences())
    return compared


def _begin(source: Tables, target: Tables) -> dict[str, Any]:
    """The note of the target: how far it is. CopyRefused if it is neither empty nor a copy of this source."""
    if COPYING in source.about():
        raise CopyRefused("what is to be copied is itself a copy that was broken off: finish that one first")
    note: dict[str, Any] = {"from": source.identity, "table": next(iter(TABLES)), "after": None}
    if found := target.about().get(COPYING):
        note = json.loads(found)
        if note["from"] != source.identity:
            raise CopyRefused("the target is an unfinished copy of another database: name another one")
        return note
    full = [
        name
        for name in (*TABLES, "agents")
        if name != "job_counts" and target.rows(name, target.columns(name)[:1], None, 1)
    ]
    if full or target.identity == source.identity:
        raise CopyRefused(f"the target is not empty ({listed(full, 3)}): name a database that is not there yet")
    target.begin(json_text(note))
    return note


def _columns(source: Tables, target: Tables, table: str) -> list[str]:
    columns = source.columns(table)
    if missing := set(columns) - set(target.columns(table)):
        raise CopyRefused(f"{table} has the column {min(missing)}, which the target lacks: add it there, or drop it")
    return columns


def _digest(tables: Tables, table: str, columns: Sequence[str], told: Callable[[str, int], None]) -> tuple[int, str]:
    """How many rows a table has, and the sum of their SHA-256: databases sort texts in different ways."""
    count = total = 0
    for rows, _ in _parts(tables, table, columns):
        for row in rows:
            text = json.dumps([plain(value) for value in row])
            total += int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
        count += len(rows)
        told(f"compared {table}", count)
    return count, f"{total % MODULUS:064x}"


def _parts(
    tables: Tables, table: str, columns: Sequence[str], after: list[Any] | None = None
) -> Iterator[tuple[list[Values], list[Any]]]:
    """The rows of a table in parts, each with the key of its last row."""
    while rows := tables.rows(table, columns, after, ROWS_AT_ONCE):
        after = [plain(rows[-1][columns.index(key)]) for key in TABLES[table]]
        yield rows, after


def plain(value: Any) -> Any:
    """A value of a column as JSON, the same for every database."""
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return int(value) if isinstance(value, bool) else value

"""Copying a whole database into an empty one of any kind: `e3 db copy`.

Rows go in parts, in the order of their keys. The target notes in the transaction of each part how far it is, so that a
copy that was killed goes on there. Until all tables are compared it has no identity, and no agent can open it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from comfyui_agent.domain.texts import json_text, listed
from comfyui_agent.store.errors import CopyRefused
from comfyui_agent.store.liveness import bury_dead
from comfyui_agent.store.liveness import living_agents as find_living
from comfyui_agent.store.operation import OperationRunner
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import time_text

KEYS = (
    "templates:hash needs:key tokens:id sessions:hash batches:place jobs:id attempts:id files:path grid_files:path "
    "takes:job_id,number "
    "events:id rejections:path server_states:server stuck_prompts:prompt_id batch_endings:batch_id "
    "ending_members:job_id idempotent_requests:key,scope endings:at,status timings:needs,server "
    "server_sets:server posted_prompts:job_id posted_files:path posted_counters:prefix uploads:path "
    "webhooks:id deliveries:id assets:id"
)
TABLES = {table: tuple(key.split(",")) for table, _, key in (each.partition(":") for each in KEYS.split())}
"""Tables and their keys, in the order in which they are copied. `agents` are of the old place; search indexes are made
anew, and jobs are counted anew; `about` comes last. The `place` of a batch is its rowid in SQLite."""
SUMS = {"endings": "(SELECT at, status, CAST(sum(jobs) AS bigint) AS jobs FROM endings GROUP BY at, status) AS endings"}
"""Tables that may have several rows for a key, which count together."""
COPYING, MOVED_FROM = "copying", "moved_from"
LEFT_OUT = (COPYING, MOVED_FROM, "names_indexed", "prompts_indexed", "retention", "version", "compatible")
ROWS_AT_ONCE = 1_000
MODULUS = 2**256

Values = tuple[Any, ...]


class Tables(Protocol):
    """A database as tables. Rows are tuples in the order of the columns that were asked for; times are `datetime`.

    What writes is called within `transaction`. Triggers do not run for rows that are inserted.
    """

    session: Session
    sources: Mapping[str, str] = SUMS
    """What stands in FROM in place of a table."""

    @property
    def identity(self) -> str | None:
        """As the driver of this database says it."""

    def transaction(self) -> AbstractContextManager[Any]: ...

    def columns(self, table: str) -> list[str]: ...

    def fetch(self, sql: str, columns: Sequence[str], values: dict[str, Any]) -> list[Values]: ...

    def begin(self) -> None:
        """Get ready for rows. Between `begin` and `finish`, nobody else opens this database."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None: ...

    def finish(self, sequences: Mapping[str, int]) -> None:
        """Let new ids follow those of all rows and of the sequences."""

    def close(self) -> None: ...

    def rows(self, table: str, columns: Sequence[str], after: Sequence[Any] | None, most: int) -> list[Values]:
        """The next rows by key. `after`: the key of the last one, as `plain` makes it; None for the first part."""
        keys = TABLES.get(table, ("1",))
        values = {f"key{number}": value for number, value in enumerate(after or ())}
        behind = f"WHERE ({', '.join(keys)}) > ({', '.join(f':{name}' for name in values)})" if values else ""
        sql = f"SELECT {quoted(columns)} FROM {self.sources.get(table, table)} {behind} ORDER BY {', '.join(keys)}"  # noqa: S608 - names of the schema
        return self.fetch(f"{sql} LIMIT :most", columns, values | {"most": most})

    def sequences(self) -> dict[str, int]:
        """The last id that each table has given, also if its row is gone."""
        return {row["name"]: row["seq"] for row in self.session.rows("sequences")}

    def about(self) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self.session.rows("about_all")}

    def set_about(self, about: Mapping[str, str]) -> None:
        """Make `about` exactly this, but for what the migrator notes there."""
        self.session.run("clear_about")
        for key, value in about.items():
            self.session.run("set_about", key=key, value=value)


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
            with target.transaction():
                target.insert(name, columns, rows)
                target.session.run("set_about", key=COPYING, value=json_text(note | {"table": name, "after": last}))
            count += len(rows)
            told(f"copied {name}", count)
    both = [[_digest(each, name, sorted(source.columns(name)), told) for each in (source, target)] for name in names]
    compared = [ComparedTable(name, *here, *there) for name, (here, there) in zip(names, both, strict=True)]
    if all(each.is_same for each in compared):
        about = source.about()
        moved = {MOVED_FROM: f"{source.identity} {about.get(MOVED_FROM, '')}".strip()}
        kept = {key: value for key, value in about.items() if key not in LEFT_OUT}
        with target.transaction():
            target.session.run("recount")
            target.set_about(kept | moved)
            target.finish(source.sequences())
    return compared


def _begin(source: Tables, target: Tables) -> dict[str, Any]:
    """The note of the target: how far it is. CopyRefused if it is neither empty nor a copy of this source."""
    if COPYING in source.about():
        raise CopyRefused("what is to be copied is itself an unfinished copy: finish that one first")
    note: dict[str, Any] = {"from": source.identity, "table": next(iter(TABLES)), "after": None}
    if found := target.about().get(COPYING):
        note = json.loads(found)
        if note["from"] != source.identity:
            raise CopyRefused("the target is an unfinished copy of another database: name another one")
        return note
    full = [name for name in (*TABLES, "agents") if target.rows(name, target.columns(name)[:1], None, 1)]
    if full or target.identity == source.identity:
        raise CopyRefused(
            f"the target is not empty ({listed(full, 3)}): name an empty one, or a file that is not there yet"
        )
    with target.transaction():
        target.set_about({COPYING: json_text(note)})
        target.begin()
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
    if isinstance(value, float):  # SQLite has neither NaN nor a negative zero
        return None if math.isnan(value) else value + 0.0
    return value


def quoted(columns: Sequence[str]) -> str:
    """Names of columns for a statement."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in columns)

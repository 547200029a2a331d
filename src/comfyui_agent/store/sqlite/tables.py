"""An SQLite file as tables, for copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from comfyui_agent.store.copying import COPYING, TABLES, Tables, Values
from comfyui_agent.store.sqlite.connection import connect
from comfyui_agent.store.sqlite.driver import READ_PATIENCE, identity_at, our_words
from comfyui_agent.store.sqlite.session import QUERIES, TIMES, SqliteSession, read_time

MORE_TIMES = frozenset({"used_at", "ticked_at", "overtaken_at"})
"""Times that no query returns by these names."""
SEQUENCED = frozenset({"jobs", "events", "tokens"})


class SqliteTables(Tables):
    def __init__(self, path: Path) -> None:
        self._path = path
        with our_words(path):
            self._database = connect(path, wait=lambda seconds: seconds < READ_PATIENCE, create=False)
            self._database.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        self._session = SqliteSession(self._database)

    @property
    def identity(self) -> str:
        return identity_at(self._path, self.about().get("identity"))

    def columns(self, table: str) -> list[str]:
        return [row["name"] for row in self._session.rows("table_columns", table=table)]

    def rows(self, table: str, columns: Sequence[str], after: Sequence[Any] | None, most: int) -> list[Values]:
        keys = TABLES.get(table, ("1",))
        places = [f":key{number}" for number in range(len(keys))]
        behind = f"WHERE ({', '.join(keys)}) > ({', '.join(places)})" if after is not None else ""
        sql = QUERIES["table_rows"].format(columns=_names(columns), table=table, after=behind, key=", ".join(keys))
        values = {f"key{number}": value for number, value in enumerate(after or ())}
        times = [number for number, name in enumerate(columns) if name in TIMES | MORE_TIMES]
        with our_words(self._path):
            try:
                found = self._database.execute(sql, values | {"most": most}).fetchall()
            except UnicodeDecodeError:  # a shell with another encoding wrote it
                self._session.mend_texts()
                found = self._database.execute(sql, values | {"most": most}).fetchall()
        return [_with_times(row, times) for row in found] if times else found

    def about(self) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self._session.rows("about_all")}

    def sequences(self) -> dict[str, int]:
        return {row["name"]: row["seq"] for row in self._session.rows("sequences")}

    def begin(self, note: str) -> None:
        with our_words(self._path), self._database:
            self._session.run("clear_counts")
            self._set_about({COPYING: note})

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Values], note: str) -> None:
        values = ", ".join("?" * len(columns))
        sql = QUERIES["insert_row"].format(table=table, columns=_names(columns), values=values)
        with our_words(self._path), self._database:
            self._database.executemany(sql, rows)
            self._session.run("set_about", key=COPYING, value=note)

    def finish(self, about: Mapping[str, str], sequences: Mapping[str, int]) -> None:
        with our_words(self._path), self._database:
            self._set_about(about)
            for name in sequences.keys() & SEQUENCED:
                self._session.run("clear_sequence", name=name)
                self._session.run("set_sequence", name=name, seq=sequences[name])

    def _set_about(self, about: Mapping[str, str]) -> None:
        self._session.run("clear_about")
        for key, value in about.items():
            self._session.run("set_about", key=key, value=value)

    def close(self) -> None:
        self._database.close()


def _names(columns: Sequence[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in columns)


def _with_times(row: Values, times: Sequence[int]) -> Values:
    values = list(row)
    for number in times:
        if values[number] is not None:
            values[number] = read_time(values[number])
    return tuple(values)

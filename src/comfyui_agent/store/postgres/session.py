"""One transaction of a PostgreSQL connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors, generators
from psycopg.abc import Buffer
from psycopg.adapt import Loader, Transformer
from psycopg.pq import Escaping, ExecStatus
from psycopg.pq.abc import PGresult

from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.port import SHARED_QUERIES, ResultUnknown, Row, Session, load_queries

VALUE = re.compile(r"(?<![:\w]):(\w+)")
NUL, REPLACEMENT = "\0", "\ufffd"
ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
TYPES: dict[type, str] = {bool: "boolean", int: "bigint", float: "double precision", datetime: "timestamptz"}
NOTHING_FOUND = "E3001"
"""The code of `e3_nothing()`, with which a query fails that has to find a row."""
UNKNOWN = "unknown"
"""The type of texts and of NULL: PostgreSQL infers it."""
LARGEST = 2**63
BEGIN, COMMIT = b"BEGIN", b"COMMIT"


@dataclass(frozen=True)
class Query:
    """A query with numbered parameters, and their names."""

    text: str
    names: tuple[str, ...]
    writes: bool

    @classmethod
    def parse(cls, text: str) -> Query:
        names = tuple(dict.fromkeys(VALUE.findall(text)))
        numbered = VALUE.sub(lambda found: f"${names.index(found[1]) + 1}", text.rstrip().rstrip(";"))
        return cls(numbered, names, re.search(r"\b(INSERT|UPDATE|DELETE)\b", text) is not None)


QUERIES = {
    name: Query.parse(text) for name, text in load_queries(SHARED_QUERIES, Path(__file__).parent / "queries").items()
}
KEY_TYPES = {"start_time": datetime, "end_time": datetime, "created_at": datetime, "config_name": str} | dict.fromkeys(
    ("priority", "batch_index"), int
)


@dataclass
class Answer:
    """What a statement returned, once that has arrived."""

    key: str
    """Statements of the same key have the same columns."""
    problem: Exception | None = None
    """What it means that the statement found nothing."""
    rows: Sequence[Row] = ()
    changed: int = 0
    is_there: bool = False


class PostgresSession(Session):
    """Runs named queries. Rows come back as mappings from column to value, times as `datetime` in UTC.

    Statements are sent together with the next one whose answer is waited for, as one text of prepared statements: fewer
    round trips than one by one, and half the processor time of libpq's pipelines.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        connection.adapters.register_loader("numeric", NumberLoader)
        self.database = connection
        self._quote = Escaping(connection.pgconn).escape_literal
        self._statements: list[tuple[bytes, Answer]] = []
        self._prepared: dict[tuple[str, tuple[str, ...]], bytes] = {}
        self._preparing: dict[tuple[str, tuple[str, ...]], bytes] = {}
        """Statements that are sent with the next text. If it fails, nobody knows which of them are there."""
        self._columns: dict[str, tuple[str, ...]] = {}
        self._transformer = Transformer(connection)
        self._names = 0
        self._is_together = True
        self.has_written = False
        """Whether this transaction may have changed something."""

    def begin(self, statement: bytes, *, together: bool = True) -> None:
        """Begin a transaction. Together, what can wait is sent with the next query that is waited for."""
        self.has_written, self._is_together = False, together
        self._add(statement)

    def end(self, statement: bytes) -> None:
        """End the transaction. Raises what was sent and failed."""
        if self._statements and self._statements[0][0] == BEGIN and statement == COMMIT:
            del self._statements[0]  # one text is one transaction
            self._flush()
        else:
            self.execute(statement)

    def execute(self, statement: bytes) -> None:
        """Run a statement of the transaction itself, such as one about a savepoint."""
        self._add(statement)
        self._flush()

    def leave(self) -> None:
        """Forget what was not sent."""
        self._statements.clear()
        self._preparing.clear()

    def _add(self, statement: bytes, key: str = "", problem: Exception | None = None) -> Answer:
        answer = Answer(key, problem)
        self._statements.append((statement, answer))
        if not self._is_together:
            self._flush()
        return answer

    def _flush(self) -> None:
        """Send what has been gathered, and wait for all answers."""
        statements, preparing = self._statements, self._preparing
        if not statements:
            return
        self._statements, self._preparing = [], {}
        self.database.pgconn.send_query(b";\n".join([statement for statement, _ in statements]))
        results = self.database.wait(generators.execute(self.database.pgconn))
        if results[-1].status == ExecStatus.FATAL_ERROR:
            self._fail(results[-1], statements[len(results) - 1][1])
        self._prepared.update(preparing)
        for result, (_, answer) in zip(results, statements, strict=True):
            answer.is_there, answer.changed = True, result.command_tuples or 0
            if result.ntuples:
                answer.rows = self._rows_of(result, answer.key)

    def _fail(self, result: PGresult, answer: Answer) -> None:
        error = errors.error_from_result(result)
        if error.sqlstate == NOTHING_FOUND and answer.problem is not None:
            raise answer.problem from None
        if isinstance(error, errors.FeatureNotSupported):  # a table has another column since
            self._prepared.clear()
            self._columns.clear()
        raise error

    def _rows_of(self, result: PGresult, key: str) -> list[Row]:
        columns = self._columns.get(key)
        if columns is None or len(columns) != result.nfields:
            columns = self._columns[key] = tuple(
                (result.fname(place) or b"").decode() for place in range(result.nfields)
            )
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, lambda row: dict(zip(columns, row, strict=True)))

    def _send(self, name: str, values: dict[str, Any], problem: Exception | None = None) -> Answer:
        query = QUERIES[name]
        self.has_written = self.has_written or query.writes
        given = [_bound(values[each]) for each in query.names]
        types = tuple([_type_of(value) for value in given])
        prepared = self._prepared.get((name, types)) or self._prepare(name, query, types)
        listed = b"(%s)" % b", ".join([self._literal(value) for value in given]) if given else b""
        return self._add(b"EXECUTE " + prepared + listed, name, problem)

    def _prepare(self, name: str, query: Query, types: tuple[str, ...]) -> bytes:
        prepared = self._preparing.get((name, types))
        if prepared is None:
            self._names += 1
            prepared = self._preparing[name, types] = b"e3_%d" % self._names
            declared = f"({', '.join(types)})" if types else ""
            self._add(b"PREPARE " + prepared + f"{declared} AS {query.text}".encode())
        return prepared

    def _literal(self, value: Any) -> bytes:
        match value:
            case None:
                return b"NULL"
            case bool() | int():
                return str(value).encode()
            case _:
                return bytes(self._quote(str(value).encode()))

    def rows(self, query: str, **values: Any) -> list[Row]:
        return self.ask(query, **values)()

    def ask(self, query: str, **values: Any) -> Callable[[], list[Row]]:
        return self._reader(self._send(query, values))

    def require(self, query: str, problem: Exception, **values: Any) -> Callable[[], Row]:
        """The query itself fails if it finds nothing, with `e3_nothing()`."""
        answer = self._send(query, values, problem)
        read = self._reader(answer)
        return lambda: read()[0]

    def _reader(self, answer: Answer) -> Callable[[], list[Row]]:
        def rows() -> list[Row]:
            self._flush()
            if not answer.is_there:
                raise ResultUnknown
            return list(answer.rows)

        return rows

    def send(self, query: str, **values: Any) -> None:
        self._send(query, values)

    def can_compare(self, column: str | None, key: object) -> bool:
        return key is None or type(key) is KEY_TYPES.get(column or "", type(key))

    def run(self, query: str, **values: Any) -> int:
        answer = self._send(query, values)
        self._flush()
        return answer.changed


class NumberLoader(Loader):
    """Sums and rounded numbers as `int` or `float`, as SQLite has them."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


def _bound(value: Any) -> Any:
    """A value as PostgreSQL takes it: a list as JSON, and no NUL in a text."""
    if isinstance(value, str):
        return (value.value if isinstance(value, Enum) else value).replace(NUL, REPLACEMENT)
    if isinstance(value, (list, tuple)):
        text = json_text(value)
        return ESCAPED_NUL.sub(rf"\1{REPLACEMENT}", text) if "\\u0000" in text else text
    return value


def _type_of(value: Any) -> str:
    if type(value) is int and not -LARGEST <= value < LARGEST:
        return "numeric"
    return TYPES.get(type(value), UNKNOWN)

"""Rows for lists: large values are left out or cut before they are read.

The temporary views `brief_jobs` and `brief_batches` have the columns of their tables, and `is_shortened`, which says
whether something was left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import apsw

LEFT_OUT: Mapping[str, Mapping[str, int]] = {
    "jobs": {"inputs": 4_096, "metadata": 4_096, "pictures": 4_096, "outputs": 65_536},
    "batches": {"metadata": 16_384},
}
"""Columns that hold JSON. They are NULL where they take more bytes."""
CUT: Mapping[str, Mapping[str, int]] = {"jobs": {"error_trace": 2_048, "avoids": 2_048}, "batches": {"reason": 2_048}}
"""Columns that hold text. They are cut to this length."""


def add_brief_views(database: apsw.Connection) -> None:
    """Make the views with the current columns of their tables."""
    for table in LEFT_OUT:
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        database.execute(f"CREATE TEMP VIEW brief_{table} AS {_select(table, columns)}")


def _select(table: str, columns: list[str]) -> str:
    left_out, cut = LEFT_OUT[table], CUT[table]
    shown = []
    for column in columns:
        name = '"' + column.replace('"', '""') + '"'
        if column in left_out:
            name = f"iif(octet_length({name}) > {left_out[column]}, NULL, {name}) AS {name}"
        elif column in cut:
            name = f"iif(octet_length({name}) > {cut[column]}, substr({name}, 1, {cut[column]}), {name}) AS {name}"
        shown.append(name)
    large = " OR ".join(f"ifnull(octet_length({name}), 0) > {most}" for name, most in {**left_out, **cut}.items())
    return f"SELECT {', '.join(shown)}, ({large}) AS is_shortened FROM {table}"  # noqa: S608 - its own columns

"""Named queries from `.sql` files: a line `-- name: next_jobs`, then the text up to the next such line."""

from __future__ import annotations

import re
from pathlib import Path

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_queries(folder: Path) -> dict[str, str]:
    """Every query of a folder by name. ValueError if a name occurs twice."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*.sql")):
        parts = NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"{file.name}: the query {name} is there twice")
            found[name] = text.strip()
    return found

"""Where reports go: said before anything is measured if they cannot, written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

LONGEST_STEM = 80


class Unwritable(Exception):
    """A place where no report can be written: which, why, and what to do."""


def check_writable(folder: Path, option: str = "--output") -> None:
    """Make a folder and write to it, so that a long measurement is not lost at its end."""
    probe = folder / f".e3-{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise Unwritable(
            f"cannot write to {folder}: {error.strerror or error}; give another place with {option}"
        ) from None


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_name(f".e3-{secrets.token_hex(4)}")
    try:
        if path.exists() and not path.is_file():  # a pipe, a terminal: not to be replaced
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
            return
        with part.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise Unwritable(f"cannot write {path}: {error.strerror or error}") from None


def write_json(path: Path, document: Any) -> None:
    write_text(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def unused(folder: Path, stem: str, endings: Iterable[str]) -> str:
    """A name that no earlier report has: the stem, else `STEM_2` and so on."""
    endings = tuple(endings)
    number, name = 1, stem
    while any((folder / f"{name}{ending}").exists() for ending in endings):
        number += 1
        name = f"{stem}_{number}"
    return name


def file_stem(text: str) -> str:
    """A name that every file system takes."""
    name = re.sub(r"[^\w.-]+", "-", text).strip(".-")
    return name.encode("utf-8", "replace")[:LONGEST_STEM].decode("utf-8", "ignore").strip(".-") or "report"


def today() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d")


def this_moment() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H%M%SZ")


def page_beside(report: Path) -> Path:
    """The page of a report: of its name, and never the report itself."""
    return report.with_suffix(".html" if report.suffix.lower() != ".html" else ".page.html")


def check_report(report: Path) -> None:
    """Said before anything is measured: whether a report can be written there. Unwritable in one line."""
    check_writable(report.parent)
    for path in (report, page_beside(report) if report.name else report):
        try:
            if path.is_dir():
                raise Unwritable(f"{path} is a folder: name a file with --output")
            path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = f"cannot write {str(path)[:100]}: {error.strerror or error}"
            raise Unwritable(f"{reason}; give another place with --output") from None

"""Writing reports: checked before anything is measured, and written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

LONGEST_STEM = 80


class Unwritable(Exception):
    """A report cannot be written there: why, and what to do."""


def check_writable(folder: Path, option: str = "--output") -> None:
    """Make a folder and write to it. Unwritable if that fails, before a long measurement."""
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
    """Write a file whole or not at all. Unwritable if that fails."""
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


def unused(folder: Path, stem: str, endings: Sequence[str]) -> str:
    """The stem if no file has it with one of the endings, else `STEM_2` and so on."""
    number, name = 1, stem
    while any((folder / f"{name}{ending}").exists() for ending in endings):
        number += 1
        name = f"{stem}_{number}"
    return name


def file_stem(text: str) -> str:
    """The text as a file name that every file system takes."""
    name = re.sub(r"[^\w.-]+", "-", text).strip(".-")
    return name.encode("utf-8", "replace")[:LONGEST_STEM].decode("utf-8", "ignore").strip(".-") or "report"


def today() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d")


def this_moment() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H%M%SZ")


def page_beside(report: Path) -> Path:
    """The path of a report's page, which is never the path of the report."""
    return report.with_suffix(".html" if report.suffix.lower() != ".html" else ".page.html")


def check_report(report: Path) -> None:
    """Unwritable if the report or its page cannot be written there."""
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

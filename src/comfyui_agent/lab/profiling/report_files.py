"""Where profiles are kept: a folder a day, in which nothing is overwritten."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from comfyui_agent.lab.files import file_stem, today, unused, write_json, write_text
from comfyui_agent.lab.reports.profile import ProfileReport

PROFILES = Path("infra/comfyui/profiling")


def folder_of_today(root: Path) -> Path:
    return root / PROFILES / today()


def write_profile(folder: Path, name: str, report: ProfileReport, raw: Iterable[Mapping[str, Any]]) -> Path:
    """The report as `NAME.json`, with all that it was made of beside it as `NAME.samples.ndjson`.

    A name that is taken gets a number: `NAME_2`. Unwritable if that cannot be done.
    """
    stem = unused(folder, file_stem(name), (".json", ".samples.ndjson"))
    lines = (json.dumps(line, ensure_ascii=False) for line in raw)
    write_text(folder / f"{stem}.samples.ndjson", "".join(f"{line}\n" for line in lines))
    write_json(folder / f"{stem}.json", report.as_json())
    return folder / f"{stem}.json"


def write_page(folder: Path, page: str) -> Path:
    path = folder / f"{unused(folder, 'report', ('.html',))}.html"
    write_text(path, page)
    return path

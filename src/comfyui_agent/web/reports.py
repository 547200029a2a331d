"""The reports of the lab in the workspace, with one line on each. No other file can be had here."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.texts import is_whole, printable
from comfyui_agent.lab.reports.environment import ReportKind
from comfyui_agent.web.report_summary import ReportLine, line_of_document, line_of_page

OBSERVED = PurePosixPath("infra/observability")
PROFILED = PurePosixPath("infra/comfyui/profiling")
ENDINGS = (".json", ".html")
DEEPEST = 8
"""Parts of a path in the workspace."""
MOST_ENTRIES = 10_000
HEAD = 256 * 1024
WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")


class NoReport(Exception):
    """There is no report of that name."""


@dataclass(frozen=True)
class Report:
    """One report: its document, its page, or both. Paths are relative to the workspace, with forward slashes."""

    name: str
    kind: ReportKind
    written_at: str
    finding: str
    needs_attention: bool
    page: str | None
    document: str | None
    is_baseline: bool

    @property
    def path(self) -> str:
        """What to open: the page where there is one."""
        return self.page or self.document or ""


@dataclass(frozen=True)
class _File:
    path: Path
    relative: PurePosixPath
    kind: ReportKind
    changed: float
    size: int

    @property
    def is_page(self) -> bool:
        return self.relative.suffix == ".html"


def find_reports(workspace: Workspace, most: int = 200) -> list[Report]:
    """All reports, from the newest. Only the first part of a file is read, and again only after it has changed."""
    files = sorted(_files(workspace), key=lambda file: (file.changed, str(file.relative)), reverse=True)
    documents = [file for file in files if not file.is_page]
    pages = {file.relative: file for file in files if file.is_page}
    paired = {document.relative.with_suffix(".html") for document in documents}
    profiled = {document.relative.parent for document in documents if document.kind is ReportKind.PROFILE}
    alone = [page for path, page in pages.items() if path not in paired and path.parent not in profiled]
    found = [_report(document, _page_of(document, pages)) for document in documents[:most]]
    found += [_report(page, page) for page in alone[:most]]
    return sorted(found, key=lambda report: (report.written_at, report.name), reverse=True)[:most]


def report_file(workspace: Workspace, relative: str) -> Path:
    """The file of a report by its path in the workspace. NoReport for any other path."""
    path = PurePosixPath(relative)
    is_plain = str(path) == relative and "\\" not in relative and relative.isprintable()
    if not is_plain or _kind_of(path) is None:
        raise NoReport(f"{printable(relative[:200])!r} is no report: see the list of reports")
    root = workspace.root.resolve()
    file = root / path
    try:
        if file.resolve() != file or not stat.S_ISREG(file.lstat().st_mode):
            raise NoReport(f"{relative[:200]!r} is no report: it leads elsewhere")
    except (OSError, RuntimeError, ValueError):
        raise NoReport(f"there is no report {relative[:200]!r}: see the list of reports") from None
    return file


def _kind_of(relative: PurePosixPath) -> ReportKind | None:
    """The kind of a report with that path; None if the lab writes no such file."""
    name = relative.name
    if not is_whole(str(relative)):
        return None
    if relative.suffix not in ENDINGS or name.startswith(".") or len(relative.parts) > DEEPEST:
        return None
    if relative.is_relative_to(PROFILED) and relative.parent != PROFILED:
        return ReportKind.PROFILE
    if relative.is_relative_to(OBSERVED):
        return ReportKind.LOAD if name.startswith("load_") else ReportKind.CHAOS if name.startswith("chaos_") else None
    return None


def _files(workspace: Workspace) -> Iterator[_File]:
    root = workspace.root.resolve()
    for path in islice(_paths(root), MOST_ENTRIES):
        relative = PurePosixPath(path.relative_to(root).as_posix())
        kind = _kind_of(relative)
        with contextlib.suppress(OSError):  # gone meanwhile
            facts = path.lstat()
            if kind is not None and stat.S_ISREG(facts.st_mode):
                yield _File(path, relative, kind, facts.st_mtime, facts.st_size)


def _paths(root: Path) -> Iterator[Path]:
    """Everything below the folders of reports, where no link leads there."""
    for top in (OBSERVED, PROFILED):
        if (root / top).resolve() != root / top:
            continue
        for folder, folders, names in os.walk(root / top):
            if len(Path(folder).relative_to(root).parts) >= DEEPEST - 1:
                folders.clear()
            folders.sort(reverse=True)
            yield from (Path(folder, name) for name in sorted([*folders, *names], reverse=True))


def _page_of(document: _File, pages: Mapping[PurePosixPath, _File]) -> _File | None:
    """The page beside a document. Profiles share the page that was written after the last of them."""
    beside = pages.get(document.relative.with_suffix(".html"))
    if beside is not None or document.kind is not ReportKind.PROFILE:
        return beside
    folder = document.relative.parent
    later = [page for path, page in pages.items() if path.parent == folder and page.changed >= document.changed]
    return min(later, key=lambda page: page.changed, default=None)


def _report(file: _File, page: _File | None) -> Report:
    line = _read_line(file.path, file.kind, file.changed, file.size)
    return Report(
        name=file.relative.stem,
        kind=file.kind,
        written_at=_utc(line.began or _written(file.relative.name) or file.changed),
        finding=line.text,
        needs_attention=line.needs_attention,
        page=str(page.relative) if page else None,
        document=None if file.is_page else str(file.relative),
        is_baseline="baselines" in file.relative.parts,
    )


@lru_cache(maxsize=1024)
def _read_line(path: Path, kind: ReportKind, changed: float, size: int) -> ReportLine:  # noqa: ARG001 - for the cache
    try:
        with path.open("rb") as file:
            text = file.read(HEAD).decode("utf-8", "replace")
    except OSError as error:
        return ReportLine(f"It cannot be read: {error.strerror or error}.", needs_attention=True)
    return line_of_page(text) if path.suffix == ".html" else line_of_document(kind, text)


def _written(name: str) -> float | None:
    """The time in a file name such as `load_2025-11-16T020800Z`."""
    found = WRITTEN.search(name)
    if found is None:
        return None
    try:
        return datetime.strptime(found.group(), "%Y-%m-%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _utc(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return ""

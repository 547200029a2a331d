"""Which reports of the lab there are, what each found, and that no other file can be had by their names."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.lab.reports.environment import ReportKind
from comfyui_agent.lab.reports.reading import read_head
from comfyui_agent.web.report_summary import ReportLine, line_of_document, line_of_page
from comfyui_agent.web.reports import HEAD, NoReport, Report, find_reports, report_file

LOAD = {
    "summary": {
        "total_jobs": 60,
        "completed": 58,
        "failed": 1,
        "timeouts": 1,
        "cached_jobs": 0,
        "p95_duration_sec": 2.413,
        "images_per_minute": 87.06,
        "knee": {"reason": "throughput is flat from 4 at once"},
    },
    "results": [],
    "environment": {"kind": "loadtest", "started_at": "2025-11-16T02:08:00Z"},
}
CHAOS = {
    "summary": {"kind": "chaos", "total": 5, "passed": 4, "failed": 1, "skipped": 0, "recovery_sec": 4.25},
    "results": [{"scenario": "gpu-oom", "verdict": "failed", "reason": "pages done: expected 6, saw 5"}],
}
PROFILE = {
    "workflow": {"name": "book_medium"},
    "duration_sec": 2.314,
    "cold_duration_sec": 0.05,
    "peak_vram_mb": 9120,
    "nodes": [{"node_id": "98:3", "class_type": "KSampler", "share": 0.823}],
}


class Lab:
    """A workspace with what the lab writes; each file is a second newer than the one before."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = Workspace(root, Settings())
        self._clock = 1_700_000_000

    def write(self, relative: str, content: Any = "") -> Path:
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        self._clock += 1
        os.utime(path, (self._clock, self._clock))
        return path

    def found(self, most: int = 200) -> list[Report]:
        return find_reports(self.workspace, most)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


# What is listed.


def test_a_workspace_without_reports_has_none(lab: Lab) -> None:
    assert lab.found() == []


def test_document_and_page_are_one_report(lab: Lab) -> None:
    lab.write("infra/observability/load_night.json", LOAD)
    lab.write("infra/observability/load_night.html", "<title>a page</title>")
    (report,) = lab.found()
    assert (report.name, report.kind, report.written_at) == ("load_night", ReportKind.LOAD, "2025-11-16 02:08:00")
    assert report.document == "infra/observability/load_night.json"
    assert report.page == report.path == "infra/observability/load_night.html"
    assert report.needs_attention
    assert not report.is_baseline


def test_the_newest_comes_first_by_what_it_says_by_its_name_and_by_its_file(lab: Lab) -> None:
    lab.write("infra/observability/load_2030-01-02T030405Z.json", {})
    lab.write("infra/observability/baselines/2025-11-16/load_book_small.json", LOAD)
    lab.write("infra/observability/chaos_x.json", CHAOS)
    assert [(report.name, report.written_at) for report in lab.found()] == [
        ("load_2030-01-02T030405Z", "2030-01-02 03:04:05"),
        ("load_book_small", "2025-11-16 02:08:00"),
        ("chaos_x", "2023-11-14 22:13:23"),
    ]
    assert [report.is_baseline for report in lab.found()] == [False, True, False]
    assert [report.name for report in lab.found(most=1)] == ["chaos_x"], "the file that was written last"


def test_profiles_lead_to_the_page_that_was_written_after_them(lab: Lab) -> None:
    folder = "infra/comfyui/profiling/2025-11-16"
    lab.write(f"{folder}/book_small.json", PROFILE)
    lab.write(f"{folder}/book_small.samples.ndjson", "{}\n")
    lab.write(f"{folder}/book_medium.json", PROFILE)
    lab.write(f"{folder}/report.html")
    lab.write(f"{folder}/book_large.json", PROFILE)
    lab.write(f"{folder}/report_2.html")
    assert [(report.name, report.page) for report in lab.found()] == [
        ("book_large", f"{folder}/report_2.html"),
        ("book_medium", f"{folder}/report.html"),
        ("book_small", f"{folder}/report.html"),
    ]


def test_a_page_without_its_document_is_listed_by_its_title(lab: Lab) -> None:
    lab.write("infra/observability/load_x.html", "<!doctype html><title>Flat from 4 &amp; on\n</title><p>…")
    (report,) = lab.found()
    assert (report.finding, report.document) == ("Flat from 4 & on", None)
    assert report.page == "infra/observability/load_x.html"


def test_what_the_lab_did_not_write_is_not_listed(lab: Lab, tmp_path: Path) -> None:
    lab.write("infra/observability/comfyui_metrics.ndjson")
    lab.write("infra/observability/grafana.json", {})
    lab.write("infra/observability/baselines/2025-11-16/README.md")
    lab.write("infra/observability/.load_x.json", {})
    lab.write("infra/comfyui/profiling/loose.json", PROFILE)
    lab.write("infra/comfyui/samples/load_x.json", LOAD)
    lab.write("load_x.json", LOAD)
    lab.write("infra/observability/a/b/c/d/e/f/load_deep.json", LOAD)
    (tmp_path / "infra/observability/load_linked.json").symlink_to(tmp_path / "load_x.json")
    (tmp_path / "infra/observability/load_folder.json").mkdir()
    (tmp_path / "infra/observability/linked").symlink_to(tmp_path / "infra/comfyui/samples")
    assert lab.found() == []


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = Lab(tmp_path / "elsewhere")
    elsewhere.write("infra/observability/load_x.json", LOAD)
    (tmp_path / "night").mkdir()
    (tmp_path / "night/infra").symlink_to(tmp_path / "elsewhere/infra")
    assert Lab(tmp_path / "night").found() == []


def test_a_report_that_was_written_anew_is_read_anew(lab: Lab) -> None:
    lab.write("infra/observability/chaos_x.json", CHAOS)
    before = lab.found()[0].finding
    lab.write("infra/observability/chaos_x.json", {"summary": {"total": 2, "passed": 2}})
    assert before != lab.found()[0].finding == "2 of 2 scenarios passed"


def test_only_the_beginning_of_a_large_report_is_read(lab: Lab) -> None:
    lab.write("infra/observability/load_x.json", {**LOAD, "results": ["x" * 100] * (HEAD // 50)})
    (report,) = lab.found()
    assert report.finding.startswith("58 of 60 completed")
    assert report.written_at == "2023-11-14 22:13:21", "the environment stands behind what is read"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="everything may be read here")
def test_a_report_that_may_not_be_read_says_so(lab: Lab) -> None:
    lab.write("infra/observability/load_x.json", LOAD).chmod(0)
    assert lab.found()[0].finding == "It cannot be read: Permission denied."


# What it found.


def found(kind: ReportKind, document: Any) -> tuple[str, bool]:
    line = line_of_document(kind, json.dumps(document, indent=2))
    return line.text, line.needs_attention


def test_a_load_test_in_one_line() -> None:
    words = "58 of 60 completed, 1 failed, 1 timed out; p95 2.41 s, 87.1 images/min; throughput is flat from 4 at once"
    assert found(ReportKind.LOAD, LOAD) == (words, True)
    summary = {"total_jobs": 6, "completed": 6, "cached_jobs": 2, "concurrent_books": 3, "partial": True}
    words = "6 of 6 completed, 2 from the cache; 3 books at once within the targets; stopped in the middle"
    assert found(ReportKind.LOAD, {"summary": summary}) == (words, False)


def test_a_load_test_with_a_scenario_is_judged_by_it() -> None:
    summary = {"total_jobs": 6, "completed": 5, "scenario": {"scenario": "gpu-oom", "verdict": "passed"}}
    assert found(ReportKind.LOAD, {"summary": summary}) == ("5 of 6 completed; gpu-oom passed", False)
    summary = {"total_jobs": 6, "completed": 6, "scenario": {"scenario": "gpu-oom", "verdict": "failed"}}
    assert found(ReportKind.LOAD, {"summary": summary})[1]


def test_a_chaos_run_in_one_line() -> None:
    words = "4 of 5 scenarios passed, slowest recovery 4.25 s; gpu-oom: pages done: expected 6, saw 5"
    assert found(ReportKind.CHAOS, CHAOS) == (words, True)
    summary = {"total": 5, "passed": 4, "skipped": 1, "failed": 0, "verdict": "passed"}
    assert found(ReportKind.CHAOS, {"summary": summary}) == ("4 of 5 scenarios passed, 1 skipped", False)


def test_a_profile_in_one_line() -> None:
    words = "book_medium: 2.31 s warm, 50 ms cold; node 98:3 (KSampler) takes 82 % of a warm run; "
    assert found(ReportKind.PROFILE, PROFILE) == (words + "9,120 MB video memory at most", False)
    assert found(ReportKind.PROFILE, {}) == ("A workflow: nothing was measured", True)


def test_what_is_no_report_is_a_line_and_no_error() -> None:
    documents = [
        *(7, [], None, {}, {"summary": []}, {"summary": {"total_jobs": "6", "completed": True, "total": None}}),
        {"summary": {"total_jobs": 1e999, "total": -1, "passed": [], "knee": 7, "scenario": 3}, "results": {"a": 1}},
        {"workflow": 7, "duration_sec": "2", "nodes": [None, 7], "environment": [1]},
    ]
    for case in product(ReportKind, documents):
        try:
            words, _ = found(*case)
        except Exception as error:
            raise AssertionError(case) from error
        assert words, case
        assert "\n" not in words, case


def test_a_line_is_short_and_does_nothing_to_who_reads_it() -> None:
    document = {"workflow": {"name": "a\n\x1b[31m" + "b" * 999}}
    words = line_of_document(ReportKind.PROFILE, json.dumps(document)).text
    assert words.startswith("a \\x1b[31mbbb")
    assert len(words) < 300
    assert line_of_page("<title>" + "x" * HEAD) == ReportLine("")
    assert line_of_page("<title>" * 200_000) == ReportLine("")  # at once, not after hours


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ('{"a": 1, "b": {"c": [1, 2]}, "d": "e"}', {"a": 1, "b": {"c": [1, 2]}, "d": "e"}),
        ('{"a": 1, "b": 12', {"a": 1}),
        ('{"a": 1, "b": {"c": [1,', {"a": 1}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": 1,', {"a": 1}),
        ('{"a" 1', {}),
        ("{", {}),
        ("", {}),
        ("[1, 2]", {}),
        ('{"a": ' + "[" * 100_000, {}),
    ],
)
def test_of_a_document_that_is_cut_off_what_is_whole_is_read(text: str, head: dict[str, Any]) -> None:
    assert read_head(text) == head


# What can be had.


def test_a_report_is_found_by_the_path_that_the_list_says(lab: Lab) -> None:
    written = [
        lab.write("infra/observability/load_x.json", LOAD),
        lab.write("infra/observability/load_x.html"),
        lab.write("infra/observability/baselines/2025-11-16/load_ä b.json", LOAD),
        lab.write("infra/comfyui/profiling/2025-11-16/book_small.json", PROFILE),
        lab.write("infra/comfyui/profiling/2025-11-16/report.html"),
    ]
    listed = {path for report in lab.found() for path in (report.page, report.document) if path}
    assert {report_file(lab.workspace, path) for path in listed} == set(written)


def test_everything_else_is_refused(lab: Lab) -> None:
    others = [
        *("", ".", "/", "..", "load_x.json", "infra", "infra/observability", "config/load_x.json"),
        *("infra/observability/../../config/load_x.json", "infra/observability/../observability/load_x.json"),
        *("./infra/observability/load_x.json", "infra//observability/load_x.json", "infra/observability/load_x.json/"),
        *(
            "infra/observability/load_x.json\x00",
            "infra/observability/load_x.json\n",
            "infra\\observability\\load_x.json",
        ),
        *(
            "infra/observability/comfyui_metrics.ndjson",
            "infra/observability/load_x.yaml",
            "infra/observability/x.json",
        ),
        *("infra/observability/.load_x.json", "infra/observability/load_x", "infra/observability/load_x.json.exe"),
        *("infra/observability/load_gone.json", "infra/observability/load_" + "x" * 5000 + ".json"),
        *("infra/comfyui/profiling/loose.json", "infra/comfyui/profiling/../../observability/load_x.json"),
        *("infra/comfyui/profiling/2025-11-16/.hidden.json", "infra/comfyui/profiling/2025-11-16/book.samples.ndjson"),
        *("infra/observability/load_folder.json", "infra/observability/load_\udcff.json"),
    ]
    for path in ("load_x.json", "config/load_x.json", "infra/comfyui/profiling/loose.json"):
        lab.write(path, LOAD)
    for name in (".hidden.json", "book.samples.ndjson"):
        lab.write(f"infra/comfyui/profiling/2025-11-16/{name}", PROFILE)
    for name in ("load_x.json", "load_x.yaml", "x.json", ".load_x.json", "load_x", "comfyui_metrics.ndjson"):
        lab.write(f"infra/observability/{name}", LOAD)
    (lab.root / "infra/observability/load_folder.json").mkdir()
    for relative in others:
        with pytest.raises(NoReport) as caught:
            pytest.fail(f"{relative!r} is {report_file(lab.workspace, relative)}")
        assert "\n" not in str(caught.value), relative


def test_an_absolute_path_is_refused_even_where_a_report_is(lab: Lab) -> None:
    path = lab.write("infra/observability/load_x.json", LOAD)
    with pytest.raises(NoReport):
        report_file(lab.workspace, str(path))


def test_links_are_refused_wherever_they_stand(lab: Lab, tmp_path: Path) -> None:
    lab.write("secret.json", "secret")
    inside = lab.write("infra/observability/load_x.json", LOAD)
    folder = tmp_path / "infra/observability"
    (folder / "load_out.json").symlink_to(tmp_path / "secret.json")
    (folder / "load_in.json").symlink_to(inside)
    (folder / "load_round.json").symlink_to(folder / "load_round.json")
    (folder / "linked").symlink_to(folder)
    for name in ("load_out.json", "load_in.json", "load_round.json", "linked/load_x.json"):
        with pytest.raises(NoReport):
            report_file(lab.workspace, f"infra/observability/{name}")


def test_a_workspace_that_is_reached_by_a_link_has_its_reports(lab: Lab, tmp_path: Path) -> None:
    path = lab.write("infra/observability/load_x.json", LOAD)
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    workspace = Workspace(link, Settings())
    assert len(find_reports(workspace)) == 1
    assert report_file(workspace, "infra/observability/load_x.json") == path.resolve()


def test_a_name_that_is_no_text_is_no_report(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    folder = lab.write("infra/observability/load_one.html").parent
    try:
        (folder / os.fsdecode(b"load_\xff.html")).write_text("")
    except OSError:
        pytest.skip("no file can have such a name here")
    assert [report.path for report in lab.found()] == ["infra/observability/load_one.html"]

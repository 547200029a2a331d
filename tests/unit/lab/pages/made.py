"""Reports as the lab writes them, small and made up, and pages read as a browser reads them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

from comfyui_agent.lab.load.comparison import Comparison
from comfyui_agent.lab.pages import chaos_page as chaos
from comfyui_agent.lab.pages import compare_page as compare
from comfyui_agent.lab.pages import load_page as load
from comfyui_agent.lab.pages import profile_page as profile
from comfyui_agent.lab.pages.figures import Lanes, Plot
from comfyui_agent.lab.pages.rendering import templates
from comfyui_agent.lab.reports.chaos import ChaosReport
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.profile import ProfileReport

EVIL = "</title></svg><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload='alert(3) & <!-- ]]> {{body}}"
SLA = {
    "images_per_minute": 20,
    "concurrent_books": 5,
    "p95_seconds": 45,
    "error_rate": 0.02,
    "recovery_seconds": 120,
}
DEVICES = [{"name": "RTX 5060 Ti", "kind": "cuda", "vram_total_mb": 16384}]
HERE = "http://127.0.0.1:8188"


def load_page(report: dict[str, Any], json_name: str = "") -> str:
    return load.load_page(LoadReport.model_validate(report), json_name)


def chaos_page(report: dict[str, Any]) -> str:
    return chaos.chaos_page(ChaosReport.model_validate(report))


def profile_page(reports: Sequence[dict[str, Any]], json_names: Sequence[str] = ()) -> str:
    return profile.profile_page([ProfileReport.model_validate(report) for report in reports], json_names)


def compare_page(report: dict[str, Any]) -> str:
    return compare.compare_page(Comparison.model_validate(report))


def drawn(shown: Plot | Lanes) -> Parsed:
    """A figure as a page has it."""
    module: Any = templates().get_template("figure.html").module
    return Parsed(str(module.figure(shown, caller=lambda: "It shows.")))


class Parsed(HTMLParser):
    """A page as a browser reads it: its elements with their attributes, and the text directly in each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[int] = []
        self.feed(page)
        self.close()
        self.whole = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.texts.append("")
        if tag != "meta":
            self._open.append(len(self.texts) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self._open.pop()][0] == tag, f"{tag} closes another element"

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]] += data

    def named(self, tag: str, kind: str = "") -> list[dict[str, str]]:
        return [found for name, found in self.elements if name == tag and set(kind.split()) <= set(_classes(found))]

    def said(self, tag: str, kind: str = "") -> list[str]:
        """The texts of the elements of a tag and class."""
        pairs = zip(self.elements, self.texts, strict=True)
        return [text for (name, found), text in pairs if name == tag and set(kind.split()) <= set(_classes(found))]


def _classes(attributes: dict[str, str]) -> list[str]:
    return attributes.get("class", "").split()


def percent(place: str) -> float:
    return float(place.removesuffix("%"))


def marks(page: Parsed, look: str) -> list[tuple[float, float]]:
    """Where the marks of a look are, without that of the legend."""
    pairs = itertools.pairwise(page.elements)
    found = [around for around, (tag, inside) in pairs if tag == "path" and _classes(inside) == ["marks", look]]
    return [(percent(at["x"]), percent(at["y"])) for _, at in found if at["x"].endswith("%")]


def line(page: Parsed, number: int = 0) -> list[tuple[float, float]]:
    """The points of a drawn line."""
    points = page.named("polyline")[number]["points"].split()
    return [(float(x), float(y)) for x, y in (point.split(",") for point in points)]


def heights(page: Parsed) -> dict[str, float]:
    """Where each tick of the vertical axis is, by its number."""
    pairs = zip(page.elements, page.texts, strict=True)
    ticks = [(found, text) for (tag, found), text in pairs if tag == "text" and found["class"] == "tick"]
    return {text: percent(found["y"]) for found, text in ticks if found.get("text-anchor") == "end"}


def row(index: int, seconds: float, duration: float, status: str = "completed", **facts: Any) -> dict[str, Any]:
    base = {"index": index, "prompt_id": f"p{index}", "status": status, "duration_sec": duration, "seconds": seconds}
    parts = {"queue_sec": duration / 2, "exec_sec": duration / 4, "transfer_sec": duration / 4, "cached": False}
    return base | parts | {"error": None, "server": HERE, "level": 4, "images": 1, "bytes": 9} | facts


def level(number: float, rate: float, p95: float) -> dict[str, Any]:
    counts = {"total_jobs": 10, "completed": 10, "failed": 0, "timeouts": 0, "success_rate": 1.0, "cached_jobs": 0}
    times = {"p50_duration_sec": p95 / 2, "p95_duration_sec": p95, "wall_clock_sec": 60.0}
    return {"level": number, "unit": "prompts at once", "images_per_minute": rate, "within_sla": True} | counts | times


def load_report(**changed: Any) -> dict[str, Any]:
    """A load test of two levels with one failure."""
    results = [row(number, number * 2.0, 10.0 + number, level=1 if number < 5 else 4) for number in range(10)]
    results.append(row(10, 21.0, 30.0, "failed", error="out of memory at 0x7f31aabbccdd", level=4))
    summary: dict[str, Any] = {
        "total_jobs": 11,
        "completed": 10,
        "failed": 1,
        "timeouts": 0,
        "images": 10,
        "images_per_minute": 24.5,
        "avg_duration_sec": 14.5,
        "p50_duration_sec": 14.5,
        "p90_duration_sec": 18.1,
        "p95_duration_sec": 18.55,
        "p99_duration_sec": 18.91,
        "max_duration_sec": 19.0,
        "success_rate": 10 / 11,
        "cached_jobs": 0,
        "wall_clock_sec": 42.0,
        "mode": "closed",
        "partial": False,
        "unfinished": 0,
        "warnings": [],
        "levels": [level(1, 10.0, 12.0), level(4, 24.0, 19.0)],
        "knee": {
            "level": 4,
            "unit": "prompts at once",
            "images_per_minute": 24.0,
            "reason": "throughput flattens at 4",
        },
        "servers": [{"server": HERE, "total_jobs": 11, "completed": 10, "failed": 1, "timeouts": 0}],
    }
    trace = [
        {"seconds": at / 2, "gpu_util": 80 + at % 5, "gpu_mem_mb": 4096 + 64 * at, "server": HERE} for at in range(40)
    ]
    environment = {
        "kind": "loadtest",
        "e3": "0.6.0",
        "started_at": "2026-11-15T23:10:00.000Z",
        "sla": SLA,
        "servers": [{"server": HERE, "devices": DEVICES}],
        "gpu_trace": trace,
        "machine": {"cpu": "a fast one"},
        "workflow": {"name": "book_medium", "sha256": "ab", "nodes": 7},
    }
    return {"summary": summary | changed, "results": results, "environment": environment}


def comparison() -> dict[str, Any]:
    def metric(name: str, unit: str, change: float | None, low: float | None, high: float | None, verdict: str) -> Any:
        sides = {"a": 10.0, "b": 10.0 * (1 + (change or 0.0))} if unit != "share" else {"a": 0.95, "b": 0.96}
        words = {"verdict": verdict, "sentence": f"{name} in words"}
        return {"metric": name, "unit": unit, "change": change, "low": low, "high": high} | sides | words

    same = {"workflow": "book", "mode": "closed", "levels": [4.0], "jobs": 60, "servers": [HERE]}
    same |= {"comfyui_version": ["0.7.0"], "devices": ["RTX"], "e3": "0.6.0", "partial": False}
    return {
        "a": {"name": "bare.json", "started_at": "2026-11-15T23:10:00Z", "driver": "575"} | same,
        "b": {"name": "container.json", "started_at": "2026-11-16T23:10:00Z", "driver": "576"} | same,
        "cautions": ["The driver differs: 575 in A, 576 in B."],
        "metrics": [
            metric("p95_duration_sec", "s", 0.2, 0.1, 0.4, "worse"),
            metric("images_per_minute", "images/min", -0.02, -0.1, 0.05, "noise"),
            metric("success_rate", "share", 0.01, -0.01, 0.03, "noise"),
            metric("p50_queue_sec", "s", None, None, None, "not measured"),
        ],
        "verdict": "B is worse in p95 duration (+20 %).",
    }


def profile_report() -> dict[str, Any]:
    def run(kind: str, seconds: float, duration: float, load: float) -> dict[str, Any]:
        parts = {"queue_sec": 0.1, "model_load_sec": load, "sampling_sec": 6.0, "other_sec": 0.5, "transfer_sec": 0.4}
        return {"kind": kind, "seconds": seconds, "duration_sec": duration, "peak_vram_mb": 9216, **parts}

    def node(name: str, kind: str, cold: float, warm: float, share: float) -> dict[str, Any]:
        times = {"cold_sec": cold, "warm_sec": warm, "share": share, "steps": 0}
        return {"node_id": name, "class_type": kind, "title": "", **times}

    return {
        "workflow": {"name": "book_medium", "nodes": 7},
        "server": HERE,
        "duration_sec": 7.0,
        "partial": False,
        "cold_duration_sec": 19.0,
        "model_load_sec": 12.0,
        "sampling_sec": 6.0,
        "transfer_sec": 0.4,
        "peak_vram_mb": 9216,
        "idle_vram_mb": 800,
        "vram_total_mb": 16384,
        "warnings": [],
        "nodes": [node("3", "KSampler", 6.5, 6.0, 0.9), node("4", "CheckpointLoaderSimple", 12.0, 0.0, 0.0)],
        "runs": [run("cold", 1.0, 19.0, 12.0), run("warm", 21.0, 7.0, 0.0)],
        "fits_at_once": {"count": 1, "sentence": "One fits at once."},
        "gpu_trace": [{"seconds": at, "gpu_util": 50, "gpu_mem_mb": 1024 * at, "server": HERE} for at in range(10)],
        "environment": {"kind": "profile", "e3": "0.6.0", "started_at": "2026-11-15T23:10:00Z"},
    }


def scenario(name: str, verdict: str, recovery: float | None) -> dict[str, Any]:
    stages = [("fault", 0.0), ("alert", 6.0), ("recovered", 40.0)]
    return {
        "scenario": name,
        "verdict": verdict,
        "reason": f"why {name} {verdict}",
        "expected": "it goes on",
        "seconds": 61.0,
        "recovery_sec": recovery,
        "jobs": {"total": 12, "done": 11, "failed": 1},
        "checks": [{"what": "pages done", "expected": "12", "seen": "11", "passed": verdict == "passed"}],
        "stages": [{"stage": at, "seconds": s, "ts": "2026-11-15T23:10:06.250Z", "what": f"{at}!"} for at, s in stages],
    }


def chaos_report() -> dict[str, Any]:
    results = [scenario("comfyui-crash", "passed", 40.0), scenario("network-blip", "failed", 150.0)]
    return {
        "summary": {"kind": "chaos", "total": 2, "verdict": "failed", "recovery_sec": 150.0, "wall_clock_sec": 130.0},
        "results": results,
        "environment": {"kind": "chaos", "e3": "0.6.0", "sla": SLA},
    }


def poisoned(value: Any) -> Any:
    """A report all of whose texts are hostile, but for the words that steer a page."""
    words = {"completed", "failed", "timeout", "passed", "skipped", "worse", "better", "noise", "not measured"}
    words |= {"cold", "warm", "share", "s", "images/min", "closed"}
    if isinstance(value, dict):
        return {key: poisoned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return EVIL if isinstance(value, str) and value not in words else value

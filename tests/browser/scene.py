"""A lively evening in a workspace: two servers at work, a sweep half done, a book with a page that needs attention,
failures of several kinds, and what came before.

Everything is rendered by simulators that stop in the middle of the last two pictures: so it stands still while it is
looked at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.browser import Site, new_site, until
from support.servers import simulator
from support.workspaces import drop, job_text

PORTRAIT = "wf_realistic_portrait"
MISSING = "not_installed.safetensors"
BOOK = "Winter Tales"
PAGES = [
    "a fox leaves its den in the first snow",
    "an owl watches from a pine",
    "two hares under a silver moon",
    "the bear that would not sleep",
    "a river under the ice",
    "the thaw",
]
SINGLES = {
    "knight_in_the_rain": "portrait of a knight in the rain, cinematic lighting",
    "sea_captain": "an old sea captain, weathered face, oil lamp",
    "gardener": "a gardener among sunflowers, soft morning light",
    "astronomer": "an astronomer under the stars, long exposure",
    "dancer": "a dancer in motion, blue stage light",
    "violinist": "a violinist on a balcony, golden hour",
}
DONE, OF = 6, 12
RENDERS = 9 + len(SINGLES) + (len(PAGES) - 1) + DONE
"""The finished sweep, single pictures, the pages that work, half of the other sweep."""
WAITING = 3

LOAD = {
    "summary": {
        "total_jobs": 120,
        "completed": 120,
        "failed": 0,
        "timeouts": 0,
        "cached_jobs": 0,
        "p95_duration_sec": 8.41,
        "images_per_minute": 16.9,
        "knee": {"reason": "throughput is flat from 4 at once"},
    },
    "environment": {"kind": "loadtest"},
}
CHAOS = {
    "summary": {"kind": "chaos", "total": 5, "passed": 4, "failed": 1, "skipped": 0, "recovery_sec": 4.25},
    "results": [{"scenario": "gpu-oom", "verdict": "failed", "reason": "pages done: expected 6, saw 5"}],
}
PROFILE = {
    "workflow": {"name": "book_medium"},
    "duration_sec": 2.314,
    "cold_duration_sec": 9.871,
    "peak_vram_mb": 9120,
    "nodes": [{"node_id": "98:3", "class_type": "KSampler", "share": 0.823}],
}
REPORTS = {
    "infra/observability/load_two_cards.json": LOAD,
    "infra/observability/chaos_quick.json": CHAOS,
    "infra/comfyui/profiling/second_card/book_medium.json": PROFILE,
}

HISTORY = """
import datetime, math, sqlite3, sys

database = sqlite3.connect(sys.argv[1], timeout=20)
database.row_factory = sqlite3.Row
now = datetime.datetime.now(datetime.timezone.utc)
text = lambda minutes: (now - datetime.timedelta(minutes=minutes)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
rows = database.execute("SELECT * FROM jobs WHERE status IN ('done', 'failed') ORDER BY id").fetchall()

# What was rendered a moment ago took longer, and some of it is longer ago.
for prefix, first, last in (("lighthouses", 38, 31), ("", 22, 14), ("Winter", 11, 7), ("harbour", 0.9, 0.1)):
    group = [row for row in rows if ((row["batch_id"] or "").startswith(prefix) if prefix else not row["batch_id"])]
    for at, row in enumerate(group):
        seconds = 6 + row["id"] * 13 % 40 / 10 if row["status"] == "done" else 0.4
        ended = first + (last - first) * at / len(group)
        times = {"end": text(ended), "begin": text(ended + seconds / 60), "made": text(first + 2), "id": row["id"]}
        database.execute("UPDATE attempts SET started_at = :begin, ended_at = :end WHERE job_id = :id", times)
        database.execute("UPDATE jobs SET start_time = :begin, end_time = :end WHERE id = :id", times)
        database.execute("UPDATE jobs SET created_at = :made WHERE id = :id", times)
        if row["status"] == "done":
            database.execute("UPDATE jobs SET duration = ? WHERE id = ?", (seconds, row["id"]))
    if prefix:
        made = {"made": text(first + 2), "end": text(last), "name": f"{prefix}%"}
        database.execute("UPDATE jobs SET created_at = :made WHERE batch_id LIKE :name", made)
        database.execute("UPDATE batches SET created_at = :made WHERE id LIKE :name", made)
        database.execute("UPDATE batches SET completed_at = :end WHERE id LIKE :name AND completed_at > ''", made)

# An hour in which others were made.
database.execute("DELETE FROM endings")
done = [row for row in rows if row["status"] == "done" and not row["batch_id"]]
number = 0
for minute in range(60):
    count = round(18 + 4 * math.sin(minute / 7) + minute * 7 % 3) if not 33 <= minute < 37 else 37 - minute
    failed = {34: 3, 35: 1, 51: 1}.get(minute, 0)
    for status, jobs in (("done", count), ("failed", failed)):
        ended = f"{text(minute + 0.02)[:18]}0.000"
        database.execute("INSERT INTO endings VALUES (?, ?, ?)", (ended, status, jobs))
    for each in range(count if minute > 1 else 0):
        number += 1
        like = done[number % len(done)]
        ended = minute + each / count
        database.execute(
            "INSERT INTO jobs (config_name, job_type, workflow_id, status, run_count, start_time, end_time, duration, "
            "outputs, server, created_at) VALUES (?, ?, ?, 'done', 1, ?, ?, ?, ?, ?, ?)",
            (f"{like['config_name']}_{2000 - number}", like["job_type"], like["workflow_id"], text(ended + 0.1),
             text(ended), 6 + number * 7 % 40 / 10, like["outputs"], like["server"], text(minute + 12)),
        )
database.commit()
"""
"""By hand, as people may."""


@dataclass(frozen=True)
class Scene:
    """The site, and where in it the things are that one wants to look at."""

    site: Site
    sweep: str
    """Half done."""
    finished: str
    book: str
    job: int
    """Done."""
    failed: int
    waiting: int

    def cells(self) -> tuple[int, int]:
        """Two of the finished sweep."""
        jobs = self.site.batch(self.finished)["jobs"]
        return jobs[0]["id"], jobs[4]["id"]


def build_scene(folder: Path, ports: tuple[int | None, int | None] = (None, None)) -> Scene:
    """Start everything and wait until it stands still."""
    half = RENDERS // 2
    servers = [
        simulator(folder / f"sim-{number}", "--render-seconds", "0.1", "--hang-after", str(most), *more, port=port)
        for number, (most, port, more) in enumerate(
            zip((half, RENDERS - half), ports, (["--vram-gb", "24"], ["--vram-gb", "12"]), strict=True)
        )
    ]
    patient = {"E3_COMFYUI__STALL_SECONDS": "600", "COMFY_MAX_RETRIES": "1", "E3_UI__PREVIEWS": "true"}
    patient["E3_ROUTING__STAY_SECONDS"] = "0"  # what is done when the servers hang depends on the order
    site = new_site(folder / "workspace", *servers, **patient)
    for hours, (path, report) in enumerate(REPORTS.items(), start=1):
        _write(site.workspace.root / path, report, hours)
    try:
        for server in servers:
            server.launch()
        site.start()
        site.pause()
        scene = _fill(site)
        site.resume()
        _settle(scene)
        _remember(scene)
    except BaseException:
        site.stop()
        raise
    return scene


def _fill(site: Site) -> Scene:
    drop(site.workspace, "postcard.yaml", job_text(colour=3))
    light = {"prompt": "a lighthouse keeper at dawn", "steps": 8}
    night = {"prompt": "a harbour at night", "steps": 20}
    finished = site.sweep("lighthouses", PORTRAIT, {"seed": "1..3", "cfg": "4,7.5,11"}, **light)
    singles = [
        site.queue(name, PORTRAIT, prompt=prompt, seed=7 + number, steps=8)
        for number, (name, prompt) in enumerate(SINGLES.items())
    ]
    failed = site.queue("dragon_tamer", PORTRAIT, prompt="a dragon tamer", seed=1, steps=20, checkpoint=MISSING)
    site.ask("/api/v1/jobs", LARGE)
    pages: list[dict[str, Any]] = [{"prompt": prompt} for prompt in PAGES]
    pages[3]["checkpoint"] = MISSING
    book = site.book(BOOK, PORTRAIT, pages, seed=12, steps=8)
    sweep = site.sweep("harbour at night", PORTRAIT, {"seed": "11..14", "cfg": "4,7.5,11"}, **night)
    waiting = [
        site.queue(f"morning_{number}", PORTRAIT, priority=60, prompt="a baker at four", seed=number, steps=20)
        for number in range(WAITING)
    ]
    return Scene(site, sweep, finished, book, singles[0]["id"], failed["id"], waiting[0]["id"])


LARGE = {
    "name": "panorama",
    "workflow_id": PORTRAIT,
    "job_type": "T2I",
    "inputs": {"prompt": "the whole coast, from above", "seed": 3, "steps": 20, "width": 16384, "height": 8192},
    "retry_limit": 0,
}
"""More than any of the cards can hold."""


def _settle(scene: Scene) -> None:
    site = scene.site
    site.wait_batch(scene.finished, done=9)
    site.wait_batch(scene.book, done=5, failed=1)
    site.wait_batch(scene.sweep, done=DONE)
    until(lambda: site.batch(scene.finished)["grid"], "the grid of the finished sweep")
    until(lambda: site.job("postcard.yaml")["status"] == "failed", "the file to be refused")
    until(lambda: len(_at_work(site)) == 2, "two pictures at work")


def _at_work(site: Site) -> list[dict[str, Any]]:
    shown = [site.job(job["id"])["live"] for job in site.jobs(status="processing")]
    return [live for live in shown if live and live["stage"] == "rendering" and live["step"]]


def _remember(scene: Scene) -> None:
    database = scene.site.workspace.database
    subprocess.run([sys.executable, "-c", HISTORY, str(database)], check=True, timeout=30)


def _write(path: Path, report: Any, hours: int) -> None:
    """A report of some hours ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report), encoding="utf-8")
    then = time.time() - 5 * 3600 * hours
    os.utime(path, (then, then))

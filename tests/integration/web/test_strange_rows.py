"""Rows that someone wrote by hand, files of strange names, templates with half characters: all of it can be shown."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.store import operations as ops
from comfyui_agent.web.site import ADDRESSES
from support.store_batches import queue
from support.stores import in_the_shell
from support.web import Served, served, watching

pytestmark = pytest.mark.asyncio(loop_scope="module")

HALF = "\ud800"
"""Half a character: JSON can write it down, UTF-8 cannot."""

STRANGE = [
    ("priority", "'soon'"),
    ("priority", "9e999"),
    ("priority", "1.5"),
    ("priority", "x'00ff'"),
    ("retry_limit", "'often'"),
    ("retry_limit", "-9e999"),
    ("run_count", "'many'"),
    ("retries_attempted", "1.5"),
    ("duration", "9e999"),
    ("duration", "'long'"),
    ("timeout_seconds", "9e999"),
    ("timeout_seconds", "x'ff'"),
    ("metadata", '\'{"a": NaN, "b": -Infinity}\''),
    ("metadata", "'NaN'"),
    ("metadata", "'[1e999]'"),
    ("metadata", '\'{"a": "\\ud800"}\''),
    ("metadata", "'{\"\\ud800\": 1}'"),
    ("metadata", "'not json'"),
    ("metadata", "x'fffe'"),
    ("metadata", "42"),
    ("inputs", "'{\"1.color\": Infinity}'"),
    ("inputs", '\'{"6.text": "\\udfff"}\''),
    ("inputs", "'[]'"),
    ("inputs", "'7'"),
    ("pictures", "'[\"\\ud800\"]'"),
    ("outputs", '\'["a.png", 7, null, "\\ud800.png"]\''),
    ("outputs", "'{\"a\": 1}'"),
    ("outputs", "'[\"' || char(0) || '\"]'"),
    ("outputs", "x'ff'"),
    ("error_trace", "x'ff00fe'"),
    ("error_trace", "17"),
    ("start_time", "'yesterday'"),
    ("end_time", "'9999-99-99'"),
    ("end_time", "9e999"),
    ("created_at", "x'00'"),
    ("server", "'not an address'"),
    ("server", "'http://[::1'"),
    ("server", "7"),
    ("batch_index", "'third'"),
    ("batch_index", "9e999"),
    ("needs_regeneration", "'perhaps'"),
    ("failure_class", "'bad luck'"),
    ("workflow_id", "x'ff'"),
    ("job_type", "'SCULPTURE'"),
    ("fence", "x'ff'"),
    ("strikes", "'three'"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attic(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A job, and a book, for each column that something strange can stand in; in every state."""
    folder = tmp_path_factory.mktemp("attic") / "house"
    async with served(folder) as house:
        template = Template.of({"1": {"class_type": "X", "inputs": {"text": HALF, "n": 1}, "_meta": {"title": HALF}}})
        await house.store.run(
            ops.submit_jobs, [NewJob(f"strange-{number}", "T2I", "picture", template) for number in range(len(STRANGE))]
        )
        await queue(house.store, len(STRANGE), "attic_1")
    states = ("pending", "processing", "failed", "done")
    lines = []
    for number, (column, value) in enumerate(STRANGE):
        for name in (f"strange-{number}", f"attic_1_{number}"):
            lines.append(
                f"UPDATE OR IGNORE jobs SET {column} = {value}, status = '{states[number % 4]}' "
                f"WHERE config_name = '{name}';"
            )
    metadata = r'{"axes": NaN, "title": "\ud800"}'
    lines.append(f"UPDATE batches SET name = x'ff', metadata = '{metadata}' WHERE id = 'attic_1';")
    in_the_shell(folder / "database" / "comfyui_agent.db", "\n".join(lines))
    reports = folder / "infra" / "observability"
    reports.mkdir(parents=True, exist_ok=True)
    (reports / "load_1.json").write_text('{"summary": {"total_jobs": NaN, "avg_duration_sec": 1e999}}')
    (reports / "load_2.json").write_text('{"summary": "\\ud800"}')
    (reports / "load_3.html").write_bytes(b"<title>\xff\xfe</title>")
    (folder / "workflows" / "half.json").write_text(
        json.dumps({"1": {"class_type": "X", "inputs": {"text": HALF}, "_meta": {"title": HALF}}})
    )
    async with served(folder) as house:
        yield house


async def test_every_strange_job_is_listed_and_shown(attic: Served) -> None:
    listed = await attic.get("/api/v1/jobs?limit=1000")
    assert listed.status == 200, listed.text
    assert len(listed.value["jobs"]) == 2 * len(STRANGE)
    for job in listed.value["jobs"]:
        for path in ("", "/workflow"):
            answer = await attic.get(f"/api/v1/jobs/{job['id']}{path}")
            assert answer.status in (200, 409), f"{STRANGE[(job['id'] - 1) % len(STRANGE)]}: {answer.text}"
        page = await attic.get(f"/jobs/{job['id']}")
        assert page.status == 200, f"{STRANGE[(job['id'] - 1) % len(STRANGE)]}: {page.text}"


async def test_every_list_and_page_that_has_them_is_shown(attic: Served) -> None:
    states = ("pending", "processing", "failed", "done")
    for path in (
        "/api/v1/batches",
        "/api/v1/batches/attic_1",
        "/api/v1/batches/attic_1/results?limit=1000",
        "/api/v1/books",
        "/api/v1/workflows",
        "/api/v1/workflows/half",
        "/api/v1/reports",
        "/api/v1/status",
        "/api/v1/servers",
        "/metrics",
        *(f"/api/v1/jobs?status={state}&limit=7" for state in states),
        "/api/v1/jobs?q=str",
        "/api/v1/jobs?batch=attic_1",
        *(each.path for each in ADDRESSES if "{" not in each.path),
        "/batches/attic_1",
        "/new?workflow=half",
        *(f"/queue?status={state}" for state in states),
    ):
        answer = await attic.get(path)
        assert answer.status == 200, f"{path}: {answer.text[:2000]}"


@pytest.mark.parametrize("path", ["/", "/queue", "/batches", "/batches/attic_1"])
async def test_every_page_that_has_them_lives(attic: Served, path: str) -> None:
    async with watching(attic, f"/stream?page={path}") as stream:
        frames = await stream.until(lambda frame: frame.event != "")
        assert [frame.event for frame in frames if frame.event] == ["fragments"]


async def test_pages_of_strange_jobs_can_be_turned_to_the_end(attic: Served) -> None:
    for question in ("", "&status=pending", "&status=done", "&status=failed", "&status=processing"):
        seen: list[int] = []
        cursor = ""
        while True:
            answer = await attic.get(f"/api/v1/jobs?limit=5{question}{cursor}")
            assert answer.status == 200, answer.text
            seen += [job["id"] for job in answer.value["jobs"]]
            if answer.value["next"] is None:
                break
            cursor = f"&cursor={answer.value['next']}"
        assert len(seen) == len(set(seen))
        assert question or len(seen) == 2 * len(STRANGE)


async def test_a_report_whose_name_is_no_text_is_left_out(attic: Served) -> None:
    folder = attic.workspace.root / "infra" / "observability"
    path = Path(os.fsdecode(os.fsencode(folder) + b"/load_\xff.html"))
    path.write_bytes(b"<title>nameless</title>")
    try:
        reports = (await attic.get("/api/v1/reports")).value["reports"]
    finally:
        path.unlink()
    assert {report["path"].rpartition("_")[2] for report in reports} == {"1.json", "2.json", "3.html"}


async def test_strange_jobs_can_be_cancelled_and_retried(attic: Served) -> None:
    names = [f"strange-{number}" for number in range(len(STRANGE))]
    for path in ("cancel", "retry"):
        answer = await attic.post(f"/api/v1/jobs/{path}", {"names": names})
        assert answer.status == 202, answer.text
        assert len(answer.value["changed"]) + len(answer.value["refused"]) == len(names)
    assert (await attic.post("/api/v1/jobs/retry", {"failed": True})).status == 202

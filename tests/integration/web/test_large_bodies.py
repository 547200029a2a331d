"""However large jobs are, what is asked for is refused or stays small, and nobody waits for it."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from comfyui_agent.batches.members import effective_inputs
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.prompt_builder import PromptBuilder
from comfyui_agent.store import operations as ops
from comfyui_agent.web.api.responses import MOST_BYTES
from comfyui_agent.web.problems import JsonAnswer
from support.stores import in_the_shell
from support.web import Served, check_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

KB = 1024
TALKATIVE = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 32, "height": 32, "batch_size": 1, "color": 0}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
}


def talking(house: Served, name: str = "talking", text: str = "a knight") -> str:
    """A workflow that takes a text, which decides nothing."""
    path = house.workspace.root / "workflows" / f"{name}.json"
    graph = {**TALKATIVE, "3": {"class_type": "PrimitiveString", "inputs": {"value": text}}}
    path.write_text(json.dumps(graph), encoding="utf-8")
    return name


def by_hand(house: Served, sql: str) -> list[dict[str, Any]]:
    return in_the_shell(house.workspace.root / "database" / "comfyui_agent.db", sql)


def stored(house: Served) -> int:
    """Bytes of the database."""
    return sum(path.stat().st_size for path in (house.workspace.root / "database").glob("comfyui_agent.db*"))


def sweep(house: Served, text: str, **more: Any) -> dict[str, Any]:
    return {"workflow": talking(house), "set": {"color": "1..40"}, "inputs": {"3.value": text}, **more}


@pytest.mark.parametrize("key", ["inputs", "metadata"])
async def test_a_job_that_is_too_large_is_refused_and_the_key_is_named(house: Served, key: str) -> None:
    large = {"3.value": "x" * 65 * KB}
    said = {"job_type": "T2I", "workflow_id": talking(house), key: large, "name": f"large_{key}"}
    problem = check_problem(await house.post("/api/v1/jobs", said), 409)
    assert problem["errors"][0]["key"] == key
    assert "66 KB, and a job may have 64 KB" in problem["detail"]
    assert "job_limit_kb" in problem["detail"]
    check_problem(await house.get(f"/api/v1/jobs/large_{key}"), 404)
    fitting = said | {key: {"3.value": "x" * 60 * KB}}
    assert (await house.post("/api/v1/jobs", fitting)).status == 201


async def test_both_halves_of_a_job_count_together(house: Served) -> None:
    said = {"job_type": "T2I", "workflow_id": talking(house), "metadata": {"note": "x" * 40 * KB}}
    check_problem(await house.post("/api/v1/jobs", said | {"inputs": {"3.value": "y" * 30 * KB}}), 409)


async def test_a_sweep_or_a_book_of_large_jobs_is_refused_and_nothing_is_queued(house: Served) -> None:
    before = await house.store.run(ops.count_jobs)
    huge, long = "x" * 900 * KB, "x" * 65 * KB
    assert (
        "a job may have 64 KB" in check_problem(await house.post("/api/v1/batches", sweep(house, huge)), 409)["detail"]
    )
    axis = {"workflow": "talking", "set": {"3.value": [long, "short"]}, "mode": "linear"}
    assert "a job may have 64 KB" in check_problem(await house.post("/api/v1/batches", axis), 409)["detail"]
    for body in ({"inputs": {"3.value": long}, "pages": [{}, {}]}, {"pages": [{"inputs": {"3.value": long}}]}):
        problem = check_problem(await house.post("/api/v1/books", {"workflow": "talking", **body}), 409)
        assert "page 1: inputs" in problem["detail"]
    assert await house.store.run(ops.count_jobs) == before


STYLED = {"workflow": "styled", "inputs": {"style": "x" * 60 * KB}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (
            "batches",
            {
                "workflow": "talking",
                "set": {"3.value": ["x" * 20 * KB + str(number) for number in range(4)], "color": "1..3000"},
            },
            "its 12,000 jobs would take about 469 MB",
        ),
        ("batches", STYLED | {"set": {"subject": "1..3000"}}, "its 3,000 jobs would take about 175 MB"),
        (
            "books",
            STYLED | {"book_id": "styled", "pages": [{"inputs": {"subject": number}} for number in range(2_300)]},
            "its 2,300 pages would take about 135 MB",
        ),
    ],
    ids=["long values", "a text of many parts", "a book"],
)
@pytest.mark.timing
async def test_members_that_differ_in_long_values_are_bounded_as_a_whole(
    house: Served, path: str, body: dict[str, Any], words: str
) -> None:
    talking(house, "styled", "${style} with ${subject}")
    talking(house)
    before = await house.store.run(ops.count_jobs)
    problem = check_problem(await house.post(f"/api/v1/{path}", body), 409)
    assert problem["detail"] == f"{words} in the database: one request may take 128 MB"
    assert await house.store.run(ops.count_jobs) == before


async def test_what_the_members_of_a_sweep_share_is_stored_once_and_shown_with_each(house: Served) -> None:
    text = "a fox " * 5_000
    answer = await house.post("/api/v1/batches", sweep(house, text, priority=-5))
    assert answer.status == 201, answer.text
    batch_id = answer.value["id"]
    (row,) = by_hand(house, f"SELECT inputs, metadata FROM jobs WHERE batch_id = '{batch_id}' AND batch_index = 3")
    assert json.loads(row["inputs"]) == {"1.color": 4}
    job = (await house.get(f"/api/v1/jobs/{batch_id}_0004")).value
    assert job["inputs"] == {"1.color": 4, "3.value": text}
    assert (await house.get(f"/api/v1/jobs/{batch_id}_0004/workflow")).value["inputs"] == job["inputs"]
    page = await house.get(f"/jobs/{job['id']}")
    assert "a fox a fox" in page.text
    (leased,) = await house.lease(1, batch_id)
    workspace = load_workspace(house.workspace.root, {})
    builder = PromptBuilder(house.store, workspace)
    sent = (await builder.prepare(leased)).graph
    assert (sent["3"]["inputs"]["value"], sent["1"]["inputs"]["color"]) == (text, 1)
    await house.fail(leased)
    assert (await house.post(f"/api/v1/jobs/{leased.lease.job_id}/retry")).status == 202
    (again,) = await house.lease(1, batch_id)
    assert (await builder.prepare(again)).graph["3"]["inputs"]["value"] == text
    await ops.cancel_batch(house.store, batch_id)


async def test_what_the_pages_of_a_book_share_is_stored_once_and_a_changed_page_has_it_too(house: Served) -> None:
    text = "snow " * 5_000
    pages = [{"inputs": {"color": number}} for number in range(1, 5)]
    body = {"book_id": "snowy", "workflow": talking(house), "inputs": {"3.value": text, "width": 64}, "pages": pages}
    answer = await house.post("/api/v1/books", body)
    assert answer.status == 201, answer.text
    assert answer.value["pages"][1]["job_metadata"]["overrides"] == {"color": 2}
    (row,) = by_hand(house, "SELECT inputs, length(metadata) AS size FROM jobs WHERE config_name = 'snowy_page_002'")
    assert json.loads(row["inputs"]) == {"1.color": 2}
    assert row["size"] < KB
    (member,) = [
        each for each in (await house.get("/api/v1/batches/snowy/results")).value["results"] if each["index"] == 1
    ]
    assert member["settings"] == {"3.value": text, "width": 64, "color": 2}
    assert "snow snow" in (await house.get("/admin/books/snowy")).text
    await ops.cancel_batch(house.store, "snowy")
    changed = await house.post("/admin/books/snowy/regenerate-page/2", {"inputs": {"width": 128}})
    assert changed.status == 202, changed.text
    job = (await house.get("/api/v1/jobs/snowy_page_002")).value
    assert job["inputs"] == {"1.color": 2, "1.width": 128, "3.value": text}
    large = {"inputs": {"3.value": "x" * 40 * KB}}
    problem = check_problem(await house.post("/admin/books/snowy/regenerate-page/1", large), 409)
    assert "a job may have 64 KB" in problem["detail"]
    await ops.cancel_batch(house.store, "snowy")


async def test_what_most_pages_of_a_book_have_is_stored_once_and_the_others_keep_their_own(house: Served) -> None:
    text = "sun " * 6 * KB
    body = {
        "book_id": "sunny",
        "workflow": talking(house),
        "inputs": {"3.value": text},
        "pages": [{"inputs": {"3.value": "rain"}}, *[{"inputs": {"color": number}} for number in range(1, 200)]],
        "priority": -6,
    }
    before = stored(house)
    assert (await house.post("/api/v1/books", body)).status == 201
    assert stored(house) - before < 2 * KB * KB  # and not 5 MB
    rows = by_hand(house, "SELECT inputs FROM jobs WHERE batch_id = 'sunny' ORDER BY batch_index LIMIT 2")
    assert [json.loads(row["inputs"]) for row in rows] == [{"3.value": "rain"}, {"1.color": 1}]
    preparing = PromptBuilder(house.store, load_workspace(house.workspace.root, {}))
    sent = [(await preparing.prepare(leased)).graph for leased in await house.lease(2, "sunny")]
    assert [graph["3"]["inputs"]["value"] for graph in sent] == ["rain", text]
    shown = [(await house.get(f"/api/v1/jobs/sunny_page_{number:03}")).value["inputs"] for number in (1, 2)]
    assert shown == [{"3.value": "rain"}, {"3.value": text, "1.color": 1}]
    await ops.cancel_batch(house.store, "sunny")
    for page, said in ((3, text), (1, "rain")):
        again = await house.post(f"/admin/books/sunny/regenerate-page/{page}", {"inputs": {"width": 128}})
        assert again.status == 202, again.text
        inputs = (await house.get(f"/api/v1/jobs/sunny_page_{page:03}")).value["inputs"]
        assert (inputs["3.value"], inputs["1.width"]) == (said, 128)
    await ops.cancel_batch(house.store, "sunny")


async def test_a_page_made_before_goes_on_with_the_inputs_that_it_keeps_itself(house: Served) -> None:
    body = {
        "book_id": "older",
        "workflow": talking(house),
        "inputs": {"width": 64},
        "pages": [{"inputs": {"color": 1}}],
    }
    assert (await house.post("/api/v1/books", body)).status == 201
    kept = json.dumps(
        {"page": 1, "workflow": "talking", "inputs": {"width": 64, "color": 1}, "overrides": {"color": 1}}
    )
    by_hand(
        house,
        f"UPDATE jobs SET metadata = '{kept}' WHERE batch_id = 'older';"
        """UPDATE batches SET metadata = '{"title": "older"}' WHERE id = 'older'""",
    )
    await ops.cancel_batch(house.store, "older")
    assert (await house.post("/admin/books/older/regenerate-page/1", {"inputs": {"color": 9}})).status == 202
    job = await house.store.run(ops.find_job_by_name, "older_page_001")
    assert job is not None
    batch = await house.store.run(ops.find_batch, "older")
    assert effective_inputs(job, batch) == {"1.color": 9, "1.width": 64}
    await ops.cancel_batch(house.store, "older")


async def test_a_list_of_jobs_that_someone_made_huge_is_small_and_written_beside_the_loop(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(
        house,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) "
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, metadata, error_trace, hold) "
        "SELECT 'huge_' || i, 'T2I', 'picture', 'pending', '{\"note\": \"' || hex(zeroblob(100000)) || '\"}', "
        "hex(zeroblob(10000)), 'paused' FROM n;"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) "
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, metadata, hold) "
        "SELECT 'many_' || i, 'T2I', 'picture', 'pending', '{\"note\": \"' || hex(zeroblob(2000)) || '\"}', 'paused' "
        "FROM n",
    )
    written: list[tuple[int, bool]] = []
    render = JsonAnswer.render

    def noted(self: JsonAnswer, content: Any) -> bytes:
        data = render(self, content)
        written.append((len(data), threading.current_thread() is threading.main_thread()))
        return data

    monkeypatch.setattr(JsonAnswer, "render", noted)
    listed = await house.get("/api/v1/jobs?q=huge_&limit=1000")
    many = await house.get("/api/v1/jobs?q=many_&limit=1000")
    screen = await house.get("/queue?q=huge_")
    assert written == [(len(listed.body), False), (len(many.body), False)]
    assert [(job["metadata"], job["is_shortened"]) for job in listed.value["jobs"]] == [(None, True)] * 60
    assert {len(job["error_trace"]) for job in listed.value["jobs"]} == {2048}
    assert len(listed.body) < 400 * KB
    assert (screen.status, len(screen.body) < 400 * KB) == (200, True)
    assert many.value["jobs"][0]["metadata"]["note"]
    assert not many.value["jobs"][0]["is_shortened"]
    assert 1 < len(many.value["jobs"]) < 900
    assert (many.value["is_whole"], many.value["next"] is None) == (False, False)
    assert len(many.body) < 2 * MOST_BYTES
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = (await house.get(f"/api/v1/jobs?q=many_&limit=1000{cursor and f'&cursor={cursor}'}")).value
        seen += [job["config_name"] for job in page["jobs"]]
        cursor = page["next"]
    assert len(seen) == len(set(seen)) == 900
    job = (await house.get("/api/v1/jobs/huge_1")).value
    assert len(job["metadata"]["note"]) == 200_000
    assert "is_shortened" not in job
    by_hand(house, "DELETE FROM jobs WHERE config_name LIKE 'huge_%' OR config_name LIKE 'many_%'")


async def test_a_batch_or_a_book_of_large_members_is_answered_in_parts(house: Served) -> None:
    by_hand(
        house,
        "INSERT INTO batches (id, name, kind, status, metadata) VALUES ('wide', 'wide', 'book', 'complete', "
        "'{\"title\": \"' || hex(zeroblob(20000)) || '\"}');"
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 899) "
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, metadata, error_trace, batch_id, batch_index) "
        "SELECT 'wide_' || i, 'T2I', 'picture', 'failed', '{\"overrides\": {\"note\": \"' || hex(zeroblob(2000)) || "
        "'\"}}', 'boom: ' || hex(zeroblob(2000)), 'wide', i FROM n",
    )
    shown = await house.get("/api/v1/batches/wide")
    assert (shown.value["jobs"], shown.value["total"]) == (None, 900)
    results = await house.get("/api/v1/batches/wide/results?limit=1000")
    assert 1 < len(results.value["results"]) < 900
    assert results.value["next"]
    book = await house.get("/api/v1/books/wide")
    assert (len(book.value["pages"]), book.value["next"]) == (900, None)
    assert len(book.body) < MOST_BYTES
    (error,) = book.value["pages"][7]["image_error"]
    assert error["message"].startswith("boom: ")
    assert [page["page"] for page in (await house.get("/api/v1/books/wide?after=890")).value["pages"]] == [
        *range(891, 901)
    ]
    (listed,) = [each for each in (await house.get("/api/v1/books?limit=1000")).value["books"] if each["id"] == "wide"]
    assert listed["status"] == "complete"
    for job in await house.store.run(ops.list_jobs, batch_id="wide", status=JobStatus.FAILED, limit=1):
        assert job.metadata is not None
    by_hand(house, "DELETE FROM jobs WHERE batch_id = 'wide'; DELETE FROM batches WHERE id = 'wide'")

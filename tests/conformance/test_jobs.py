"""The list of jobs: running, waiting and ended ones in one shape."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from support.graphs import failing, fresh_prefix, node, picture, slow_graph
from support.wire import Graph, Wire


def marked(workflow_id: str) -> dict[str, Any]:
    """Extra data by which the list can be narrowed to one test."""
    return {"extra_pnginfo": {"workflow": {"id": workflow_id}}}


async def listing(wire: Wire, workflow_id: str, **query: Any) -> dict[str, Any]:
    answer = await wire.get("/api/jobs", params={"workflow_id": workflow_id, **query})
    assert (answer.status, answer.body.keys()) == (200, {"jobs", "pagination"})
    body: dict[str, Any] = answer.body
    return body


async def ids(wire: Wire, workflow_id: str, **query: Any) -> list[str]:
    return [job["id"] for job in (await listing(wire, workflow_id, **query))["jobs"]]


async def ended(wire: Wire, graph: Graph) -> dict[str, Any]:
    """The job that a prompt was, after it ran."""
    prompt_id = await wire.submit(graph)
    await wire.finished(prompt_id)
    job: dict[str, Any] = (await wire.get(f"/api/jobs/{prompt_id}")).body
    return job


async def three_ended(wire: Wire, workflow_id: str) -> list[str]:
    """Three prompts created at different milliseconds."""
    prompt_ids = []
    for _ in range(3):
        prompt_ids.append(await wire.submit(picture(), extra_data=marked(workflow_id)))
        created = (await wire.finished(prompt_ids[-1]))["prompt"][3]["create_time"]
        while (await wire.finished(await wire.submit(picture())))["prompt"][3]["create_time"] == created:
            pass
    return prompt_ids


@pytest.mark.of_the_wire
async def test_a_completed_job_tells_its_times_and_first_picture(wire: Wire) -> None:
    workflow_id = uuid.uuid4().hex
    answer = await wire.offer(picture(), extra_data=marked(workflow_id))
    prompt_id = answer.body["prompt_id"]
    entry = await wire.finished(prompt_id)
    messages = entry["status"]["messages"]
    (job,) = (await listing(wire, workflow_id))["jobs"]
    assert job == {
        "id": prompt_id,
        "status": "completed",
        "priority": answer.body["number"],
        "create_time": entry["prompt"][3]["create_time"],
        "execution_start_time": messages[0][1]["timestamp"],
        "execution_end_time": messages[-1][1]["timestamp"],
        "outputs_count": 1,
        **({"previewable_outputs_count": 1} if wire.since("0.32") else {}),
        "preview_output": entry["outputs"]["2"]["images"][0] | {"nodeId": "2", "mediaType": "images"},
        "workflow_id": workflow_id,
    }


async def test_a_failed_job_tells_its_error(wire: Wire) -> None:
    workflow_id = uuid.uuid4().hex
    entry = await wire.finished(await wire.submit(failing(), extra_data=marked(workflow_id)))
    (job,) = (await listing(wire, workflow_id))["jobs"]
    assert (job["status"], job["outputs_count"]) == ("failed", 0)
    assert job["execution_error"] == entry["status"]["messages"][-1][1]
    assert "preview_output" not in job


@pytest.mark.of_the_wire
async def test_running_and_waiting_jobs_tell_less(slow_wire: Wire) -> None:
    workflow_id = uuid.uuid4().hex
    running = await slow_wire.submit(await slow_graph(slow_wire), extra_data=marked(workflow_id))
    await slow_wire.running(running)
    waiting = await slow_wire.submit(picture(), extra_data=marked(workflow_id))
    jobs = {job["id"]: job for job in (await listing(slow_wire, workflow_id))["jobs"]}
    assert (jobs[running]["status"], jobs[waiting]["status"]) == ("in_progress", "pending")
    shape = {"id", "status", "priority", "create_time", "outputs_count", "workflow_id"}
    shape |= {"previewable_outputs_count"} if slow_wire.since("0.32") else set()
    assert jobs[running].keys() == jobs[waiting].keys() == shape
    assert await ids(slow_wire, workflow_id, status="pending") == [waiting]
    assert await ids(slow_wire, workflow_id, status="in_progress") == [running]
    for prompt_id in (running, waiting):
        assert (await slow_wire.get(f"/api/jobs/{prompt_id}")).body == jobs[prompt_id]
    await slow_wire.interrupt(running)
    await slow_wire.finished(running)
    interrupted = (await slow_wire.get(f"/api/jobs/{running}")).body
    ended_as = "cancelled" if slow_wire.since("0.9") else "failed"
    assert (interrupted["status"], "execution_error" in interrupted) == (ended_as, False)
    assert await ids(slow_wire, workflow_id, status=ended_as) == [running]
    assert isinstance(interrupted["execution_end_time"], int)


async def test_one_job_adds_outputs_status_and_workflow(wire: Wire) -> None:
    workflow_id = uuid.uuid4().hex
    prompt_id = await wire.submit(picture(), extra_data=marked(workflow_id))
    entry = await wire.finished(prompt_id)
    (job,) = (await listing(wire, workflow_id))["jobs"]
    detail = await wire.get(f"/api/jobs/{prompt_id}")
    assert detail.status == 200
    assert detail.body == job | {
        "outputs": entry["outputs"],
        "execution_status": entry["status"],
        "workflow": {"prompt": entry["prompt"][2], "extra_data": entry["prompt"][3]},
    }


async def test_a_job_without_a_workflow_id_has_none(wire: Wire) -> None:
    prompt_id = await wire.submit(picture())
    await wire.finished(prompt_id)
    assert "workflow_id" not in (await wire.get(f"/api/jobs/{prompt_id}")).body


async def test_an_unknown_job_is_not_found(wire: Wire) -> None:
    answer = await wire.get("/api/jobs/no-such-job")
    assert (answer.status, answer.body.keys()) == (404, {"error"})


async def test_jobs_are_filtered_by_status(wire: Wire) -> None:
    workflow_id = uuid.uuid4().hex
    good = await wire.submit(picture(), extra_data=marked(workflow_id))
    bad = await wire.submit(failing(), extra_data=marked(workflow_id))
    await wire.finished(good)
    await wire.finished(bad)
    assert await ids(wire, workflow_id, status="completed") == [good]
    assert await ids(wire, workflow_id, status="failed") == [bad]
    assert set(await ids(wire, workflow_id, status=" Failed , completed,")) == {good, bad}
    assert set(await ids(wire, workflow_id, status="")) == {good, bad}
    assert await ids(wire, workflow_id, status="pending") == []


async def test_jobs_come_newest_first_unless_asked_otherwise(wire: Wire) -> None:
    workflow_id = uuid.uuid4().hex
    prompt_ids = await three_ended(wire, workflow_id)
    assert await ids(wire, workflow_id) == prompt_ids[::-1]
    assert await ids(wire, workflow_id, sort_order="asc") == prompt_ids
    assert await ids(wire, workflow_id, sort_order="DESC", sort_by="Created_At") == prompt_ids[::-1]
    jobs = (await listing(wire, workflow_id, sort_by="execution_duration", sort_order="asc"))["jobs"]
    durations = [job["execution_end_time"] - job["execution_start_time"] for job in jobs]
    assert durations == sorted(durations)


async def test_jobs_are_paged(wire: Wire) -> None:
    workflow_id = uuid.uuid4().hex
    prompt_ids = await three_ended(wire, workflow_id)
    for query, expected, pagination in [
        ({}, prompt_ids, {"offset": 0, "limit": None, "total": 3, "has_more": False}),
        ({"limit": 2}, prompt_ids[:2], {"offset": 0, "limit": 2, "total": 3, "has_more": True}),
        ({"limit": 2, "offset": 2}, prompt_ids[2:], {"offset": 2, "limit": 2, "total": 3, "has_more": False}),
        ({"offset": -4}, prompt_ids, {"offset": 0, "limit": None, "total": 3, "has_more": False}),
        ({"offset": 9}, [], {"offset": 9, "limit": None, "total": 3, "has_more": False}),
    ]:
        page = await listing(wire, workflow_id, sort_order="asc", **query)
        assert ([job["id"] for job in page["jobs"]], page["pagination"]) == (expected, pagination)


@pytest.mark.until("0.9")
@pytest.mark.of_the_wire
async def test_no_job_counts_as_cancelled(wire: Wire) -> None:
    assert (await wire.get("/api/jobs?status=cancelled")).status == 400


@pytest.mark.of_the_wire
async def test_latents_cannot_be_shown(wire: Wire) -> None:
    latent = node("EmptyLatentImage", width=64, height=64, batch_size=1)
    save = node("SaveLatent", samples=["1", 0], filename_prefix=fresh_prefix())
    job = await ended(wire, {"1": latent, "2": save})
    assert job["outputs_count"] == 1
    assert job.get("previewable_outputs_count") == (0 if wire.since("0.32") else None)
    assert "preview_output" not in job


@pytest.mark.parametrize("text", ["some words", "x" * 1025])
@pytest.mark.of_the_wire
async def test_a_text_is_no_output_and_is_shown_in_part_since_0_16(wire: Wire, text: str) -> None:
    value = node("PrimitiveString", value=text)
    job = await ended(wire, {"1": value, "2": node("PreviewAny", source=["1", 0], fresh=fresh_prefix())})
    assert job["outputs_count"] == 0
    preview = {"content": text[:1024], "nodeId": "2", "mediaType": "text"}
    if len(text) > 1024:
        preview["truncated"] = True
    assert job.get("preview_output") == (preview if wire.since("0.16") else None)


@pytest.mark.since("0.30")
async def test_a_picture_is_shown_rather_than_a_text(wire: Wire) -> None:
    graph = picture() | {"3": node("PrimitiveString", value="words")}
    graph["4"] = node("PreviewAny", source=["3", 0], fresh=fresh_prefix())
    job = await ended(wire, graph)
    assert (job["outputs_count"], job["preview_output"]["mediaType"]) == (1, "images")


@pytest.mark.until("0.26")
@pytest.mark.parametrize("path", ["/api/jobs/cancel", "/api/jobs/no-such-job/cancel"])
@pytest.mark.of_the_wire
async def test_there_is_no_way_to_cancel_a_job(wire: Wire, path: str) -> None:
    assert (await wire.post(path, {"job_ids": []})).status == 405


@pytest.mark.since("0.26")
async def test_waiting_and_running_jobs_are_cancelled_by_their_ids(slow_wire: Wire) -> None:
    running = await slow_wire.submit(await slow_graph(slow_wire))
    await slow_wire.running(running)
    first, second = await slow_wire.submit(picture()), await slow_wire.submit(picture())
    answer = await slow_wire.post(f"/api/jobs/{first}/cancel")
    assert (answer.status, answer.body) == (200, {"cancelled": True})
    assert (await slow_wire.get(f"/api/jobs/{first}")).status == 404
    answer = await slow_wire.post("/api/jobs/cancel", {"job_ids": [str(uuid.uuid4()), second, running]})
    assert (answer.status, answer.body) == (200, {"cancelled": True})
    entry = await slow_wire.finished(running)
    assert entry["status"]["messages"][-1][0] == "execution_interrupted"
    assert (await slow_wire.get(f"/history/{second}")).body == {}
    for path, body in [(f"/api/jobs/{running}/cancel", None), ("/api/jobs/cancel", {"job_ids": [first, running]})]:
        assert (await slow_wire.post(path, body)).body == {"cancelled": False}


@pytest.mark.since("0.26")
async def test_cancelling_one_unknown_job_does_nothing_whatever_its_id(wire: Wire) -> None:
    assert (await wire.post("/api/jobs/no-such-job/cancel")).body == {"cancelled": False}
    assert (await wire.post("/api/jobs/cancel", {"job_ids": []})).body == {"cancelled": False}


@pytest.mark.since("0.26")
@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"{", {"error": "Request body must be valid JSON"}),
        (b"", {"error": "Request body must be valid JSON"}),
        (b"[]", {"error": "job_ids must be a list"}),
        (b"{}", {"error": "job_ids must be a list"}),
        (b'{"job_ids": "all"}', {"error": "job_ids must be a list"}),
        (
            b'{"job_ids": ["x", 5, {}]}',
            {"error": "job_ids contains invalid id(s)", "invalid_ids": ["x", "5", "{}"]},
        ),
    ],
)
async def test_ids_that_make_no_sense_are_refused(wire: Wire, body: bytes, answer: dict[str, Any]) -> None:
    refused = await wire.post("/api/jobs/cancel", data=body)
    assert (refused.status, refused.body) == (400, answer)


@pytest.mark.parametrize(
    "query",
    ["status=lost", "status=pending,lost", "sort_by=id", "sort_order=up", "limit=0", "limit=-1", "limit=x", "offset=x"],
)
async def test_a_parameter_that_makes_no_sense_is_refused(wire: Wire, query: str) -> None:
    answer = await wire.get(f"/api/jobs?{query}")
    assert (answer.status, answer.body.keys()) == (400, {"error"})
    assert isinstance(answer.body["error"], str)


async def test_one_job_with_null_png_information_breaks_the_list_until_it_is_forgotten(wire: Wire) -> None:
    prompt_id = await wire.submit(picture(), extra_data={"extra_pnginfo": None})
    await wire.finished(prompt_id)
    try:
        assert (await wire.get("/api/jobs")).status == 500
        assert (await wire.get(f"/history/{prompt_id}")).status == 200
    finally:
        await wire.post("/history", {"delete": [prompt_id]})
    assert (await wire.get("/api/jobs")).status == 200


async def test_the_route_exists_only_under_api(wire: Wire) -> None:
    assert (await wire.get("/jobs")).status == 404
    assert (await wire.get("/api/api/jobs")).status == 200

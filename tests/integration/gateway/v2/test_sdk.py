"""What the examples of ComfyUI's SDK do, done at E3 with the SDK as it is."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from comfy_sdk import (
    AsyncComfy,
    Comfy,
    ComfyError,
    IdempotencyKeyReuse,
    InvalidWorkflow,
    JobFailed,
    MissingAsset,
    NotFound,
    OutputReady,
    Preview,
    Progress,
    StatusChange,
)

from support.agents import AgentWorkspace, sized_picture
from support.graphs import fresh_color
from support.painted import colors, painted, png_of
from support.sampled_graphs import text_to_image

EDIT: dict[str, Any] = {
    "1": {"class_type": "LoadImage", "inputs": {"image": ""}},
    "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
    "3": {"class_type": "SaveImage", "inputs": {"filename_prefix": "edit", "images": ["2", 0]}},
}
RED, CYAN = 0xFF0000, 0x00FFFF


def edited(image: Any) -> dict[str, Any]:
    return {**EDIT, "1": {"class_type": "LoadImage", "inputs": {"image": image}}}


def test_a_workflow_is_run_and_its_output_is_downloaded_whole_and_in_part(client: Comfy, tmp_path: Path) -> None:
    wanted = painted()
    job = client.run(client.workflows.from_json(wanted.graph))
    (output,) = job.get_outputs("2")
    saved = output.to_file(tmp_path / output.name)
    data = saved.read_bytes()
    assert (output.type, output.content_type, output.size_bytes) == ("image", "image/png", len(data))
    assert colors(data) == [wanted.color]
    assert output.to_bytes(range=(2, 9)) == data[2:10]
    assert (output.job_id, client.assets.get(output.id).job_id) == (job.id, job.id)
    link = output.get_download_url()
    assert (link.url.endswith(f"/api/v2/assets/{output.id}/content"), link.expires_at) == (True, None)
    again = client.jobs.get(job.id)
    assert [each.id for each in again.outputs] == [output.id]
    assert (again.get_workflow().format, again.get_workflow().graph) == ("api", wanted.graph)
    assert next(client.list_jobs()).id == job.id
    assert len(list(client.list_jobs(limit=1))) == len(list(client.list_jobs()))
    with pytest.raises(ComfyError, match="in use"):
        client.assets.delete(output.id)


def test_assets_are_inputs_by_handle_by_name_and_as_outputs_of_other_jobs(client: Comfy) -> None:
    asset = client.assets.from_bytes(png_of(RED), filename="red.png")
    job = client.run(client.workflows.from_json(edited(asset)))
    assert colors(job.outputs[0].to_bytes()) == [CYAN]
    assert job.get_workflow().graph["1"]["inputs"]["image"] == {"__type": "core/ASSET", "info": {"id": asset.id}}
    again = client.assets.from_bytes(png_of(RED), filename="red.png")
    assert (again.commit(), again.created_new) == (asset.commit(), False)
    by_name = client.run(client.workflows.from_json(edited("red.png")))
    assert colors(by_name.outputs[0].to_bytes()) == [CYAN]
    from_output = client.run(client.workflows.from_json(edited(client.assets.get(job.outputs[0].id))))
    assert colors(from_output.outputs[0].to_bytes()) == [RED]
    asset.delete()
    with pytest.raises(NotFound):
        client.assets.delete(again.commit())
    with pytest.raises(MissingAsset) as missing:
        client.submit(client.workflows.from_json(edited(again)))
    assert missing.value.details == {"node_id": "1", "field": "image"}


@pytest.mark.timeout(600)  # a real model on a processor takes its time
def test_a_stream_tells_steps_previews_outputs_and_the_end(client: Comfy, place: str) -> None:
    checkpoint = httpx.get(f"{place}/models/checkpoints").json()[0]
    steps = 60 if checkpoint.startswith("e3_") else 2  # those of a real model take seconds each
    graph = text_to_image("a fox", fresh_color(), checkpoint, steps=steps)
    graph["4"]["inputs"] |= {"width": 64, "height": 64}
    job = client.submit(client.workflows.from_json(graph))
    events = list(job.events())
    assert isinstance(events[0], StatusChange)
    assert events[-1] == StatusChange("succeeded")
    states = [each.status for each in events if isinstance(each, StatusChange)]
    assert list(dict.fromkeys(states))[-2:] == ["running", "succeeded"]
    assert isinstance(events[-2], OutputReady)
    progress = [each for each in events if isinstance(each, Progress)]
    assert progress
    assert all(0 <= each.value <= 1 and each.nodes_total == 7 for each in progress)
    assert {each.to_pil().format for each in events if isinstance(each, Preview)} <= {"JPEG"}
    assert list(client.jobs.get(job.id).events())[-1] == StatusChange("succeeded")


def test_a_job_whose_results_are_gone_is_not_called_done(client: Comfy, workspace: AgentWorkspace) -> None:
    job = client.run(client.workflows.from_json(painted().graph))
    (path,) = workspace.job(job.id).outputs
    (workspace.root / path).unlink()
    assert (job.refresh().status, job.outputs, job.error.code) == ("expired", [], "results_gone")


def test_a_key_is_used_once_and_names_the_job_that_it_made(client: Comfy) -> None:
    key = f"key-{fresh_color()}"
    with pytest.raises(InvalidWorkflow):
        client.submit(client.workflows.from_json({"1": {"class_type": "NoSuch", "inputs": {}}}), idempotency_key=key)
    job = client.submit(client.workflows.from_json(painted().graph), idempotency_key=key)
    for graph in (painted().graph, {"1": {"class_type": "NoSuch", "inputs": {}}}):
        with pytest.raises(IdempotencyKeyReuse) as used:
            client.submit(client.workflows.from_json(graph), idempotency_key=key)
        assert used.value.details == {"job_id": job.id}
    job.result()


def test_what_is_wrong_is_told_node_by_node_and_a_node_that_fails_by_its_name(client: Comfy) -> None:
    graph = sized_picture()
    del graph["1"]["inputs"]["width"]
    with pytest.raises(InvalidWorkflow) as refused:
        client.submit(client.workflows.from_json(graph))
    assert refused.value.details is not None
    (error,) = refused.value.details["node_errors"]["1"]
    assert (error["field"], error["reason"]) == ("width", "required_input_missing")
    wrong = edited(client.assets.from_bytes(b"no picture", filename="bad.png"))
    with pytest.raises(JobFailed) as failed:
        client.run(client.workflows.from_json(wrong))
    assert failed.value.error is not None
    assert (failed.value.error.code, failed.value.error.class_type) == ("node_execution_error", "LoadImage")


async def test_the_async_client_cancels_what_waits_and_what_runs(place: str) -> None:
    async with AsyncComfy() as client:
        graph = painted(seconds=60).graph
        running = await client.submit(client.workflows.from_json(graph))
        waiting = [await client.submit(client.workflows.from_json(painted(seconds=60).graph)) for _ in range(3)]
        deadline = time.monotonic() + 20
        while (await running.refresh()).status != "running":
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert (await waiting[-1].refresh()).status == "queued"
        for job in (running, *waiting):
            assert (await job.cancel()).status == "canceled"
            assert (await job.cancel()).status == "canceled"
            assert await job.wait(5)
        assert (await client.run(client.workflows.from_json(painted().graph), timeout=20)).status == "succeeded"

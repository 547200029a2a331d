"""comfy-cli: the command `comfy` of ComfyUI's authors. Each call is a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.clients import Client, Ended, required
from support.fronts import Front
from support.graphs import failing, node, text_to_image
from support.painted import colors, painted, was_interrupted
from support.pictures import png
from support.wire import Graph

CLIENT = required("comfy-cli")


def settings(client: Client) -> dict[str, str]:
    return {"COMFY_LOCAL_URL": client.url, "DO_NOT_TRACK": "1", "COLUMNS": "200"}


async def called(client: Client, *arguments: str) -> Ended:
    return await client.call(client.folder / "bin" / "comfy", *arguments, **settings(client))


async def comfy(client: Client, *arguments: str) -> Any:
    """What a command that succeeds tells."""
    ended = await called(client, "--json", *arguments)
    assert (ended.status, ended.facts["ok"]) == (0, True), ended.facts
    return ended.facts["data"]


async def refused(client: Client, *arguments: str) -> Any:
    """The error of a command that does not succeed."""
    ended = await called(client, "--json", *arguments)
    assert (ended.status, ended.facts["ok"]) == (1, False), ended.facts
    return ended.facts["error"]


def written(client: Client, graph: Graph) -> str:
    (client.home / "workflow.json").write_text(json.dumps(graph), encoding="utf-8")
    return "workflow.json"


async def queued(client: Client, graph: Graph) -> str:
    """The id of a prompt that `comfy run` leaves in the queue."""
    told = await comfy(client, "run", "--workflow", written(client, graph), "--no-watch")
    assert told["status"] == "queued"
    return str(told["prompt_id"])


async def status(client: Client, prompt_id: str) -> str:
    return str((await comfy(client, "jobs", "status", prompt_id))["status"])


async def test_run_waits_for_the_picture_and_download_gets_it(front: Front, client: Client) -> None:
    wanted = painted()
    told = await comfy(client, "run", "--workflow", written(client, wanted.graph), "--wait")
    assert (told["status"], told["executed_node_ids"]) == ("completed", ["1", "2"])
    files = (await comfy(client, "download", told["prompt_id"], "--out-dir", "pictures"))["files"]
    assert colors(*(Path(file["path"]).read_bytes() for file in files)) == [wanted.color]


async def test_run_streams_what_happens(front: Front, client: Client) -> None:
    graph = await text_to_image(front, steps=3)
    ended = await called(client, "--json-stream", "run", "--workflow", written(client, graph), "--wait")
    events = [json.loads(line) for line in ended.output.splitlines()]
    assert {"node": "5", "total": 3}.items() <= next(event for event in events if event["type"] == "progress").items()
    assert {event["node"] for event in events if event["type"] == "executing"} == set(graph)
    assert [event["type"] for event in events][-3:] == ["executed", "output", "envelope"]
    assert events[-1]["ok"]


async def test_jobs_are_followed_from_the_queue_to_their_end(front: Front, client: Client) -> None:
    async with front.busy() as others:
        prompt_id = await queued(client, painted().graph)
        assert await status(client, prompt_id) == "pending"
        listed = {job["prompt_id"]: job for job in (await comfy(client, "jobs", "ls"))["jobs"]}
        assert (listed[prompt_id]["status"], listed[prompt_id]["queue_position"]) == ("pending", 1)
        assert {listed[other]["status"] for other in others} == {"running"}
        watching = asyncio.create_task(comfy(client, "jobs", "wait", prompt_id, "--poll-interval", "0.1"))
    waited = await watching
    assert (waited["completed"], waited["failed"], waited["timed_out"]) == (1, 0, 0)
    assert await status(client, prompt_id) == "completed"


async def test_a_watch_hears_what_the_run_would_have_heard(front: Front, client: Client) -> None:
    """From a home that knows nothing of the run: the id of the client that posted is in the queue."""
    elsewhere = client.home / "elsewhere"
    elsewhere.mkdir()
    async with front.busy():
        prompt_id = await queued(client, painted().graph)
        command = [str(client.folder / "bin" / "comfy"), "--no-json", "jobs", "watch", prompt_id]
        options = client.options(**settings(client), HOME=str(elsewhere))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        watching = await asyncio.to_thread(subprocess.Popen, command, **pipes, **options)
        assert watching.stdout is not None
        assert "Watching prompt" in await asyncio.to_thread(watching.stdout.readline)
    output, _ = await asyncio.to_thread(watching.communicate)
    assert watching.returncode == 0, output
    assert "could not resolve the submitting client_id" not in output
    assert all(words in output for words in ("executing node 2", "completed")), output


async def test_cancelling_stops_a_prompt_that_runs(front: Front, client: Client) -> None:
    prompt_id = await queued(client, painted(seconds=600).graph)
    await front.running(prompt_id)
    assert (await comfy(client, "jobs", "cancel", prompt_id))["interrupt_ok"]
    assert was_interrupted(await front.finished(prompt_id))
    assert await status(client, prompt_id) == "cancelled"


async def test_cancelling_takes_back_a_prompt_that_waits_and_no_other(front: Front, client: Client) -> None:
    async with front.busy():
        prompt_id = await queued(client, painted().graph)
        assert (await comfy(client, "jobs", "cancel", prompt_id))["queue_delete_ok"]
        assert (await front.queue())[1] == []
        assert await status(client, prompt_id) == "cancelled"
    assert (await front.get(f"/history/{prompt_id}")).body == {}


async def test_a_prompt_that_nobody_knows_cannot_be_cancelled(front: Front, client: Client) -> None:
    assert (await refused(client, "jobs", "cancel", "00000000-0000-4000-8000-000000000000"))[
        "code"
    ] == "prompt_not_found"


@pytest.mark.parametrize(
    ("broken", "code"),
    [("unknown node", "workflow_unknown_nodes"), ("missing file", "prompt_rejected"), ("failing", "execution_error")],
)
async def test_what_goes_wrong_has_a_code(front: Front, client: Client, broken: str, code: str) -> None:
    graph = failing()
    if broken == "unknown node":
        graph["1"]["class_type"] = "NoSuchNode"
    elif broken == "missing file":
        graph["1"] = node("LoadImage", image="there is none.png")
    assert (await refused(client, "run", "--workflow", written(client, graph), "--wait"))["code"] == code


async def test_facts_memory_uploads_and_nodes(front: Front, client: Client) -> None:
    (client.home / "mine.png").write_bytes(png())
    assert (await comfy(client, "system-stats"))["system"]["comfyui_version"]
    assert (await comfy(client, "free", "--free-memory"))["requested"] == {"unload_models": True, "free_memory": True}
    assert (await comfy(client, "upload", "mine.png"))["uploads"][0]["cloud_name"] == "mine.png"
    assert (await front.get("/view?filename=mine.png&type=input")).body == png()
    assert (await comfy(client, "nodes", "ls", "--category", "image", "--limit", "1"))["count"] == 1

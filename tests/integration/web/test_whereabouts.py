"""Why a job waits and how servers are used: in the API, on the pages of jobs and servers, before it is queued."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.sim.process import ServerProcess
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Window
from support.intake import until
from support.web import Served, served
from support.workspaces import new_workspace

MODEL = "not_there.safetensors"
GRAPH = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": MODEL}},
    "2": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
    "3": {"class_type": "VAEDecode", "inputs": {"samples": ["2", 0], "vae": ["1", 2]}},
    "4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "x"}},
}


async def test_what_no_server_has_is_said_wherever_the_job_is_looked_at(
    tmp_path: Path, comfyui_simulator: Callable[..., ServerProcess]
) -> None:
    server = comfyui_simulator().url
    new_workspace(tmp_path / "w", server)
    (tmp_path / "w" / "workflows" / "big.json").write_text(json.dumps(GRAPH), encoding="utf-8")
    name = server.partition("://")[2]
    missing = f"no server has model {MODEL} for CheckpointLoaderSimple; looked for at {name}"
    async with served(tmp_path / "w", server) as house:
        job = await house.job("big.yaml", workflow_id="big", inputs={})

        async def explained() -> Any:
            found = (await house.get(f"/api/v1/jobs/{job.id}/explain")).value
            return found if missing in found["sentence"] else None

        await until(explained, "what no server has")
        [candidate] = (await explained())["servers"]
        assert candidate["url"] == server
        assert candidate["lacks"] == [f"model {MODEL} for CheckpointLoaderSimple"]
        assert candidate["explanation"].startswith("up; lacks model")
        page = (await house.get(f"/jobs/{job.id}")).text
        assert f"It waits: {missing}" in page
        assert "Which server may run it" in page
        assert f"N{missing[1:]}. Put it there" in (await house.get("/new?workflow=big")).text
        assert 'id="job-servers"' in page
        assert "Put it there" not in (await house.get("/new?workflow=picture")).text
        [shown] = (await house.get("/api/v1/servers")).value
        assert shown["routing"]["unused"] == f"it lacks what waiting jobs need: {candidate['lacks'][0]}"
        assert "Not used: it lacks what waiting jobs need" in (await house.get("/servers")).text


async def test_a_job_that_is_overtaken_says_for_how_long_at_most(
    tmp_path: Path, comfyui_simulator: Callable[..., ServerProcess]
) -> None:
    server = comfyui_simulator("--models", "a.safetensors", "--models", "b.safetensors").url
    async with served(tmp_path / "w", server) as house:
        for model in "ab":
            graph = GRAPH | {
                "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": f"{model}.safetensors"}}
            }
            (tmp_path / "w" / "workflows" / f"{model}.json").write_text(json.dumps(graph), encoding="utf-8")
            job = await house.job(f"{model}.yaml", workflow_id=model, inputs={})
        await house.store.run(ops.lease_jobs, "an-agent", Window(server, 1), [mint_prompt_id()], 600.0)
        with closing(sqlite3.connect(house.workspace.database, isolation_level=None)) as shell:
            shell.execute("UPDATE jobs SET overtaken_at = datetime('now', '-20 seconds') WHERE id = ?", [job.id])
        found = (await house.get(f"/api/v1/jobs/{job.id}/explain")).value
    name = server.partition("://")[2]
    said = re.fullmatch(
        rf"waits: {name} goes on with a.safetensors for at most (\d+) s more, then it is the turn of this job",
        found["sentence"],
    )
    assert said, found
    assert 60 < int(said[1]) <= 100, "of 120 seconds, 20 are over"


async def test_a_server_shows_what_it_has_loaded_and_how_often_that_changed(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        await _load(house)
        [shown] = [each for each in (await house.get("/api/v1/servers")).value if each["name"] == "gpu:8188"]
        assert (shown["routing"]["loaded"], shown["routing"]["loads"]) == (MODEL, 1)
        page = (await house.get("/servers")).text
        assert f"<strong>{MODEL}</strong> loaded since" in page
        assert "1 load, 0 stays, 0 overtakes" in page
        metrics = (await house.get("/metrics")).text
        assert 'e3_model_loads_total{server="http://gpu:8188"} 1.0' in metrics
        assert 'e3_overtakes_total{server="http://gpu:8188"} 0.0' in metrics


async def _load(house: Served) -> None:
    workflow = Path(house.workspace.root) / "workflows" / "big.json"
    workflow.write_text(json.dumps(GRAPH), encoding="utf-8")
    await house.job("big.yaml", workflow_id="big", inputs={})
    [leased] = await house.lease()
    await house.store.run(ops.note_running, leased.lease, 0.5)

"""One agent, one server: what was really sent is on record, and a choice that is not offered is rejected once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.scaffold import start_workspace
from comfyui_agent.config.workflows import Workflows
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import bind
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.engine.composition import make_agent
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.engine.intake.folder_scan import sign
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.store import Store
from support.shared_servers import Servers

PORTRAIT = "wf_realistic_portrait"
INPUTS = {"prompt": "a fox", "seed": 7, "steps": 1, "width": 64, "height": 64}
FILE = f"job_type: T2I\nworkflow_id: {PORTRAIT}\ninputs: {{prompt: a fox, seed: 7, steps: 1, sampler_name: eulr}}\n"


@pytest.fixture
def workspace(servers: Servers, tmp_path: Path) -> Workspace:
    list(start_workspace(tmp_path, servers.url("sim")))
    return load_workspace(tmp_path, {"E3_RETRY_BACKOFF_SECONDS": "0.05", "E3_UI__ENABLED": "false"})


@pytest.fixture
async def store(workspace: Workspace) -> AsyncIterator[Store]:
    opened = open_store(workspace.database)
    yield opened
    await opened.close()


def portrait(workspace: Workspace, name: str, **inputs: Any) -> NewJob:
    """Past what job files are checked for, as a program may queue it."""
    workflows = Workflows(workspace)
    workflows.refresh()
    found = workflows.find(PORTRAIT)
    values = bind(found.places, found.recipe, {**INPUTS, **inputs})
    return NewJob(name, "T2I", PORTRAIT, found.template, values)


async def test_what_was_sent_is_on_record_and_a_choice_that_is_not_offered_is_tried_once(
    workspace: Workspace, store: Store
) -> None:
    good, wrong = portrait(workspace, "good"), portrait(workspace, "wrong", sampler_name="eulr")
    await store.run(ops.submit_jobs, [good, wrong])
    assert await make_agent(store, workspace).run(until_idle=True) == 1

    job = await store.run(ops.find_job, "good")
    assert job is not None
    [run] = await store.run(ops.list_attempts, job.id)
    assert run.outcome == "done"
    sent = json.loads(run.sent or "")
    assert sent.pop("1.ckpt_name").endswith(".safetensors"), "what auto became"
    assert sent.pop("graph"), "which graph it was filled into"
    [(place, prefix)] = sent.items()
    assert place.endswith(".filename_prefix")
    assert run.prompt_id in prefix

    job = await store.run(ops.find_job, "wrong")
    assert job is not None
    assert (job.status, job.failure_class, job.needs_regeneration) == ("failed", "invalid", True)
    assert (job.run_count, job.retries_attempted) == (1, 0)
    assert "eulr" in (job.error_trace or "")
    assert "did you mean euler?" in (job.error_trace or "")
    [run] = await store.run(ops.list_attempts, job.id)
    assert "1.ckpt_name" in json.loads(run.sent or "")


async def test_a_job_file_with_a_wrong_choice_is_refused_before_it_goes_anywhere(workspace: Workspace) -> None:
    path = workspace.processing / "image" / "fox.yaml"
    path.write_text(FILE, encoding="utf-8")
    signature = sign(str(path))
    assert signature is not None
    admission = Admission(workspace)
    admission.workflows.refresh()
    filed = admission.read(path, signature)
    assert filed.problem == (
        "jobs/processing/image/fox.yaml:3: inputs.sampler_name: "
        "5.sampler_name: 'eulr' is not one of the server's choices; did you mean euler?"
    )
    silent = replace(
        workspace,
        settings=workspace.settings.model_copy(
            update={"comfyui": workspace.settings.comfyui.model_copy(update={"servers": ("http://127.0.0.1:9",)})}
        ),
    )
    admission = Admission(silent)
    admission.workflows.refresh()
    assert admission.read(path, signature).problem == "", "no server is known: it is let through"

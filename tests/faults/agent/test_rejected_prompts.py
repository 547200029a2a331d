"""Row 13: prompts are rejected, as a whole or in part, or lack a model. The errors are kept, and the others go on."""

from __future__ import annotations

from typing import Any

import pytest

from support.agents import check_promises, renders
from support.breakage import Make, Start, coloured, errors_of, job, only_simulator, outcomes_of, submit, told
from support.graphs import node
from support.sampling import some


def too_wide() -> dict[str, Any]:
    graph = coloured(1)
    graph["1"]["inputs"]["width"] = 1_000_000
    return graph


def half_valid() -> dict[str, Any]:
    """The branch of "2" runs, the branch of "4" is dropped."""
    bad = too_wide()
    bad["2"]["inputs"]["images"] = ["3", 0]
    return {**coloured(5), "3": bad["1"], "4": bad["2"]}


def from_checkpoint(name: str) -> dict[str, Any]:
    """Latent "1" decoded by the VAE of a checkpoint "3" and saved by "2"."""
    return {
        "1": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "2": node("SaveImage", images=["4", 0], filename_prefix="x"),
        "3": node("CheckpointLoaderSimple", ckpt_name=name),
        "4": node("VAEDecode", samples=["1", 0], vae=["3", 2]),
    }


@pytest.mark.parametrize(
    ("graph", "kind", "words"),
    some(
        [
            pytest.param(too_wide(), "invalid", "bigger than max", id="rejected"),
            pytest.param(half_valid(), "invalid", "bigger than max", id="partly-rejected"),
            pytest.param({"1": node("EmptyImage")}, "invalid", "no outputs", id="no-output"),
            pytest.param({"1": node("NoSuchNode")}, "missing", "NoSuchNode", id="node-not-installed"),
            pytest.param(from_checkpoint("absent.safetensors"), "missing", "absent.safetensors", id="model-not-there"),
        ],
        5,
    ),
)
def test_a_rejected_job_is_tried_once_more_and_then_needs_a_person(
    start_server: Start, make_workspace: Make, graph: dict[str, Any], kind: str, words: str
) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    submit(workspace, job("bad.yaml", graph), *(job(f"good_{n}.yaml", coloured(n + 1)) for n in range(4)))
    assert workspace.finish() == 1
    check_promises(workspace, 5, done=4)
    bad = workspace.job("bad.yaml")
    assert (bad.status, bad.failure_class, bad.needs_regeneration) == ("failed", kind, True)
    assert (bad.run_count, bad.retries_attempted) == (2, 1)
    assert words in (bad.error_trace or "")
    assert server.url in (bad.error_trace or "")
    assert outcomes_of(workspace, "bad.yaml") == [kind, kind]
    for error in errors_of(workspace, "bad.yaml"):
        assert error["kind"] == kind
        assert words in " ".join([error["message"], *error.get("details", [])])
    assert bad.outputs == ()
    assert len(told(workspace, "job.failed", job_id=bad.id, failure_class=kind)) == 1
    good = [workspace.job(f"good_{n}.yaml") for n in range(4)]
    assert [(each.run_count, each.retries_attempted) for each in good] == [(1, 0)] * 4


@pytest.mark.slow
def test_a_job_that_allows_no_retry_is_rejected_once(start_server: Start, make_workspace: Make) -> None:
    workspace = make_workspace(start_server().url)
    submit(workspace, job("bad.yaml", too_wide(), retry_limit=0))
    assert workspace.finish() == 1
    bad = workspace.job("bad.yaml")
    assert (bad.failure_class, bad.run_count, bad.needs_regeneration) == ("invalid", 1, True)


def test_what_one_server_lacks_is_given_to_another_alone(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    only_simulator(server_kind, "--models")
    poor = start_server("--models", "ink.safetensors")
    rich = start_server("--models", "ink.safetensors", "--models", "oil.safetensors", "--render-seconds", "0.2")
    workspace = make_workspace(poor.url, rich.url)
    submit(workspace, *(job(f"oil_{n}.yaml", from_checkpoint("oil.safetensors")) for n in range(6)))
    assert workspace.finish() == 0
    jobs = check_promises(workspace, 6)
    assert {each.server for each in jobs} == {rich.url}
    assert [each.retries_attempted for each in jobs] == [0] * 6
    assert renders([poor.output_dir]) == 0
    assert not told(workspace, "job.retry"), "nothing is tried at the poor one"


@pytest.mark.slow
def test_what_no_server_has_is_missing(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    servers = [start_server() for _ in range(2)]
    workspace = make_workspace(*(server.url for server in servers))
    submit(workspace, job("absent.yaml", from_checkpoint("absent.safetensors")), job("good.yaml", coloured(1)))
    assert workspace.finish(timeout=20) == 1
    check_promises(workspace, 2, done=1)
    absent = workspace.job("absent.yaml")
    assert (absent.status, absent.failure_class, absent.needs_regeneration) == ("failed", "missing", True)
    assert {error["server"] for error in errors_of(workspace, "absent.yaml")} == {server.url for server in servers}

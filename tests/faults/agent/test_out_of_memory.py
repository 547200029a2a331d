"""Row 15: a node runs out of memory. Memory is freed and seen free, then the job is tried again, and charged."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.lab.fault_proxy import FaultProxy
from support.agents import check_promises
from support.breakage import (
    Lodger,
    Make,
    Start,
    coloured,
    errors_of,
    job,
    only_simulator,
    outcomes_of,
    proxied,
    submit,
    told,
    wait_for_end,
    wait_told,
    without_flag,
)
from support.graphs import node

CHECKPOINT = "e3_dreamscape_v1.safetensors"


@pytest.fixture(autouse=True)
def _simulator(server_kind: str) -> None:
    only_simulator(server_kind, "--vram-gb; a real server on the CPU has all the memory of the machine")


def sampled(edge: int, seed: int = 1) -> dict[str, Any]:
    """A picture that needs memory: an edge of 4096 some 24 GiB, one of 1024 some 1.5, and its model up to 4."""
    return {
        "1": node("CheckpointLoaderSimple", ckpt_name=CHECKPOINT),
        "2": node("CLIPTextEncode", text="a lighthouse", clip=["1", 1]),
        "4": node("EmptyLatentImage", width=edge, height=edge, batch_size=1),
        "5": node(
            "KSampler",
            model=["1", 0],
            positive=["2", 0],
            negative=["2", 0],
            latent_image=["4", 0],
            seed=seed,
            steps=1,
            cfg=7.0,
            sampler_name="euler",
            scheduler="normal",
            denoise=1.0,
        ),
        "6": node("VAEDecode", samples=["5", 0], vae=["1", 2]),
        "7": node("SaveImage", images=["6", 0], filename_prefix="x"),
    }


def steps(proxy: Lodger[FaultProxy]) -> list[str]:
    """What the agent did at the server: posts of prompts, frees, looks at the memory."""
    wanted = {"POST /prompt": "prompt", "POST /free": "free", "GET /system_stats": "look"}
    return proxy.do(lambda it: [wanted[request] for request in it.requests if request in wanted])


@pytest.mark.slow
def test_a_job_that_never_fits_ends_as_oom_and_says_what_there_is_and_the_others_go_on(
    start_server: Start, make_workspace: Make
) -> None:
    server = start_server("--vram-gb", "6")
    with proxied(server) as proxy:
        workspace = make_workspace(proxy.it.url)
        small = [job(f"small_{n}.yaml", coloured(n + 1)) for n in range(6)]
        submit(workspace, job("large.yaml", sampled(4096), priority=1), *small)
        assert workspace.finish() == 1
        assert steps(proxy).count("free") == 2
    jobs = check_promises(workspace, 7, done=6)
    large = workspace.job("large.yaml")
    assert (large.status, large.failure_class) == ("failed", "oom")
    assert (large.retries_attempted, large.run_count) == (1, 2)
    assert outcomes_of(workspace, "large.yaml") == ["oom"] * 2
    assert "it needs 24.00 GiB at once, more than" in (large.error_trace or "")
    assert "node 5 (KSampler)" in (large.error_trace or "")
    assert "OutOfMemoryError" in (large.error_trace or "")
    assert [each.retries_attempted for each in jobs if each.id != large.id] == [0] * 6
    assert not told(workspace, "alert.memory")


def test_memory_is_freed_and_seen_free_before_the_next_try_and_the_job_is_done_where_there_is_more(
    start_server: Start, make_workspace: Make
) -> None:
    server = start_server("--vram-gb", "4")
    with proxied(server) as proxy:
        workspace = make_workspace(proxy.it.url, E3_RETRY_BACKOFF_SECONDS="5")
        submit(workspace, job("large.yaml", sampled(1300)))
        agent = workspace.start("--until-idle")
        wait_told(workspace, "job.retry", failure_class="oom")
        done = steps(proxy)
        done = done[done.index("prompt") :]  # how much memory there is was asked before
        assert done[1:4] == ["look", "free", "look"]
        assert "prompt" not in done[1:]
        server.kill()
        without_flag(server, "--vram-gb")
        server.start()
        assert wait_for_end(workspace, agent) == 0
    (large,) = check_promises(workspace, 1)
    assert (large.retries_attempted, large.run_count) == (1, 2)
    assert outcomes_of(workspace, "large.yaml") == ["oom", "done"]
    assert errors_of(workspace, "large.yaml")[0]["node_type"] == "KSampler"


@pytest.mark.slow
def test_a_job_too_large_for_one_server_is_rendered_by_a_bigger_one(start_server: Start, make_workspace: Make) -> None:
    """The small one is always idle and the big one always busy: luck alone would not bring them together."""
    small = start_server("--vram-gb", "4")
    big = start_server("--vram-gb", "24", "--render-seconds", "1.5")
    workspace = make_workspace(small.url, big.url)
    submit(workspace, job("large.yaml", sampled(1300), priority=1))
    submit(workspace, *(job(f"small_{n}.yaml", coloured(n + 1)) for n in range(6)))
    assert workspace.finish() == 0
    jobs = check_promises(workspace, 7)
    large = next(each for each in jobs if each.config_name == "large.yaml")
    assert large.server == big.url
    assert large.retries_attempted <= 2

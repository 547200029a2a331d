"""Row 13: a prompt is rejected, or partly rejected. The errors are kept; a dropped output is not a success."""

from __future__ import annotations

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import PromptRejected
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.lab.fault_proxy import FaultProxy, Reset
from support.graphs import node, picture, two_pictures
from support.promises import failed, posts, renders
from support.wire import Graph, Wire


def too_wide() -> Graph:
    graph = picture()
    graph["1"]["inputs"]["width"] = 1_000_000
    return graph


def half_valid() -> Graph:
    graph = two_pictures()
    graph["3"]["inputs"]["width"] = 1_000_000
    return graph


async def test_a_rejected_prompt_says_which_node_and_why(comfy: ComfyClient) -> None:
    with pytest.raises(PromptRejected) as raised:
        await comfy.submit(too_wide(), mint_prompt_id())
    failure = raised.value.failure()
    assert (failure.kind, failure.node_id, failure.node_type) == (FailureClass.INVALID, "1", "EmptyImage")
    assert any("bigger than max" in line and "width" in line for line in failure.details)


@pytest.mark.parametrize(
    ("graph", "kind"),
    [
        pytest.param({"1": node("NoSuchNode")}, FailureClass.MISSING, id="node-not-installed"),
        pytest.param(
            {**picture(), "9": node("CheckpointLoaderSimple", ckpt_name="absent.safetensors")},
            FailureClass.MISSING,
            id="model-not-there",
        ),
        pytest.param({"1": {"inputs": {}}}, FailureClass.INVALID, id="no-class"),
        pytest.param(
            {"1": node("EmptyImage", width=8, height=8, batch_size=1, color=0)}, FailureClass.INVALID, id="no-output"
        ),
        pytest.param({}, FailureClass.INVALID, id="empty"),
    ],
)
async def test_what_another_server_may_have_is_told_apart_from_what_is_wrong(
    comfy: ComfyClient, graph: Graph, kind: FailureClass
) -> None:
    if "9" in graph:
        graph["8"] = node("VAEDecode", samples=["7", 0], vae=["9", 2])
        graph["7"] = node("EmptyLatentImage", width=16, height=16, batch_size=1)
        graph["2"]["inputs"]["images"] = ["8", 0]
    with pytest.raises(PromptRejected) as raised:
        await comfy.submit(graph, mint_prompt_id())
    assert raised.value.kind is kind


async def test_a_prompt_of_which_one_output_is_dropped_is_not_a_success(comfy: ComfyClient, wire: Wire) -> None:
    graph = half_valid()
    watch = await comfy.submit(graph, mint_prompt_id())
    outcome = failed(await watch.outcome(timeout=20), FailureClass.INVALID)
    assert outcome.failure.node_id == "3"
    assert any("bigger than max" in line for line in outcome.failure.details)
    prefix = graph["2"]["inputs"]["filename_prefix"]
    assert [file.filename for file in outcome.partial.files] == [f"{prefix}_00001_.png"]
    assert await renders(wire, prefix) == 1


async def test_the_dropped_output_is_noticed_even_when_the_answer_that_said_so_was_lost(
    comfy: ComfyClient, proxy: FaultProxy
) -> None:
    proxy.inject(Reset(), on="POST /prompt")
    watch = await comfy.submit(half_valid(), mint_prompt_id())
    outcome = failed(await watch.outcome(timeout=20), FailureClass.INVALID)
    assert "node 4 (SaveImage)" in outcome.failure.message
    assert posts(proxy) == 1


async def test_a_rejection_whose_answer_is_lost_is_not_taken_for_an_acceptance(
    comfy: ComfyClient, proxy: FaultProxy
) -> None:
    proxy.inject(Reset(), on="POST /prompt")
    with pytest.raises(Exception, match="does not know the prompt"):
        await comfy.submit(too_wide(), mint_prompt_id())
    assert posts(proxy) == 1

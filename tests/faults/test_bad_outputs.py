"""Row 16: an output comes from the cache, is gone, empty or cut short: class `output`, and avoiding the cache helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError, OutputProblem
from comfyui_agent.comfy.outcomes import Succeeded
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import avoiding_cache, mint_prompt_id
from comfyui_agent.lab.fault_proxy import Fault, FaultProxy, Garbage, Reset, Silence, Slice
from support.graphs import picture
from support.promises import failed, succeeded
from support.wire import Graph


async def rendered(comfy: ComfyClient, graph: Graph) -> Succeeded:
    watch = await comfy.submit(graph, mint_prompt_id())
    return succeeded(await watch.outcome(timeout=20))


async def test_a_cached_answer_whose_file_is_gone_is_not_a_success(comfy: ComfyClient, output_dir: Path) -> None:
    graph = picture()
    first = await rendered(comfy, graph)
    (output_dir / first.results.files[0].filename).unlink()
    again = await comfy.submit(graph, mint_prompt_id())
    outcome = failed(await again.outcome(timeout=20), FailureClass.OUTPUT)
    assert "cache" in outcome.failure.message


async def test_with_the_cache_avoided_the_picture_is_rendered_again(
    comfy: ComfyClient, output_dir: Path, tmp_path: Path
) -> None:
    graph = picture()
    first = await rendered(comfy, graph)
    (output_dir / first.results.files[0].filename).unlink()
    outcome = await rendered(comfy, avoiding_cache(graph, "second"))
    assert outcome.cached_nodes == frozenset()
    staged = await comfy.download(outcome.results.files[0], tmp_path)
    assert staged.kind.extension == "png"


async def test_a_cached_answer_whose_file_exists_is_a_success_that_says_so(comfy: ComfyClient) -> None:
    graph = picture()
    first = await rendered(comfy, graph)
    second = await rendered(comfy, graph)
    assert second.results == first.results
    assert "2" in second.cached_nodes


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: path.unlink(), id="gone"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:60]), id="cut-short"),
        pytest.param(lambda path: path.write_bytes(b"<html>sorry</html>"), id="not-a-picture"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes().replace(b"IDAT", b"IDAX")), id="corrupt"),
    ],
)
async def test_a_bad_file_is_never_brought_home(
    comfy: ComfyClient, output_dir: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    outcome = await rendered(comfy, picture(width=64, height=64))
    spoil(output_dir / outcome.results.files[0].filename)
    with pytest.raises(OutputProblem) as raised:
        await comfy.download(outcome.results.files[0], tmp_path)
    assert raised.value.kind is FailureClass.OUTPUT
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Reset(), id="reset"),
        pytest.param(Reset(after=500), id="cut"),
        pytest.param(Silence(after=500), id="stalled"),
        pytest.param(Slice(size=3), id="sliced"),
    ],
)
async def test_a_download_that_breaks_is_tried_again(
    comfy: ComfyClient, proxy: FaultProxy, tmp_path: Path, fault: Fault
) -> None:
    outcome = await rendered(comfy, picture(width=64, height=64))
    proxy.inject(fault, on="GET /view")
    staged = await comfy.download(outcome.results.files[0], tmp_path)
    target = staged.publish(tmp_path / "picture.png")
    assert target.stat().st_size == staged.size
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Reset(after=500), Garbage(after=400), Silence()], ids=["cut", "garbage", "silent"])
async def test_a_download_that_breaks_every_time_ends_in_an_error_and_leaves_nothing(
    comfy: ComfyClient, proxy: FaultProxy, tmp_path: Path, fault: Fault
) -> None:
    outcome = await rendered(comfy, picture(width=64, height=64))
    proxy.inject(fault, on="GET /view", times=None)
    with pytest.raises(ComfyError):
        await comfy.download(outcome.results.files[0], tmp_path)
    assert list(tmp_path.iterdir()) == []

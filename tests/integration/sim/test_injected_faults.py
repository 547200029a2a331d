"""Trouble on request: too little memory, failures, crashes, hangs."""

from __future__ import annotations

from typing import Any

import pytest

from support.graphs import picture, text_to_image
from support.wire import Graph, Wire

from .conftest import Connect, Start


async def sized(wire: Wire, edge: int) -> Graph:
    graph = await text_to_image(wire)
    graph["4"]["inputs"].update(width=edge, height=edge)
    return graph


async def free_memory(wire: Wire) -> tuple[int, int]:
    device = (await wire.get("/system_stats")).body["devices"][0]
    return device["vram_free"], device["vram_total"]


async def test_a_picture_that_does_not_fit_ends_as_it_does_on_a_gpu(start: Start, connect: Connect) -> None:
    async with connect(start("--vram-gb", "6")) as wire, wire.socket() as socket:
        doomed = await wire.submit(await sized(wire, 4096))
        small = await wire.submit(await sized(wire, 64))
        error = await socket.event("execution_error", doomed)
        assert error["exception_type"] == "torch.OutOfMemoryError"
        assert error["node_type"] == "KSampler"
        assert "Device limit            : 6.00 GiB" in error["exception_message"]
        assert "This error means you ran out of memory on your GPU." in error["exception_message"]
        assert (
            "TIPS: If the workflow worked before you might have accidentally set the batch_size"
            in (error["exception_message"])
        )
        assert (await wire.finished(doomed))["status"]["status_str"] == "error"
        assert (await wire.finished(small))["status"]["status_str"] == "success"


async def test_memory_is_taken_by_a_model_and_free_after_free(start: Start, connect: Connect) -> None:
    async with connect(start("--vram-gb", "10")) as wire:
        assert await free_memory(wire) == (10 * 1024**3, 10 * 1024**3)
        await wire.run(await text_to_image(wire))
        assert await free_memory(wire) == (6 * 1024**3, 10 * 1024**3)
        await wire.post("/free", {"unload_models": True})
        await wire.run(picture())
        assert await free_memory(wire) == (10 * 1024**3, 10 * 1024**3)


async def outcomes(wire: Wire, count: int) -> list[str]:
    ids = [await wire.submit(await text_to_image(wire)) for _ in range(count)]
    return [(await wire.finished(prompt_id))["status"]["status_str"] for prompt_id in ids]


async def test_some_renders_fail(start: Start, connect: Connect) -> None:
    async with connect(start("--failure-rate", "0.4", "--seed", "3")) as wire:
        assert set(await outcomes(wire, 10)) == {"success", "error"}


async def test_all_fail_at_1_and_say_that_it_was_asked_for(start: Start, connect: Connect) -> None:
    async with connect(start("--failure-rate", "1")) as wire:
        assert set(await outcomes(wire, 3)) == {"error"}
        entry = await wire.finished(await wire.submit(await text_to_image(wire)))
        event, error = entry["status"]["messages"][-1]
        assert (event, error["node_id"], error["node_type"]) == ("execution_error", "5", "KSampler")
        assert error["exception_message"].startswith("the simulator was told to fail")
        assert entry["outputs"] == {}


@pytest.mark.parametrize("count", [0, 2])
async def test_it_dies_in_the_middle_of_the_render_after_n(start: Start, connect: Connect, count: int) -> None:
    server = start("--crash-after", str(count), "--render-seconds", "0.1")
    async with connect(server) as wire, wire.socket() as socket:
        ids = [await wire.submit(picture("made")) for _ in range(count + 2)]
        assert await socket.lost() == 1006
        ended = [data["prompt_id"] for data in socket.events("execution_success")]
        assert ended == ids[:count]
        assert socket.events("execution_start")[-1]["prompt_id"] == ids[count]
    assert server.process is not None
    assert server.process.wait(timeout=5) == 70
    assert len(list(server.output_dir.glob("made_*.png"))) == count


async def test_all_fail_once_the_cuda_context_is_lost_until_a_restart(start: Start, connect: Connect) -> None:
    server = start("--cuda-lost-after", "1")
    async with connect(server) as wire:
        assert await outcomes(wire, 3) == ["success", "error", "error"]
        entry = await wire.finished(await wire.submit(picture()))
        event, error = entry["status"]["messages"][-1]
        assert (event, error["exception_type"]) == ("execution_error", "torch.AcceleratorError")
        assert error["exception_message"].startswith("CUDA error: an illegal memory access was encountered\n")
        assert "!!! Exception during processing !!! CUDA error: an illegal" in server.log.read_text()
    server.kill()
    async with connect(server.start()) as wire:
        assert await outcomes(wire, 2) == ["success", "error"]


async def test_it_hangs_in_the_render_after_n_while_http_goes_on(start: Start, connect: Connect) -> None:
    async with connect(start("--hang-after", "1")) as wire, wire.socket() as socket:
        first: Any = await wire.run(picture())
        assert first["status"]["completed"]
        stuck = await wire.submit(await text_to_image(wire, steps=4))
        waiting = await wire.submit(picture())
        await socket.event("progress", stuck, value=1)  # it hangs in the next step, where no interrupt is looked for
        await wire.post("/interrupt")
        await wire.post("/free", {"free_memory": True})
        for _ in range(30):
            running, pending = await wire.queue()
            assert [item[1] for item in running] == [stuck]
            assert [item[1] for item in pending] == [waiting]
            assert (await wire.get(f"/history/{stuck}")).body == {}
        assert (await wire.post("/queue", {"delete": [waiting]})).status == 200
        assert (await wire.get("/prompt")).body["exec_info"]["queue_remaining"] == 1

"""What else a prompt may carry, what becomes of its values, and what breaks the request itself."""

from __future__ import annotations

import io
from typing import Any

import pytest

from support.graphs import checkpoint_name, fresh_prefix, node, picture, saved_with, two_pictures
from support.wire import Wire


async def test_literals_are_kept_as_the_types_the_node_declares(wire: Wire) -> None:
    graph = picture()
    graph["1"]["inputs"].update(width="24", height=17.9, batch_size=True)
    graph["2"]["inputs"]["filename_prefix"] = 5
    shown = (await wire.run(graph))["prompt"][2]
    assert shown["1"]["inputs"] == graph["1"]["inputs"] | {"width": 24, "height": 17, "batch_size": 1}
    assert type(shown["1"]["inputs"]["batch_size"]) is int
    assert shown["2"]["inputs"]["filename_prefix"] == "5"


@pytest.mark.parametrize(("given", "kept"), [("false", True), ("", False), (0, False), (2, True)])
async def test_a_boolean_is_whatever_python_takes_for_true(wire: Wire, given: Any, kept: bool) -> None:
    graph = saved_with("SaveAnimatedWEBP", fps="12", lossless=given, quality=80, method="default")
    shown = (await wire.run(graph))["prompt"][2]["2"]["inputs"]
    assert shown["lossless"] is kept
    assert (shown["fps"], type(shown["fps"])) == (12.0, float)


async def test_a_wrapped_value_is_unwrapped(wire: Wire) -> None:
    graph = picture()
    graph["1"]["inputs"]["width"] = {"__value__": 24}
    assert (await wire.run(graph))["prompt"][2]["1"]["inputs"]["width"] == 24


async def test_undeclared_literals_and_titles_are_kept(wire: Wire) -> None:
    graph = picture()
    graph["1"]["inputs"]["anything"] = {"nested": [1, 2]}
    graph["1"]["_meta"] = {"title": "Background"}
    assert (await wire.run(graph))["prompt"][2] == graph


async def test_a_link_to_an_undeclared_input_is_executed_and_passed(wire: Wire) -> None:
    graph = picture()
    graph["3"] = node("ImageInvert", image=["1", 0])
    graph["2"]["inputs"]["anything"] = ["3", 0]
    entry = await wire.finished(await wire.submit(graph))
    event, error = entry["status"]["messages"][-1]
    assert (event, error["node_id"], error["exception_type"]) == ("execution_error", "2", "TypeError")
    assert sorted(error["executed"]) == ["1", "3"]


async def test_a_node_that_takes_anything_is_given_what_is_linked(wire: Wire) -> None:
    merge = node("ModelMergeBlocks", model1=["1", 0], model2=["1", 0], input=0.5, middle=0.5, out=0.5, more=["2", 0])
    graph = {
        "1": node("CheckpointLoaderSimple", ckpt_name=await checkpoint_name(wire)),
        "2": node("PrimitiveFloat", value=0.5),
        "3": merge,
        "4": node("PreviewAny", source=["3", 0], fresh=fresh_prefix()),
    }
    async with wire.socket() as recorder:
        await recorder.last_frame_of(await wire.submit(graph))
        assert {"2", "3", "4"} <= {data["node"] for data in recorder.events("executing")}
        assert "execution_success" in recorder.types()


@pytest.mark.of_the_wire
async def test_the_source_that_a_client_names_is_kept_since_0_25(wire: Wire) -> None:
    body = {"prompt": picture(), "client_id": wire.client_id}
    answer = await wire.post("/prompt", body, headers={"Comfy-Usage-Source": "tests"})
    extra_data = (await wire.finished(answer.body["prompt_id"]))["prompt"][3]
    assert extra_data.get("comfy_usage_source") == ("tests" if wire.since("0.25") else None)


async def test_a_value_that_is_not_a_number_survives_the_round_trip(wire: Wire) -> None:
    graph = picture()
    graph["1"]["inputs"]["anything"] = float("nan")
    prompt_id = await wire.submit(graph)
    await wire.finished(prompt_id)
    async with wire.session.get(f"{wire.url}/history/{prompt_id}") as response:
        assert '"anything": NaN' in await response.text()


async def test_targets_choose_which_outputs_run(wire: Wire) -> None:
    entry = await wire.run(two_pictures(), partial_execution_targets=["4"])
    assert (entry["outputs"].keys(), entry["prompt"][4]) == ({"4"}, ["4"])


async def test_targets_that_are_null_choose_everything(wire: Wire) -> None:
    entry = await wire.run(two_pictures(), partial_execution_targets=None)
    assert entry["outputs"].keys() == {"2", "4"}


@pytest.mark.parametrize("targets", [[], ["1"], ["no-such-node"]])
async def test_targets_without_an_output_node_are_refused(wire: Wire, targets: list[str]) -> None:
    answer = await wire.offer(picture(), partial_execution_targets=targets)
    assert (answer.status, answer.body["error"]["type"]) == (400, "prompt_no_outputs")


@pytest.mark.parametrize("extra_data", [None, [], "text"])
async def test_extra_data_that_is_no_object_fails_the_request(wire: Wire, extra_data: Any) -> None:
    assert (await wire.offer(picture(), extra_data=extra_data)).status == 500


@pytest.mark.parametrize("route", ["/prompt", "/queue", "/history", "/free", "/api/prompt"])
@pytest.mark.parametrize("body", [b"", b"{", b"null"])
async def test_a_body_that_is_no_json_object_fails_the_request(wire: Wire, route: str, body: bytes) -> None:
    answer = await wire.post(route, data=body, headers={"Content-Type": "application/json"})
    assert (answer.status, answer.headers["Content-Type"]) == (500, "text/plain; charset=utf-8")


@pytest.mark.parametrize("route", ["/prompt", "/upload/image"])
async def test_a_body_over_the_limit_is_refused(wire: Wire, route: str) -> None:
    limit = (await wire.get("/features")).body["max_upload_size"]
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await wire.post(route, data=io.BytesIO(b"a" * (limit + 1)), headers=headers)
    assert answer.status == 413


@pytest.mark.parametrize(("method", "path"), [("PUT", "/prompt"), ("POST", "/no-such-route"), ("DELETE", "/queue")])
async def test_a_method_that_does_not_exist_is_not_allowed(wire: Wire, method: str, path: str) -> None:
    answer = await wire.request(method, path)
    assert (answer.status, answer.body) == (405, "405: Method Not Allowed")
    assert answer.headers["Allow"] == ("GET,HEAD" if path == "/no-such-route" else "GET,HEAD,POST")


@pytest.mark.parametrize("path", ["/no-such-route", "/api/no-such-route", "/queue/"])
async def test_a_path_that_does_not_exist_is_a_file_that_was_not_found(wire: Wire, path: str) -> None:
    answer = await wire.get(path)
    assert (answer.status, answer.body) == (404, b"")
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert (answer.headers.get("Transfer-Encoding"), "Content-Length" in answer.headers) == ("chunked", False)

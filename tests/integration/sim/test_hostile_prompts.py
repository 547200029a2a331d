"""Prompts that no client should send: each gets the answer that ComfyUI gives, and the next prompt is served."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.graphs import empty_image, node, picture
from support.wire import Graph, Wire

from .conftest import Connect, Start

SAVE = node("SaveImage", images=["1", 0], filename_prefix="x")
INVALID = "prompt_outputs_failed_validation"


def error_kinds(body: Any) -> dict[str, list[str]]:
    return {name: [error["type"] for error in found["errors"]] for name, found in body["node_errors"].items()}


async def raw(wire: Wire, body: bytes) -> tuple[int, Any]:
    answer = await wire.post("/prompt", data=body, headers={"Content-Type": "application/json"})
    return answer.status, answer.body


@pytest.fixture(autouse=True)
async def the_next_prompt_is_served(plain: Wire) -> Any:
    yield
    await plain.run(picture())


@pytest.mark.parametrize(
    "body",
    [b"", b"\x00\xff\xfe{{", b'{"prompt": "\xe9"}', b"null", b"5", b"true", b"{", b"[" * 100_000],
    ids=["empty", "junk", "not utf-8", "null", "number", "truth", "cut off", "too deep"],
)
async def test_a_body_that_is_no_object_is_a_server_error(plain: Wire, body: bytes) -> None:
    assert (await raw(plain, body))[0] == 500


@pytest.mark.parametrize("body", [b"{}", b"[]", b'"text"'])
async def test_a_body_without_a_prompt_says_so(plain: Wire, body: bytes) -> None:
    status, answer = await raw(plain, body)
    assert (status, answer["error"]["type"]) == (400, "no_prompt")


@pytest.mark.parametrize("prompt", [[1], "abc", 5, None, True, {"1": 5}, {"1": None}, {"1": True}])
async def test_a_prompt_of_another_type_is_a_server_error(plain: Wire, prompt: Any) -> None:
    assert (await plain.post("/prompt", {"prompt": prompt})).status == 500


@pytest.mark.parametrize("prompt", [{}, [], ""])
async def test_an_empty_prompt_has_no_outputs(plain: Wire, prompt: Any) -> None:
    answer = await plain.post("/prompt", {"prompt": prompt})
    assert (answer.status, answer.body["error"]["type"]) == (400, "prompt_no_outputs")


@pytest.mark.parametrize("made", [{}, [], "text"])
async def test_a_node_without_a_class_is_named(plain: Wire, made: Any) -> None:
    answer = await plain.post("/prompt", {"prompt": {"7": made}})
    assert (answer.status, answer.body["error"]["details"]) == (400, "Node ID '#7'")


@pytest.mark.parametrize("class_type", [None, 3, ""])
async def test_a_class_of_another_type_does_not_exist(plain: Wire, class_type: Any) -> None:
    answer = await plain.post("/prompt", {"prompt": {"7": {"class_type": class_type, "inputs": {}}}})
    assert (answer.status, answer.body["error"]["type"]) == (400, "invalid_prompt")


@pytest.mark.parametrize("inputs", [None, 1, True, "images"])
async def test_inputs_of_another_type_are_a_finding_of_their_node(plain: Wire, inputs: Any) -> None:
    answer = await plain.offer({"2": {"class_type": "SaveImage", "inputs": inputs}})
    assert (answer.status, answer.body["error"]["type"]) == (400, INVALID)
    assert error_kinds(answer.body) == {"2": ["exception_during_validation"]}


@pytest.mark.parametrize("inputs", [None, 1, True])
async def test_inputs_of_another_type_further_up_are_found_too(plain: Wire, inputs: Any) -> None:
    answer = await plain.offer({"1": {"class_type": "EmptyImage", "inputs": inputs}, "2": SAVE})
    assert error_kinds(answer.body) == {"1": ["exception_during_inner_validation"]}


async def test_a_node_without_inputs_is_a_finding(plain: Wire) -> None:
    answer = await plain.offer({"1": {"class_type": "EmptyImage"}, "2": SAVE})
    assert error_kinds(answer.body) == {"1": ["exception_during_inner_validation"]}


@pytest.mark.parametrize(
    ("link", "kind"),
    [
        (["9", 0], "exception_during_validation"),
        (["1", 99], "exception_during_validation"),
        (["1", "0"], "exception_during_validation"),
        (["1", 0.5], "exception_during_validation"),
        (["1", None], "exception_during_validation"),
        ([1, 0], "exception_during_validation"),
        ([["1"], 0], "exception_during_validation"),
        (["1", 10**30], "exception_during_validation"),
        (["2", 0], "exception_during_validation"),
        (["1"], "bad_linked_input"),
        (["1", 0, 0], "bad_linked_input"),
        ([], "bad_linked_input"),
        (["3", 0], "return_type_mismatch"),
    ],
)
async def test_a_bad_link_is_a_finding(plain: Wire, link: Any, kind: str) -> None:
    graph = {
        "1": empty_image(),
        "2": node("SaveImage", images=link, filename_prefix="x"),
        "3": node("PrimitiveInt", value=1),
    }
    answer = await plain.offer(graph)
    assert (answer.status, error_kinds(answer.body)) == (400, {"2": [kind]})


@pytest.mark.parametrize("value", ["text", 1, None, {"a": 1}])
async def test_a_literal_in_place_of_a_picture_fails_when_it_runs(plain: Wire, value: Any) -> None:
    graph = {"1": empty_image(), "2": node("SaveImage", images=value, filename_prefix="x")}
    answer = await plain.offer(graph)
    entry = await plain.finished(answer.body["prompt_id"])
    assert entry["status"]["messages"][-1][0] == "execution_error"


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "null", "{}", '"wide"', "-1", "1e400"])
async def test_a_width_that_is_none_is_refused(plain: Wire, value: str) -> None:
    graph = json.dumps({"prompt": {"1": empty_image(width=7777), "2": SAVE}}).replace("7777", value)
    status, body = await raw(plain, graph.encode())
    assert (status, set(error_kinds(body))) == (400, {"1"})


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
async def test_an_endless_number_is_out_of_range(plain: Wire, value: float) -> None:
    answer = await plain.offer({"1": node("PrimitiveFloat", value=value), "2": node("PreviewAny", source=["1", 0])})
    assert (answer.status, set(error_kinds(answer.body))) == (400, {"1"})


async def test_not_a_number_is_in_every_range_and_worked_out_anew_each_time(plain: Wire) -> None:
    graph = {"1": node("PrimitiveFloat", value=float("nan")), "2": node("PreviewAny", source=["1", 0])}
    for _ in range(2):
        entry = await plain.run(graph)
        assert entry["outputs"]["2"]["text"] == ["nan"]
        assert entry["status"]["messages"][1][1]["nodes"] == []


@pytest.mark.parametrize("length", [2, 5])
async def test_a_circle_is_refused_and_blames_nobody(plain: Wire, length: int) -> None:
    circle = {str(n): node("ImageInvert", image=[str((n + 1) % length), 0]) for n in range(length)}
    answer = await plain.offer({**circle, "save": node("SaveImage", images=["0", 0], filename_prefix="x")})
    assert (answer.status, answer.body["error"]["type"], answer.body["node_errors"]) == (400, INVALID, {})


async def test_a_node_linked_to_itself_is_refused(plain: Wire) -> None:
    answer = await plain.offer({"1": node("ImageInvert", image=["1", 0]), "2": SAVE})
    assert (answer.status, answer.body["error"]["type"]) == (400, INVALID)


async def test_a_circle_beside_a_sound_output_does_not_stop_it(plain: Wire) -> None:
    circle = {"8": node("ImageInvert", image=["9", 0]), "9": node("ImageInvert", image=["8", 0])}
    entry = await plain.run({**picture(), **circle})
    assert list(entry["outputs"]) == ["2"]


def chain(length: int) -> Graph:
    links = {str(n): node("ImageInvert", image=[str(n - 1), 0]) for n in range(2, length)}
    last = str(length - 1)
    return {"1": empty_image(), **links, "save": node("SaveImage", images=[last, 0], filename_prefix="x")}


async def test_a_chain_of_several_hundred_nodes_runs(plain: Wire) -> None:
    assert (await plain.run(chain(600)))["outputs"]["save"]["images"]


async def test_a_chain_of_thousands_is_refused(plain: Wire) -> None:
    answer = await plain.offer(chain(3000))
    assert (answer.status, answer.body["error"]["type"]) == (400, INVALID)
    (found,) = answer.body["node_errors"].values()
    assert "recursion" in found["errors"][0]["details"]


async def test_thousands_of_nodes_side_by_side_run(plain: Wire) -> None:
    previews = {f"p{n}": node("PreviewAny", source=["1", 0], number=n) for n in range(1500)}
    entry = await plain.run({"1": node("PrimitiveInt", value=5), **previews}, client_id=None)
    assert len(entry["outputs"]) == 1500


@pytest.mark.parametrize("value", ["soon", None, [], {}])
async def test_a_number_that_is_none_is_a_server_error(plain: Wire, value: Any) -> None:
    assert (await plain.post("/prompt", {"prompt": picture(), "number": value})).status == 500


@pytest.mark.parametrize("value", ["x", None, [], 1])
async def test_extra_data_of_another_type_is_a_server_error(plain: Wire, value: Any) -> None:
    assert (await plain.post("/prompt", {"prompt": picture(), "client_id": "x", "extra_data": value})).status == 500


@pytest.mark.parametrize("prefix", ["../x", "/etc/x", "a\0b", "x" * 300, "\ud800", "sub/../../../x"])
async def test_a_prefix_that_cannot_be_saved_to_fails_when_it_runs(plain: Wire, prefix: str) -> None:
    entry = await plain.finished(await plain.submit(picture(prefix)))
    assert entry["status"]["messages"][-1][0] == "execution_error"


DEADLY = {
    "an unreachable node without inputs": {**picture(), "stray": {"class_type": "EmptyImage"}},
    "an undeclared link to nowhere": {
        "1": empty_image(),
        "2": node("SaveImage", images=["1", 0], filename_prefix="x", extra=["nowhere", 0]),
    },
}


@pytest.mark.parametrize("graph", DEADLY.values(), ids=DEADLY.keys())
async def test_a_prompt_that_kills_the_worker_sticks_while_http_goes_on(
    start: Start, connect: Connect, graph: Graph
) -> None:
    server = start()
    async with connect(server) as wire:
        stuck = await wire.submit(graph)
        await wire.running(stuck)
        waiting = await wire.submit(picture())
        await wire.post("/interrupt", {})
        for _ in range(20):
            running, pending = await wire.queue()
            assert [item[1] for item in running + pending] == [stuck, waiting]
        assert (await wire.get("/history")).body == {}
    assert "the prompt worker died of KeyError" in server.log.read_text()


@pytest.mark.parametrize("client_id", [[], {}])
async def test_a_client_id_that_cannot_be_looked_up_ends_the_server(
    start: Start, connect: Connect, client_id: Any
) -> None:
    server = start()
    async with connect(server) as wire:
        await wire.post("/prompt", {"prompt": picture(), "client_id": client_id})
    assert server.process is not None
    assert server.process.wait(timeout=5) == 1
    assert "e3: the simulator died of TypeError: unhashable type" in server.log.read_text()


@pytest.mark.parametrize("name", ["/etc/passwd", "/etc/passwd [input]", "../../x.png [output]", "a/../../../x.png"])
async def test_a_file_outside_its_folders_is_not_loaded(plain: Wire, name: str) -> None:
    """Newer servers refuse it; 0.7.0 hands it out, and nothing of ours is to rely on that."""
    graph = {"1": node("LoadImage", image=name), "2": SAVE}
    answer = await plain.post("/prompt", json={"prompt": graph})
    assert answer.status == 400
    assert error_kinds(answer.body) == {"1": ["custom_validation_failed"]}

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


async def test_a_body_that_is_no_object_is_a_server_error(plain: Wire) -> None:
    for body in (b"", b"\x00\xff\xfe{{", b'{"prompt": "\xe9"}', b"null", b"5", b"true", b"{", b"[" * 100_000):
        assert (await raw(plain, body))[0] == 500, body[:20]
    wrong: list[dict[str, Any]] = [{"prompt": prompt} for prompt in ([1], "abc", 5, None, True, {"1": 5}, {"1": None})]
    wrong += [{"prompt": picture(), "number": value} for value in ("soon", None, [], {})]
    wrong += [{"prompt": picture(), "client_id": "x", "extra_data": value} for value in ("x", None, [], 1)]
    for document in wrong:
        assert (await plain.post("/prompt", document)).status == 500, document


async def test_a_prompt_with_nothing_to_run_says_so(plain: Wire) -> None:
    for body in (b"{}", b"[]", b'"text"'):
        status, answer = await raw(plain, body)
        assert (status, answer["error"]["type"]) == (400, "no_prompt"), body
    empty: tuple[Any, ...] = ({}, [], "")
    for prompt in empty:
        answer = await plain.post("/prompt", {"prompt": prompt})
        assert (answer.status, answer.body["error"]["type"]) == (400, "prompt_no_outputs"), prompt


async def test_a_node_without_a_known_class_is_named(plain: Wire) -> None:
    of_no_class = [{"class_type": class_type, "inputs": {}} for class_type in (None, 3, "")]
    for made in ({}, *of_no_class):
        answer = await plain.post("/prompt", {"prompt": {"7": made}})
        error = answer.body["error"]
        assert (answer.status, error["type"], error["details"]) == (400, "missing_node_type", "Node ID '#7'"), made


async def test_a_node_that_is_no_object_fails_the_request(plain: Wire) -> None:
    for made in ([], "text"):
        assert (await plain.post("/prompt", {"prompt": {"7": made}})).status == 500, made


async def test_inputs_of_another_type_are_an_error_of_their_node(plain: Wire) -> None:
    for inputs in (None, 1, True, "images"):
        answer = await plain.offer({"2": {"class_type": "SaveImage", "inputs": inputs}})
        assert (answer.status, answer.body["error"]["type"]) == (400, INVALID), inputs
        assert error_kinds(answer.body) == {"2": ["exception_during_validation"]}, inputs
    for inner in ({"inputs": None}, {"inputs": 1}, {"inputs": True}, {}):
        answer = await plain.offer({"1": {"class_type": "EmptyImage", **inner}, "2": SAVE})
        assert error_kinds(answer.body) == {"1": ["exception_during_inner_validation"]}, inner


async def test_a_bad_link_is_an_error(plain: Wire) -> None:
    raising = [["9", 0], ["1", 99], ["1", "0"], ["1", 0.5], ["1", None], [1, 0], [["1"], 0], ["1", 10**30]]
    cases: list[tuple[list[Any], str]] = [(link, "exception_during_validation") for link in raising]
    cases += [(["1"], "bad_linked_input"), (["1", 0, 0], "bad_linked_input"), ([], "bad_linked_input")]
    for link, kind in [*cases, (["3", 0], "return_type_mismatch"), (["2", 0], "dependency_cycle")]:
        save = node("SaveImage", images=link, filename_prefix="x")
        answer = await plain.offer({"1": empty_image(), "2": save, "3": node("PrimitiveInt", value=1)})
        assert (answer.status, error_kinds(answer.body)) == (400, {"2": [kind]}), link


async def test_a_bad_number_is_an_error(plain: Wire) -> None:
    for value in ("NaN", "Infinity", "-Infinity", "null", "{}", '"wide"', "-1", "1e400"):
        graph = json.dumps({"prompt": {"1": empty_image(width=7777), "2": SAVE}}).replace("7777", value)
        status, body = await raw(plain, graph.encode())
        assert (status, set(error_kinds(body))) == (400, {"1"}), value
    for value in (float("inf"), float("-inf")):
        answer = await plain.offer({"1": node("PrimitiveFloat", value=value), "2": node("PreviewAny", source=["1", 0])})
        assert (answer.status, set(error_kinds(answer.body))) == (400, {"1"}), value


async def test_not_a_number_is_in_every_range_and_never_cached(plain: Wire) -> None:
    graph = {"1": node("PrimitiveFloat", value=float("nan")), "2": node("PreviewAny", source=["1", 0])}
    for _ in range(2):
        entry = await plain.run(graph)
        assert entry["outputs"]["2"]["text"] == ["nan"]
        assert entry["status"]["messages"][1][1]["nodes"] == []


async def test_what_only_the_node_can_see_fails_when_it_runs(plain: Wire) -> None:
    values: tuple[Any, ...] = ("text", 1, None, {"a": 1})
    graphs = [{"1": empty_image(), "2": node("SaveImage", images=value, filename_prefix="x")} for value in values]
    graphs += [picture(prefix) for prefix in ("../x", "/etc/x", "a\0b", "x" * 300, "\ud800", "sub/../../../x")]
    for graph in graphs:
        entry = await plain.finished(await plain.submit(graph))
        assert entry["status"]["messages"][-1][0] == "execution_error", graph["2"]


@pytest.mark.parametrize("length", [1, 2, 5])
async def test_a_cycle_is_an_error_of_each_of_its_nodes(plain: Wire, length: int) -> None:
    cycle = {str(n): node("ImageInvert", image=[str((n + 1) % length), 0]) for n in range(length)}
    answer = await plain.offer({**cycle, "save": node("SaveImage", images=["0", 0], filename_prefix="x")})
    assert (answer.status, answer.body["error"]["type"]) == (400, INVALID)
    assert error_kinds(answer.body) == {node_id: ["dependency_cycle"] for node_id in cycle}


async def test_a_cycle_beside_a_good_output_does_not_stop_it(plain: Wire) -> None:
    cycle = {"8": node("ImageInvert", image=["9", 0]), "9": node("ImageInvert", image=["8", 0])}
    entry = await plain.run({**picture(), **cycle})
    assert list(entry["outputs"]) == ["2"]


def chain(length: int) -> Graph:
    links = {str(n): node("ImageInvert", image=[str(n - 1), 0]) for n in range(2, length)}
    last = str(length - 1)
    return {"1": empty_image(), **links, "save": node("SaveImage", images=[last, 0], filename_prefix="x")}


async def test_a_chain_of_hundreds_runs_and_one_of_thousands_is_refused(plain: Wire) -> None:
    assert (await plain.run(chain(600)))["outputs"]["save"]["images"]
    answer = await plain.offer(chain(3000))
    assert (answer.status, answer.body["error"]["type"]) == (400, INVALID)
    (found,) = answer.body["node_errors"].values()
    assert "recursion" in found["errors"][0]["details"]


async def test_many_nodes_side_by_side_run(plain: Wire) -> None:
    previews = {f"p{n}": node("PreviewAny", source=["1", 0], number=n) for n in range(1000)}
    entry = await plain.run({"1": node("PrimitiveInt", value=5), **previews}, client_id=None)
    assert len(entry["outputs"]) == 1000


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


async def test_a_client_id_that_cannot_be_looked_up_ends_the_server(start: Start, connect: Connect) -> None:
    server = start()
    async with connect(server) as wire:
        await wire.post("/prompt", {"prompt": picture(), "client_id": []})
    assert server.process is not None
    assert server.process.wait(timeout=5) == 1
    assert "e3: the simulator died of TypeError: unhashable type" in server.log.read_text()


async def test_a_file_outside_its_folders_is_not_loaded(plain: Wire) -> None:
    """Newer servers refuse it; 0.7.0 hands it out, and nothing of ours relies on that."""
    for name in ("/etc/passwd", "/etc/passwd [input]", "../../x.png [output]", "a/../../../x.png"):
        answer = await plain.post("/prompt", json={"prompt": {"1": node("LoadImage", image=name), "2": SAVE}})
        assert answer.status == 400, name
        assert error_kinds(answer.body) == {"1": ["custom_validation_failed"]}, name

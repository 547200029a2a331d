"""Which prompts are refused, and how the refusal says what is wrong where."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support.graphs import node, picture, saved_with, text_to_image, two_pictures
from support.wire import Answer, Graph, Wire


def edited(node_id: str, **inputs: Any) -> Graph:
    """A picture with other values in one of its nodes."""
    graph = picture()
    graph[node_id]["inputs"].update(inputs)
    return graph


def assert_refused(answer: Answer, kind: str) -> None:
    assert answer.status == 400
    assert answer.body.keys() == {"error", "node_errors"}
    error = answer.body["error"]
    assert error.keys() == {"type", "message", "details", "extra_info"}
    assert (error["type"], error["extra_info"]) == (kind, {})


def calls(line: str) -> str:
    """The function of ComfyUI's execution.py that a line of a traceback names."""
    found = re.match(r'  File "/.*/execution\.py", line \d+, in (\w+)\n', line)
    assert found, line
    return found[1]


async def only_error(wire: Wire, graph: Graph, node_id: str) -> dict[str, Any]:
    """The one error of the one node a refusal names."""
    answer = await wire.offer(graph)
    assert_refused(answer, "prompt_outputs_failed_validation")
    assert answer.body["node_errors"].keys() == {node_id}
    report = answer.body["node_errors"][node_id]
    assert report.keys() == {"errors", "dependent_outputs", "class_type"}
    assert report["class_type"] == graph[node_id]["class_type"]
    (error,) = report["errors"]
    assert error.keys() == {"type", "message", "details", "extra_info"}
    found: dict[str, Any] = error
    return found


async def test_a_body_without_a_prompt_is_refused(wire: Wire) -> None:
    answer = await wire.post("/prompt", {"client_id": wire.client_id})
    assert_refused(answer, "no_prompt")
    assert answer.body["node_errors"] == {}


@pytest.mark.until("0.12")
@pytest.mark.parametrize("broken", [{"inputs": {}}, {"class_type": "NoSuchNode", "inputs": {}}])
@pytest.mark.of_the_wire
async def test_a_node_of_no_known_class_makes_an_invalid_prompt(wire: Wire, broken: dict[str, Any]) -> None:
    answer = await wire.offer({**picture(), "9": broken})
    assert_refused(answer, "invalid_prompt")
    assert answer.body["error"]["details"] == "Node ID '#9'"
    assert answer.body["node_errors"] == {}


@pytest.mark.since("0.12")
@pytest.mark.parametrize(
    ("broken", "title", "message"),
    [
        ({}, None, "Node 'ID #9' has no class_type. The workflow may be corrupted or a custom node is missing."),
        (
            {"_meta": {"title": "My node"}},
            "My node",
            "Node 'My node' has no class_type. The workflow may be corrupted or a custom node is missing.",
        ),
        (
            {"class_type": "NoSuchNode"},
            "NoSuchNode",
            "Node 'NoSuchNode' not found. The custom node may not be installed.",
        ),
        (
            {"class_type": "NoSuchNode", "_meta": {"title": "My node"}},
            "My node",
            "Node 'My node' not found. The custom node may not be installed.",
        ),
    ],
)
async def test_a_node_of_no_known_class_is_named_even_if_nothing_uses_it(
    wire: Wire, broken: dict[str, Any], title: str | None, message: str
) -> None:
    answer = await wire.offer({**picture(), "9": {"inputs": {}, **broken}})
    assert (answer.status, answer.body["node_errors"]) == (400, {})
    assert answer.body["error"] == {
        "type": "missing_node_type",
        "message": message,
        "details": "Node ID '#9'",
        "extra_info": {"node_id": "9", "class_type": broken.get("class_type"), "node_title": title},
    }


@pytest.mark.parametrize("graph", [{}, {"1": picture()["1"]}])
async def test_a_prompt_without_output_nodes_is_refused(wire: Wire, graph: Graph) -> None:
    answer = await wire.offer(graph)
    assert_refused(answer, "prompt_no_outputs")
    assert answer.body["error"]["details"] == ""


async def test_an_error_upstream_leaves_the_summary_empty(wire: Wire) -> None:
    answer = await wire.offer(edited("1", width=0))
    assert_refused(answer, "prompt_outputs_failed_validation")
    assert answer.body["error"]["details"] == ""
    assert answer.body["node_errors"]["1"]["dependent_outputs"] == ["2"]


async def test_an_error_of_an_output_node_appears_in_the_summary(wire: Wire) -> None:
    graph = picture()
    del graph["2"]["inputs"]["filename_prefix"]
    answer = await wire.offer(graph)
    assert answer.body["error"]["details"].endswith(": filename_prefix")
    (error,) = answer.body["node_errors"]["2"]["errors"]
    assert (error["type"], error["details"]) == ("required_input_missing", "filename_prefix")
    assert error["extra_info"] == {"input_name": "filename_prefix"}


@pytest.mark.parametrize(
    ("value", "error_type"),
    [
        (0, "value_smaller_than_min"),
        (99999, "value_bigger_than_max"),
        ([1, 2, 3], "bad_linked_input"),
    ],
)
async def test_a_bad_value_is_reported_with_the_rule_it_breaks(wire: Wire, value: Any, error_type: str) -> None:
    error = await only_error(wire, edited("1", width=value), "1")
    assert (error["type"], error["details"]) == (error_type, "width")
    assert error["extra_info"] == {
        "input_name": "width",
        "input_config": ["INT", {"default": 512, "min": 1, "max": 16384, "step": 1}],
        "received_value": value,
    }


@pytest.mark.parametrize("value", ["wide", None, {}])
async def test_a_value_of_the_wrong_type_is_reported_with_the_reason(wire: Wire, value: Any) -> None:
    error = await only_error(wire, edited("1", width=value), "1")
    assert error["type"] == "invalid_input_type"
    assert error["details"].startswith(f"width, {value}, ")
    assert error["extra_info"].keys() == {"input_name", "input_config", "received_value", "exception_message"}
    assert error["extra_info"]["received_value"] == value


async def test_a_link_of_the_wrong_type_is_reported_with_both_ends(wire: Wire) -> None:
    graph = picture() | {"1": node("SolidMask", value=0.5, width=8, height=8)}
    error = await only_error(wire, graph, "2")
    assert error["type"] == "return_type_mismatch"
    info = error["extra_info"]
    assert info.keys() == {"input_name", "input_config", "received_type", "linked_node"}
    assert (info["input_name"], info["received_type"], info["linked_node"]) == ("images", "MASK", ["1", 0])
    assert info["input_config"][0] == "IMAGE"


async def test_a_choice_that_is_not_offered_is_reported_with_the_choices(wire: Wire) -> None:
    graph = edited("2", images=["3", 0])
    graph["3"] = node("ImageScale", image=["1", 0], upscale_method="magic", width=8, height=8, crop="disabled")
    error = await only_error(wire, graph, "3")
    choices = ["nearest-exact", "bilinear", "area", "bicubic", "lanczos"]
    assert (error["type"], error["details"]) == ("value_not_in_list", f"upscale_method: 'magic' not in {choices}")
    assert error["extra_info"]["input_config"] == [choices, {}]


@pytest.mark.of_the_wire
async def test_a_choice_of_another_type_is_written_in_quotes_until_0_21(wire: Wire) -> None:
    graph = edited("2", images=["3", 0])
    graph["3"] = node("ImageScale", image=["1", 0], upscale_method=5, width=8, height=8, crop="disabled")
    error = await only_error(wire, graph, "3")
    given = "5" if wire.since("0.21") else "'5'"
    assert error["details"].startswith(f"upscale_method: {given} not in [")


async def test_a_newer_node_lists_its_choices_among_the_options(wire: Wire) -> None:
    graph = saved_with("SaveWEBM", codec="magic", fps=24.0, crf=32.0)
    error = await only_error(wire, graph, "2")
    assert (error["type"], error["details"]) == ("value_not_in_list", "codec: 'magic' not in ['vp9', 'av1']")
    kind, options = error["extra_info"]["input_config"]
    assert (kind, options["options"]) == ("COMBO", ["vp9", "av1"])


async def test_more_than_twenty_choices_are_counted_not_listed(wire: Wire) -> None:
    graph = await text_to_image(wire)
    graph["5"]["inputs"]["sampler_name"] = "magic"
    info = (await wire.get("/object_info/KSampler")).body["KSampler"]
    offered = len(info["input"]["required"]["sampler_name"][0])
    error = await only_error(wire, graph, "5")
    assert offered > 20
    assert error["details"] == f"sampler_name: 'magic' not in (list of length {offered})"
    assert error["extra_info"] == {"input_name": "sampler_name", "input_config": None, "received_value": "magic"}


async def test_a_missing_file_fails_the_check_of_its_node(wire: Wire) -> None:
    error = await only_error(wire, picture() | {"1": node("LoadImage", image="no-such-file.png")}, "1")
    assert error["type"] == "custom_validation_failed"
    assert error["details"].startswith("image - ")
    assert error["details"].endswith("no-such-file.png")
    assert error["extra_info"] == {"input_name": "image"}


@pytest.mark.since("0.28")
@pytest.mark.parametrize("name", ["/etc/hosts", "../../../../../../../../etc/hosts", "/etc/hosts [output]"])
async def test_a_file_outside_of_the_servers_folders_is_missing(wire: Wire, name: str) -> None:
    error = await only_error(wire, picture() | {"1": node("LoadImage", image=name)}, "1")
    assert (error["type"], error["details"]) == ("custom_validation_failed", f"image - Invalid image file: {name}")


@pytest.mark.parametrize(("link", "exception"), [(["9", 0], "KeyError"), (["1", 5], "IndexError")])
async def test_an_output_node_linked_to_nothing_is_reported_as_an_exception(
    wire: Wire, link: list[Any], exception: str
) -> None:
    error = await only_error(wire, edited("2", images=link), "2")
    assert error["type"] == "exception_during_validation"
    assert error["extra_info"].keys() == {"exception_type", "traceback"}
    assert error["extra_info"]["exception_type"] == exception
    assert [calls(line) for line in error["extra_info"]["traceback"]] == ["validate_prompt", "validate_inputs"]


async def test_an_inner_node_linked_to_nothing_is_reported_as_an_inner_exception(wire: Wire) -> None:
    graph = picture() | {"1": node("ImageInvert", image=["9", 0])}
    error = await only_error(wire, graph, "1")
    assert (error["type"], error["details"]) == ("exception_during_inner_validation", "'9'")
    info = error["extra_info"]
    assert info.keys() == {
        "input_name",
        "input_config",
        "exception_message",
        "exception_type",
        "traceback",
        "linked_node",
    }
    assert (info["input_name"], info["exception_type"], info["linked_node"]) == ("images", "KeyError", ["1", 0])
    assert [calls(line) for line in info["traceback"]] == ["validate_inputs", "validate_inputs"]


RING = {"1": node("ImageInvert", image=["3", 0]), "3": node("ImageInvert", image=["1", 0])}


@pytest.mark.until("0.20")
@pytest.mark.of_the_wire
async def test_nodes_that_feed_each_other_are_refused_without_a_culprit(wire: Wire) -> None:
    answer = await wire.offer(picture() | RING)
    assert_refused(answer, "prompt_outputs_failed_validation")
    assert (answer.body["error"]["details"], answer.body["node_errors"]) == ("", {})


@pytest.mark.since("0.20")
async def test_each_node_of_a_cycle_is_blamed(wire: Wire) -> None:
    answer = await wire.offer(picture() | RING)
    assert_refused(answer, "prompt_outputs_failed_validation")
    assert answer.body["error"]["details"] == ""
    for node_id in ("1", "3"):
        error = {
            "type": "dependency_cycle",
            "message": "Dependency cycle detected",
            "details": "1 (ImageInvert) -> 3 (ImageInvert) -> 1 (ImageInvert)",
            "extra_info": {"node_id": node_id, "cycle_nodes": ["1", "3"]},
        }
        report = {"errors": [error], "dependent_outputs": ["2"], "class_type": "ImageInvert"}
        assert answer.body["node_errors"][node_id] == report
    assert answer.body["node_errors"].keys() == {"1", "3"}


@pytest.mark.of_the_wire
async def test_a_node_that_feeds_itself_tells_its_other_errors_too(wire: Wire) -> None:
    blend = node("ImageBlend", image1=["1", 0], image2=["1", 0], blend_factor=9, blend_mode="normal")
    errors = (await wire.offer(picture() | {"1": blend})).body["node_errors"]["1"]["errors"]
    cycle = ["dependency_cycle"] if wire.since("0.20") else []
    assert [error["type"] for error in errors] == [*cycle, "value_bigger_than_max"]


async def test_outputs_that_are_valid_run_without_the_others(wire: Wire) -> None:
    graph = two_pictures()
    graph["1"]["inputs"]["width"] = 0
    answer = await wire.offer(graph)
    assert answer.status == 200
    assert answer.body["node_errors"].keys() == {"1"}
    assert answer.body["node_errors"]["1"]["dependent_outputs"] == ["2"]
    entry = await wire.finished(answer.body["prompt_id"])
    assert entry["status"]["status_str"] == "success"
    assert (entry["outputs"].keys(), entry["prompt"][4]) == ({"4"}, ["4"])


async def test_the_outputs_that_depend_on_a_bad_node_are_named(wire: Wire) -> None:
    graph = edited("1", width=0)
    graph["3"] = node("PreviewImage", images=["1", 0])
    answer = await wire.offer(graph)
    assert sorted(answer.body["node_errors"]["1"]["dependent_outputs"]) == ["2", "3"]


async def test_a_bad_node_is_blamed_for_every_bad_output_looked_at_after_it(wire: Wire) -> None:
    graph = two_pictures()
    graph["1"]["inputs"]["width"] = graph["3"]["inputs"]["width"] = 0
    errors = (await wire.offer(graph)).body["node_errors"]
    blamed = {node_id: report["dependent_outputs"] for node_id, report in errors.items()}
    assert blamed in [{"1": ["2", "4"], "3": ["4"]}, {"1": ["2"], "3": ["4", "2"]}]

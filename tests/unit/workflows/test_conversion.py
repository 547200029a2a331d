"""The UI format becomes what ComfyUI's page sends: each rule with the smallest workflow that shows it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from comfyui_agent.workflows.conversion import convert
from comfyui_agent.workflows.errors import BadWorkflow, NotConvertible, WorkflowError
from support.editor_workflows import DEFINITIONS, definition, document, node, slot, subgraph


def inputs_of(nodes: Any, *links: Any, **more: Any) -> dict[str, dict[str, Any]]:
    found = convert(document(nodes, *links, **more), DEFINITIONS, choose=lambda options: options[-1])
    return {key: entry["inputs"] for key, entry in found.items()}


FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the value behind a seed is the page's own": (
        node(1, "Sampler", values=[7, "randomize", "b"]), {"seed": 7, "mode": "b"}),
    "fields beyond the values have their default": (node(1, "Sampler", values=[7]), {"seed": 7, "mode": "a"}),
    "no values at all": (node(1, "Sampler"), {"seed": 0, "mode": "a"}),
    "values by name": (node(1, "Sampler", values={"mode": "b", "seed": 3, "x": 1}), {"seed": 3, "mode": "b"}),
    "a choice that is null is the first": (node(1, "Sampler", values=[7, "fixed", None]), {"seed": 7, "mode": "a"}),
    "an upload button is not sent": (node(1, "LoadImage", values=["my.png", "image"]), {"image": "my.png"}),
    "a converted field keeps its value": (
        node(1, "Sampler", slot("seed", "INT", is_field=True), values=[7, "fixed", "b"]), {"seed": 7, "mode": "b"}),
    "older files have a value for connections": (node(1, "Forced", values=[0, 30]), {"steps": 30}),
    "newer ones have none": (node(1, "Forced", values=[30]), {"steps": 30}),
    "lists are wrapped": (
        node(1, "Boxes", values=[["#fff"], "z"]), {"boxes": {"__value__": ["#fff"]}, "after": "z"}),
    "comments go, choices are made": (
        node(1, "Source", values=["a // b\n{c|{d|e}} /* f */ \\{g\\}"]), {"text": "a \ne  {g}"}),
    "an open comment is text": (node(1, "Source", values=["a /* b"]), {"text": "a /* b"}),
    "a dynamic combo brings its fields": (
        node(1, "SaveVideo", values=["mp4", "h264", 9]),
        {"format": "mp4", "format.codec": "h264", "format.codec.quality": 9}),
    "its other choice brings others": (
        node(1, "SaveVideo", values=["gif", False]), {"format": "gif", "format.loop": False}),
    "and none": (node(1, "SaveVideo", values=["mp4", "copy"]), {"format": "mp4", "format.codec": "copy"}),
    "a custom combo sends the place of its choice": (
        node(1, "CustomCombo", values=["y", 0, "x", "y", ""]), {"choice": "y", "index": 1}),
}  # fmt: skip


@pytest.mark.parametrize("rule", FIELDS)
def test_fields(rule: str) -> None:
    given, expected = FIELDS[rule]
    assert inputs_of([given]) == {"1": expected}


def test_a_file_name_refers_to_fields_of_nodes() -> None:
    names = "%Source.text%/%My title.seed%/%width%/%Gone.x%"
    nodes = [node(1, "Source", values=["a:b"]), node(2, "Sampler", values=[7], title="My title")]
    found = inputs_of([*nodes, node(3, "SaveImage", values=[names])])
    assert found["3"]["filename_prefix"] == "a_b/7/%width%/%Gone.x%"


def test_a_node_is_called_as_its_user_called_it_or_as_its_class() -> None:
    definitions = {"A": {**definition({}), "display_name": "The A"}, "B": definition({})}
    found = convert(document([node(1, "A", title="Mine"), node(2, "A"), node(3, "B")]), definitions)
    assert [entry["_meta"]["title"] for entry in found.values()] == ["Mine", "The A", "B"]
    assert [entry["class_type"] for entry in found.values()] == ["A", "A", "B"]


SOURCE, SINK = node(1, "Source", values=["t"]), node(9, "SaveImage", slot("images", link=2), values=["p"])
LINKS: dict[str, tuple[Any, Any]] = {
    "a link": ([SOURCE, SINK], ["1", 0]),
    "a reroute is followed": ([SOURCE, node(5, "Reroute", slot("", "*", 1)), SINK], ["1", 0]),
    "notes are dropped": ([SOURCE, node(5, "Note", values=["x"]), SINK], None),
    "a muted node is dropped with its link": ([SOURCE, node(5, "Sampler", slot("image", link=1), mode=2), SINK], None),
    "a bypassed node passes on what fits": (
        [SOURCE, node(5, "Mixed", slot("mask", "MASK"), slot("image", link=1), mode=4), SINK], ["1", 0]),
    "a bypassed node without anything that fits": ([SOURCE, node(5, "LoadImage", mode=4), SINK], None),
    "an unknown node that is bypassed": (
        [SOURCE, {**node(5, "Gone", slot("x", link=1), mode=4), "outputs": [{"name": "y", "type": "IMAGE"}]}, SINK],
        ["1", 0]),
}  # fmt: skip


@pytest.mark.parametrize("rule", LINKS)
def test_links(rule: str) -> None:
    nodes, expected = LINKS[rule]
    links = [(2, 1, 0, 9)] if len(nodes) == 2 else [(1, 1, 0, 5), (2, 5, 0, 9)]
    assert inputs_of(nodes, *links)["9"].get("images") == expected


def test_a_reroute_has_no_output_before_its_first() -> None:
    assert "images" not in inputs_of([node(5, "Reroute", slot("", "*")), SINK], (2, 5, -1, 9))["9"]


def test_links_may_be_objects() -> None:
    link = {"id": 2, "origin_id": 1, "origin_slot": 0, "target_id": 9, "target_slot": 0, "type": "IMAGE"}
    found = convert({"version": 1, "nodes": [SOURCE, SINK], "links": [link]}, DEFINITIONS)
    assert found["9"]["inputs"]["images"] == ["1", 0]


def test_a_primitive_gives_its_value_to_the_fields_that_it_feeds() -> None:
    sampler = node(2, "Sampler", slot("seed", "INT", 1, is_field=True), values=[7, "fixed", "b"])
    assert inputs_of([node(1, "PrimitiveNode", values=[41, "fixed"]), sampler], (1, 1, 0, 2)) == {
        "2": {"seed": 41, "mode": "b"}
    }


def test_autogrow_inputs_and_those_below_a_combo_keep_their_links() -> None:
    batch = node(2, "Batch", slot("images.image0", link=1), slot("images.image1", link=3), slot("images.image2"))
    film = node(3, "SaveVideo", slot("format.cover", link=4), values=["mp4", "copy"])
    other = node(4, "SaveVideo", slot("format.cover", link=5), values=["gif", True])
    found = inputs_of([SOURCE, batch, film, other], (1, 1, 0, 2), (3, 1, 0, 2), (4, 1, 0, 3), (5, 1, 0, 4))
    assert found["2"] == {"images.image0": ["1", 0], "images.image1": ["1", 0]}
    assert found["3"]["format.cover"] == ["1", 0]
    assert "format.cover" not in found["4"]  # its choice has no cover


def nested(**host: Any) -> dict[str, Any]:
    """A source (1), a subgraph (76) with a sampler (39) in a subgraph (40), and a sink (9)."""
    inner = subgraph("inner", [node(39, "Sampler", slot("image", link=1), slot("seed", "INT", 3, is_field=True),
                     values=[7, "fixed", "b"])], (1, -10, 0, 39), (2, 39, 0, -20), (3, -10, 1, 39),
                     inputs=[("image", [1]), ("seed", [3])], outputs=[("image", [2])])  # fmt: skip
    outer = subgraph("outer", [node(40, "inner", slot("image", link=1), slot("seed", link=3), values=[8])],
                     (1, -10, 0, 40), (2, 40, 0, -20), (3, -10, 1, 40),
                     inputs=[("image", [1]), ("seed", [3])], outputs=[("image", [2])])  # fmt: skip
    nodes = [SOURCE, node(76, "outer", slot("image", link=1), slot("seed"), **host), SINK]
    return document(nodes, (1, 1, 0, 76), (2, 76, 0, 9), definitions={"subgraphs": [outer, inner]})


def test_nodes_in_subgraphs_have_the_ids_of_their_way_there() -> None:
    found = convert(nested(values=[99]), DEFINITIONS)
    assert list(found) == ["1", "76:40:39", "9"]
    assert found["76:40:39"]["inputs"] == {"image": ["1", 0], "seed": 99, "mode": "b"}
    assert found["9"]["inputs"]["images"] == ["76:40:39", 0]


def test_without_a_value_of_its_own_a_subgraph_node_takes_the_one_inside() -> None:
    assert convert(nested(), DEFINITIONS)["76:40:39"]["inputs"]["seed"] == 8


@pytest.mark.parametrize(("mode", "images"), [(2, None), (4, ["1", 0])])
def test_a_subgraph_node_that_is_off(mode: int, images: Any) -> None:
    found = convert(nested(mode=mode), DEFINITIONS)
    assert list(found) == ["1", "9"]
    assert found["9"]["inputs"].get("images") == images


@pytest.mark.parametrize(("version", "mode"), [("0.33.0", "b"), ("0.7.0", "a"), ("odd", "b")])
def test_a_promoted_field_that_no_end_leads_to(version: str, mode: str) -> None:
    """Newer pages send the value of the subgraph node, older ones the value inside."""
    inner = subgraph("s", [node(39, "Sampler", slot("mode", "COMBO", is_field=True), values=[7, "fixed", "a"])])
    host = node(76, "s", values=["b"], properties={"proxyWidgets": [["39", "mode"]]})
    nodes = document([host], definitions={"subgraphs": [inner]})
    assert convert(nodes, DEFINITIONS, version)["76:39"]["inputs"]["mode"] == mode


def test_newer_pages_number_nodes_of_subgraphs_anew_if_the_id_is_taken() -> None:
    inner = subgraph("s", [node(1, "Sampler"), node(2, "Sampler", slot("image", link=1))], (1, 1, 0, 2))
    nodes = document([SOURCE, node(7, "s")], definitions={"subgraphs": [inner]})
    new, old = convert(nodes, DEFINITIONS), convert(nodes, DEFINITIONS, "0.7.0")
    assert list(new) == ["1", "7:8", "7:2"]
    assert list(old) == ["1", "7:1", "7:2"]
    assert new["7:2"]["inputs"]["image"] == ["7:8", 0]


@pytest.mark.parametrize("prefix", ["workflow/", "workflow>"])
def test_a_group_node_is_its_nodes(prefix: str) -> None:
    inside = [node(0, "Sampler", slot("image")), node(0, "Sampler", slot("image", link=3))]
    group = {"nodes": inside, "links": [[0, 0, 1, 0, 12, "IMAGE"]], "external": []}
    host = node(5, f"{prefix}two", slot("image", link=1), values=[1, "fixed", "b", 2, "fixed", "a"])
    found = inputs_of([SOURCE, host, SINK], (1, 1, 0, 5), (2, 5, 0, 9), extra={"groupNodes": {"two": group}})
    assert found["5:0"] == {"image": ["1", 0], "seed": 1, "mode": "b"}
    assert found["5:1"] == {"image": ["5:0", 0], "seed": 2, "mode": "a"}
    assert found["9"]["images"] == ["5:1", 0]


REFUSED: dict[str, tuple[list[Any], str]] = {
    "unknown": ([node(4, "Gone", title="My node")], r"node 4 \(My node\): the server has no node Gone"),
    "photograph": ([node(4, "Webcam")], "the page makes the value of image when it queues"),
    "date": ([node(4, "SaveImage", values=["%date:yyyy%"])], "the page writes the date"),
    "no link": ([node(4, "SaveImage", slot("images", link=8))], "a link that is not there"),
    "odd group": ([node(4, "workflow/x")], "its group is unusual"),
    "deep choices": ([node(4, "Source", values=["{" * 99])], "nested more than"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_sure_is_refused_with_node_title_and_reason(case: str) -> None:
    nodes, says = REFUSED[case]
    with pytest.raises(NotConvertible, match=says) as caught:
        convert(document(nodes, extra={"groupNodes": {"y": {}}}), DEFINITIONS)
    assert str(caught.value).startswith("node 4 (")
    assert "\n" not in str(caught.value)


def circle_of(kind: str, **more: Any) -> Any:
    return document([node(1, kind, slot("image", link=1), **more), SINK], (1, 1, 0, 1), (2, 1, 0, 9))


def test_circles_end() -> None:
    inner = [subgraph("a", [node(1, "b")]), subgraph("b", [node(1, "a")])]
    for given in [
        circle_of("Reroute"),
        circle_of("Sampler", mode=4),
        document([node(1, "a")], definitions={"subgraphs": inner}),
    ]:
        with pytest.raises(WorkflowError, match=r"circle|contains itself"):
            convert(given, DEFINITIONS)


def test_subgraphs_that_double_at_each_level_are_not_counted_out() -> None:
    levels = [subgraph(str(at), [node(1, str(at + 1)), node(2, str(at + 1))]) for at in range(40)]
    levels.append(subgraph("40", [node(1, "Source")]))
    with pytest.raises(BadWorkflow, match="more than 20,000 nodes"):
        convert(document([node(1, "0")], definitions={"subgraphs": levels}), DEFINITIONS)


def test_five_thousand_nodes_take_seconds_at_most() -> None:
    nodes = [node(1, "Source")] + [node(at, "Sampler", slot("image", link=at)) for at in range(2, 5_000)]
    begun = time.process_time()
    found = inputs_of(nodes, *((at, at - 1, 0, at) for at in range(2, 5_000)))
    assert found["4999"]["image"] == ["4998", 0]
    assert time.process_time() - begun < 10


SHAPES: list[Any] = [
    None, [], 3, {"nodes": 3}, {"nodes": [3]}, {"nodes": [{"id": None, "type": "A"}]}, {"nodes": [{"id": 1}]},
    {"nodes": [{"id": 1, "type": "A"}] * 2}, {"nodes": [], "links": [[1]]}, {"nodes": [], "links": [[1, 2, "x", 3, 0]]},
    {"nodes": [{"id": 1, "type": "A", "inputs": [3]}]}, {"nodes": [], "definitions": 3},
    {"nodes": [], "definitions": {"subgraphs": [{"name": 3}]}},
    {"nodes": [{"id": 1, "type": "A", "widgets_values": 3}]},
    {"nodes": [{"id": 1, "type": "A", "inputs": [{"name": "a", "link": "x"}]}]},
]  # fmt: skip


@pytest.mark.parametrize("given", SHAPES, ids=str)
def test_wrong_shapes_are_one_line(given: Any) -> None:
    with pytest.raises(BadWorkflow) as caught:
        convert(given, DEFINITIONS)
    assert "\n" not in str(caught.value)

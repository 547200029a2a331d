"""Whatever a document or a file holds: a graph or one of the package's errors, and nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.workflows.conversion import convert
from comfyui_agent.workflows.errors import WorkflowError
from comfyui_agent.workflows.workflow_file import find_workflow
from support.any_json import ANY_JSON
from support.editor_workflows import DEFINITIONS

IDS = st.integers(-20, 4) | st.sampled_from(["1", "s", None, 2.5])
KINDS = st.sampled_from([*DEFINITIONS, "Reroute", "PrimitiveNode", "Note", "s", "workflow/g", "Gone"])
NAMES = st.sampled_from(["image", "seed", "text", "format", "format.codec", "images.image0", "", "mode"])


def objects(**fields: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=fields) | ANY_JSON


SLOTS = st.lists(
    objects(name=NAMES, type=ANY_JSON, link=IDS, links=st.lists(IDS, max_size=2), widget=objects(name=NAMES)),
    max_size=3,
)
NODES = st.lists(
    st.fixed_dictionaries(
        {"id": IDS, "type": KINDS},
        optional={
            "mode": st.sampled_from([0, 2, 4, "x"]),
            "inputs": SLOTS,
            "outputs": SLOTS,
            "widgets_values": st.lists(ANY_JSON | st.sampled_from(["mp4", "h264"]), max_size=4) | ANY_JSON,
            "properties": objects(proxyWidgets=st.lists(st.lists(st.sampled_from(["1", "-1", "seed"]), max_size=3))),
        },
    ),
    max_size=4,
)
LINKS = st.lists(st.lists(IDS, min_size=5, max_size=6), max_size=4)
ENDS = st.lists(objects(name=NAMES, type=NAMES, linkIds=st.lists(IDS, max_size=2)), max_size=2)
SUBGRAPHS = st.lists(
    objects(id=st.just("s"), name=NAMES, nodes=NODES, links=LINKS, inputs=ENDS, outputs=ENDS), max_size=2
)
GROUPS = objects(g=objects(nodes=NODES, links=LINKS, external=LINKS, config=ANY_JSON))
DOCUMENTS = st.fixed_dictionaries(
    {"nodes": NODES, "links": LINKS},
    optional={"definitions": objects(subgraphs=SUBGRAPHS), "extra": objects(groupNodes=GROUPS)},
)
SPECS = st.dictionaries(NAMES, st.lists(ANY_JSON | st.sampled_from(["INT", "COMBO", "COMFY_AUTOGROW_V3"]), max_size=2))
SERVERS = st.just(DEFINITIONS) | st.dictionaries(
    KINDS, objects(input=objects(required=SPECS, optional=ANY_JSON), output=ANY_JSON, input_order=ANY_JSON)
)


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS | ANY_JSON, SERVERS, st.sampled_from(["0.7.0", "0.33.0"]))
def test_a_document_gives_a_graph_or_an_error(document: Any, definitions: Any, version: str) -> None:
    said, found = "", dict[str, Any]()
    try:
        found = convert(document, definitions, version)
    except WorkflowError as error:
        said = str(error)
    assert "\n" not in said
    assert all(isinstance(entry["inputs"], dict) and "class_type" in entry for entry in found.values())


HEADS = st.sampled_from(
    [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe1", b"RIFF\0\0\0\0WEBP", b"\0\0\0\x08ftyp", b"\x1aE\xdf\xa3", b"fLaC"]
)
PARTS = st.lists(
    st.binary(max_size=12)
    | st.sampled_from([b"tEXt", b"zTXt", b"iTXt", b"prompt\0", b"EXIF", b"II*\0\x08\0\0\0", b"moov", b"meta", b"ilst"]),
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(HEADS, PARTS)
def test_a_file_gives_a_workflow_or_an_error(head: bytes, parts: list[bytes]) -> None:
    said = ""
    try:
        find_workflow(head + b"".join(parts))
    except WorkflowError as error:
        said = str(error)
    assert "\n" not in said

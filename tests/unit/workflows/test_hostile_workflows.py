"""A small file cannot make its conversion take long, or much memory: one line says that it is too much."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import pytest

from comfyui_agent.workflows.conversion import convert
from comfyui_agent.workflows.errors import BadWorkflow
from support.editor_workflows import DEFINITIONS, definition, document, node, slot, subgraph
from support.sampling import some

KNOWN = {**DEFINITIONS, "Plain": definition({}, "IMAGE")}
SEEDED = node(1, "Sampler", slot("image"), slot("seed", "INT", 1, is_field=True), values=[1, "a"])
PROXIES = {"proxyWidgets": [[str(number), "seed"] for number in range(1, 500)]}


def host(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "type": "inner"} | more


def nested(inner: dict[str, Any], hosts: int, **more: Any) -> dict[str, Any]:
    return document([host(number, **more) for number in range(1, hosts)], definitions={"subgraphs": [inner]})


def repeated(inner: dict[str, Any]) -> dict[str, Any]:
    return nested(subgraph("inner", [inner]), 9_000)


def grouped() -> dict[str, Any]:
    group = {"nodes": [{"type": "Plain"}] * 3_000, "links": [], "external": []}
    return document([host(number, type="workflow/g") for number in range(1, 500)], extra={"groupNodes": {"g": group}})


def crossed() -> dict[str, Any]:
    primitives = [node(number, "PrimitiveNode", values=[1]) for number in range(1_000)]
    samplers = [
        node(2_000 + at, "Sampler", *[slot(f"s{each}", "INT", 10_000 + at * 1_000 + each) for each in range(1_000)])
        for at in range(30)
    ]
    links = [(10_000 + each, each % 1_000, 0, 2_000 + each // 1_000) for each in range(30_000)]
    return document([*primitives, *samplers], *links)


MANY_ENDS = subgraph("inner", [SEEDED], inputs=[(f"e{number}", [1] * 5) for number in range(2_000)])
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "a subgraph of many inputs, used often": lambda: nested(MANY_ENDS, 10_000),
    "an input that ends at many links": lambda: nested(
        subgraph("inner", [SEEDED], inputs=[("e", [99] * 100_000)]), 5_000
    ),
    "promoted fields of all nodes": lambda: nested(
        subgraph("inner", [{**SEEDED, "id": number} for number in range(1, 500)]), 300, properties=PROXIES
    ),
    "a long text, used often": lambda: repeated(node(1, "Source", values=["a" * 1_000_000])),
    "a long list, used often": lambda: repeated(node(1, "Boxes", values=[[[1, 2]] * 100_000, "x"])),
    "a group of many nodes, used often": grouped,
    "file names that refer to each other": lambda: document(
        [node(number, "SaveImage", slot("images"), values=["%a.b%" * 700]) for number in range(5_000)]
    ),
    "primitive nodes that feed everything": crossed,
}


def most_memory() -> int:
    """The most that this process has had until now, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("case", some(list(CASES), 2))
def test_it_is_refused_within_seconds_and_little_memory(case: str) -> None:
    given, begun, before = CASES[case](), time.process_time(), most_memory()
    with pytest.raises(BadWorkflow, match=r"connected in too many ways|it would have more than 33,554,432 bytes"):
        convert(given, KNOWN)
    assert time.process_time() - begun < 20
    assert most_memory() - before < 600 * 1024**2

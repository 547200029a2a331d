"""What a server lacks for a job, in words, and what all of them lack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.needs import GIB, Needs, missing_for, needs_of_template


def needing(model: str, memory_over: int | None = None) -> Needs:
    graph = {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": model}},
        "2": {"class_type": "Upscale", "inputs": {"image": ["1", 0]}},
    }
    return replace(needs_of_template(Template.of(graph), {}), memory_over=memory_over)


def server(*models: str, nodes: tuple[str, ...] = ("Upscale",)) -> dict[str, dict[str, list[str]]]:
    return {"CheckpointLoaderSimple": {"ckpt_name": list(models)}, **{name: {} for name in nodes}}


@pytest.mark.parametrize(
    ("known", "offered", "capacity", "words"),
    [
        (needing("a.safetensors"), server("a.safetensors"), None, ()),
        (needing("auto"), server("b.safetensors"), None, ()),
        (needing("auto"), server(), None, ("model auto for CheckpointLoaderSimple",)),
        (needing("a.safetensors"), server("b.safetensors"), None, ("model a.safetensors for CheckpointLoaderSimple",)),
        (needing("a.safetensors"), server("a.safetensors", nodes=()), None, ("node Upscale",)),
        (needing("a.safetensors"), {"CheckpointLoaderSimple": {}, "Upscale": {}}, None, ()),
        (needing("a.safetensors", 8 * GIB), server("a.safetensors"), 24 * GIB, ()),
        (
            needing("a.safetensors", 24 * GIB),
            server("a.safetensors"),
            24 * GIB,
            ("memory: 24.0 GB, and more than 24.0 GB is needed",),
        ),
    ],
)
def test_what_a_server_lacks(
    known: Needs, offered: dict[str, dict[str, list[str]]], capacity: int | None, words: tuple[str, ...]
) -> None:
    assert known.lacks(offered, capacity) == words


def test_what_no_server_has_is_named_once_with_where_it_was_looked_for() -> None:
    both = {"http://one:8188": server("a.safetensors"), "http://two:8188": server("b.safetensors")}
    assert missing_for([needing("a.safetensors"), needing("b.safetensors")], both) == ""
    found = missing_for([needing("a.safetensors"), needing("c.safetensors"), needing("d.safetensors")], both)
    names = "model c.safetensors for CheckpointLoaderSimple, model d.safetensors for CheckpointLoaderSimple"
    assert found == f"no server has {names}; looked for at one:8188, two:8188"
    assert missing_for([needing("c.safetensors")], {}) == "", "nobody was asked"

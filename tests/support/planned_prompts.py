"""Prompts with an iterator, and their plans."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from comfyui_agent.nodes.core.prompt_rewriting import BATCH, INDEX, TOTAL, VALUES, Plan, plan_of

Prompt = dict[str, Any]
MARKS = {BATCH, INDEX, TOTAL, VALUES}
BATCH_ID = "batch_0a1b2c3d"


def parameter(place: str = "3.seed", values: Any = "1,2", name: Any = "", type_: Any = "AUTO") -> Prompt:
    node_id, _, input_name = place.rpartition(".")
    inputs = {"name": name, "type": type_, "values": values, "node_id": node_id, "input_name": input_name}
    return {"class_type": "WIParameter", "inputs": inputs}


def graph(*parameters: Prompt, mode: Any = "matrix", **more: Any) -> Prompt:
    """A sampler whose picture is saved and shown, and an iterator, 20, with parameters 101, 102 and so on."""
    sampler = {
        "seed": 5,
        "steps": 20,
        "cfg": 8.0,
        "sampler_name": "euler",
        "tiled": False,
        "model": ["4", 0],
        "pair": [["4", 0], 1, 2],
    }
    prompt: Prompt = {
        "3": {"class_type": "KSampler", "inputs": sampler, "_meta": {"title": "Sampler"}},
        "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "v1.safetensors"}},
        "20": {"class_type": "WIIterator", "inputs": {"enabled": True, "mode": mode, "batch_name": "cats", **more}},
        "30": {
            "class_type": "WISaveImage",
            "inputs": {"images": ["3", 0], "filename_prefix": "E3/a", "iterator": ["20", 0]},
        },
        "40": {"class_type": "WIGridCompositor", "inputs": {"images": ["3", 0], "iterator": ["20", 0]}},
    }
    for number, node in enumerate(parameters, start=1):
        prompt[str(100 + number)] = node
        prompt["20"]["inputs"][f"param_{number}"] = [str(100 + number), 0]
    return prompt


def declares(class_type: str, input_name: str) -> bool:
    return (class_type, input_name) == ("KSampler", "denoise")


def asked(document: Any, folder: Path | None = None) -> tuple[Plan | None, list[str]]:
    """The plan of a request, and the warnings. Planning changes nothing."""
    before = copy.deepcopy(document)
    warnings: list[str] = []
    plan = plan_of(document, declares, lambda: folder, warnings.append)
    assert document == before
    return plan, warnings


def plan_for(prompt: Prompt, **more: Any) -> Plan:
    plan, warnings = asked({"prompt": prompt, **more})
    assert warnings == []
    assert plan is not None
    return plan


def axes(plan: Plan) -> dict[str, list[Any]]:
    return {axis.name: list(axis.values) for axis in plan.combinations.axes}


def refusal(prompt: Prompt, **more: Any) -> str:
    """The first warning of a prompt that makes no batch."""
    plan, warnings = asked({"prompt": prompt, **more})
    assert plan is None
    assert "the prompt runs once, as it is" in warnings[-1]
    return warnings[0]


# What is asked for.

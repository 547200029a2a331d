"""Whether a server can run a job: its nodes, models and memory, against what the job needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from comfyui_agent.domain.needs import AUTO, KnownNeeds, ModelInput

BIGGER = 1.05
"""So much more memory counts as more."""
GIB = 1024**3

Offered = Callable[[str], Mapping[str, Collection[str]] | None]
"""The choices of a node class at a server, by input. None if the server does not have the class."""


def lacks(known: KnownNeeds, offered: Offered, capacity: int | None = None) -> tuple[str, ...]:
    """What a server lacks for a job, in words. `capacity` is the memory that one prompt could have there."""
    classes = {name: offered(name) for name in known.needs.classes}
    found = [f"node {name}" for name, choices in classes.items() if choices is None]
    found += [
        f"model {model.value} for {model.class_type}"
        for model in known.needs.models
        if not _is_offered(model, classes.get(model.class_type))
    ]
    if is_too_small(capacity, known.memory_over):
        found.append(f"memory: {gigabytes(capacity)}, and more than {gigabytes(known.memory_over)} is needed")
    return tuple(found)


def missing_everywhere(found: Mapping[str, Sequence[str]]) -> str:
    """What all servers lack for a job, and where that was looked for. Empty if one lacks nothing.

    `found` is what each server lacks, by its name.
    """
    if not found or not all(found.values()):
        return ""
    missing = dict.fromkeys(each for lacks in found.values() for each in lacks)
    return f"no server has {', '.join(missing)}; looked for at {', '.join(found)}"


def is_too_small(capacity: int | None, memory_over: int | None) -> bool:
    """Whether a job ran out of memory where there was as much."""
    return capacity is not None and memory_over is not None and capacity < memory_over * BIGGER


def gigabytes(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / GIB:.1f} GB"


def _is_offered(model: ModelInput, choices: Mapping[str, Collection[str]] | None) -> bool:
    offered = None if choices is None else choices.get(model.name)
    if offered is None:
        return True  # it takes any text, or there is no such node
    return model.value in offered or (model.value == AUTO and bool(offered))

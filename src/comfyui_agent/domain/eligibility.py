"""Whether a server can run a job: its nodes, models and memory, against what the job needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from comfyui_agent.domain.needs import AUTO, ModelInput, Needs
from comfyui_agent.domain.texts import listed

BIGGER = 1.05
"""So much more memory counts as more."""
GIB = 1024**3

Offered = Mapping[str, Mapping[str, Collection[str]]]
"""The choices at a server, by node class and input. Classes that it does not have are missing."""


def lacks(needs: Needs, offered: Offered, capacity: int | None = None) -> tuple[str, ...]:
    """What a server lacks for a job, in words. `capacity` is the memory that one prompt could have there."""
    found = [f"node {name}" for name in needs.classes if name not in offered]
    found += [
        f"model {model.value} for {model.class_type}"
        for model in needs.models
        if not _is_offered(model, offered.get(model.class_type, {}))
    ]
    if is_too_small(capacity, needs.memory_over):
        found.append(f"memory: {gigabytes(capacity)}, and more than {gigabytes(needs.memory_over)} is needed")
    return tuple(found)


def missing_everywhere(found: Mapping[str, Sequence[str]]) -> str:
    """What all servers lack for a job, and where that was looked for. Empty if one lacks nothing.

    `found` is what each server lacks, by its address.
    """
    if not found or not all(found.values()):
        return ""
    missing = list(dict.fromkeys(each for lacks in found.values() for each in lacks))
    places = ", ".join(each.partition("://")[2] for each in found)
    return f"no server has {listed(missing)}; looked for at {places}"


def missing_for(needs: Iterable[Needs], offers: Mapping[str, Offered]) -> str:
    """What some of these needs lack at all servers. `offers` is what each server has, by its address."""
    found = [{address: lacks(each, offered) for address, offered in offers.items()} for each in needs]
    unmet = [each for each in found if all(each.values())]
    return missing_everywhere({address: [lack for each in unmet for lack in each[address]] for address in offers})


def is_too_small(capacity: int | None, memory_over: int | None) -> bool:
    """Whether a job ran out of memory where there was as much."""
    return capacity is not None and memory_over is not None and capacity < memory_over * BIGGER


def gigabytes(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / GIB:.1f} GB"


def _is_offered(model: ModelInput, choices: Mapping[str, Collection[str]]) -> bool:
    offered = choices.get(model.name)
    if offered is None:
        return True  # it takes any text, or there is no such node
    return model.value in offered or (model.value == AUTO and bool(offered))

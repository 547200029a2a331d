"""Why two load tests may not be comparable, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.side import Side, as_words

MOST_FAILED = 0.1
LOAD = {
    "levels": "the load (levels)",
    "concurrency": "the concurrency",
    "rate": "the rate",
    "books": "the books at once",
    "pages": "the pages of a book",
    "parallel_pages": "parallel_pages",
    "arrivals": "the arrivals",
    "same_seeds": "same_seeds",
}
NOT_COMPARED = {*LOAD, "mode", "seed", "server", "servers", "output", "baseline", "workflow"}
VERSIONS = {"comfyui_version": "the ComfyUI version", "pytorch": "the PyTorch version", "driver": "the driver"}


def grave_differences(a: Side, b: Side) -> list[str]:
    """Why the two measured different things."""
    found = []
    first, second = a.report.environment, b.report.environment
    if first.workflow.sha256 != second.workflow.sha256:
        names = [each.workflow.name or "an unnamed one" for each in (first, second)]
        found.append(f"The workflow differs: {names[0]} in A, {names[1]} in B; they cannot be compared.")
    modes = [each.report.summary.mode or "unknown" for each in (a, b)]
    if modes[0] != modes[1]:
        found.append(f"The mode differs: {modes[0]} in A, {modes[1]} in B.")
    return found + _differing(first.parameters, second.parameters, LOAD)


def other_differences(a: Side, b: Side) -> list[str]:
    """What else was not the same, and may explain a difference."""
    first, second = a.report.environment, b.report.environment
    others = sorted({*first.parameters, *second.parameters} - NOT_COMPARED)
    found = _differing(first.parameters, second.parameters, {key: f"the parameter {key}" for key in others})
    if a.completed.total != b.completed.total:
        found.append(f"The number of jobs differs: {a.completed.total} in A, {b.completed.total} in B.")
    versions = [{key: each.versions(key) for key in VERSIONS} for each in (a, b)]
    found += _differing(versions[0], versions[1], VERSIONS)
    found += _differing({"devices": a.devices}, {"devices": b.devices}, {"devices": "the graphics card"})
    return found + _differing({"e3": first.e3}, {"e3": second.e3}, {"e3": "the version of E3"})


def weaknesses(a: Side, b: Side) -> list[str]:
    """What either run lacks."""
    found = []
    for name, side in (("A", a), ("B", b)):
        failed, total = side.completed.total - side.completed.hits, side.completed.total
        if side.report.is_partial:
            found.append(f"{name} was stopped before its end: its slowest jobs may be missing.")
        if side.cached.hits:
            found.append(f"{side.cached} answers of {name} came from the cache: left out of the times.")
        if failed > MOST_FAILED * total:
            found.append(f"{failed} of {counted(total, 'job')} of {name} failed: its times are of the rest.")
        if len(side.levels) > 1:
            found.append(f"{name} is a ramp of {len(side.levels)} levels: its times are a mixture of them all.")
    if a.report.summary.mode == b.report.summary.mode == "open":
        found.append("In an open loop throughput is what was sent, as long as the servers keep up.")
    return found


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    return [
        f"{name[0].upper()}{name[1:]} differs: {as_words(a.get(key))} in A, {as_words(b.get(key))} in B."
        for key, name in names.items()
        if a.get(key) != b.get(key)
    ]

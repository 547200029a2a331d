"""Why two load tests may not be comparable, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.comparison_side import Side, told

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
UNTOLD = {*LOAD, "mode", "seed", "server", "servers", "output", "baseline", "workflow"}
VERSIONS = {"comfyui_version": "the ComfyUI version", "pytorch": "the PyTorch version", "driver": "the driver"}


def grave_differences(a: Side, b: Side) -> list[str]:
    """Why the two measured different things."""
    found = []
    first, second = a.report, b.report
    if first.workflow.get("sha256") != second.workflow.get("sha256"):
        names = [str(each.workflow.get("name") or "an unnamed one") for each in (first, second)]
        found.append(f"The workflow differs: {names[0]} in A, {names[1]} in B; they cannot be compared.")
    if first.mode != second.mode:
        found.append(f"The mode differs: {first.mode or 'unknown'} in A, {second.mode or 'unknown'} in B.")
    return found + _differing(first.parameters, second.parameters, LOAD)


def other_differences(a: Side, b: Side) -> list[str]:
    """What else was not the same, and may be why they differ."""
    first, second = a.report, b.report
    others = sorted({*first.parameters, *second.parameters} - UNTOLD)
    found = _differing(first.parameters, second.parameters, {key: f"the parameter {key}" for key in others})
    if len(first.rows) != len(second.rows):
        found.append(f"The number of jobs differs: {len(first.rows)} in A, {len(second.rows)} in B.")
    versions = [{key: each.versions(key) for key in VERSIONS} for each in (a, b)]
    found += _differing(versions[0], versions[1], VERSIONS)
    found += _differing({"devices": a.devices}, {"devices": b.devices}, {"devices": "the graphics card"})
    return found + _differing(first.environment, second.environment, {"e3": "the version of E3"})


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
        if len(side.report.levels) > 1:
            found.append(f"{name} is a ramp of {len(side.report.levels)} levels: its times are a mixture of them all.")
    if a.report.mode == b.report.mode == "open":
        found.append("In an open loop throughput is what was sent, as long as the servers keep up.")
    return found


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    changed = [(words, a.get(key), b.get(key)) for key, words in names.items() if a.get(key) != b.get(key)]
    return [
        f"{words[0].upper()}{words[1:]} differs: {told(old)} in A, {told(new)} in B." for words, old, new in changed
    ]

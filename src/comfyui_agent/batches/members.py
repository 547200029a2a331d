"""The inputs of a batch's members: each with its settings and label, and the values that all of them share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job, Template
from comfyui_agent.domain.prompts import place
from comfyui_agent.domain.texts import bytes_of, json_text
from comfyui_agent.store.rows import parsed_object

WORTH_IT = 64 * 1024
"""Bytes. For less, every member stores all its values."""


def effective_inputs(job: Job, batch: Batch | None) -> dict[str, Any]:
    """The values by place in a job's prompt: its own, and those that its batch stores for all members."""
    shared = batch.metadata.get("shared") if batch else None
    values = shared.get(job.template_hash) if isinstance(shared, dict) else None
    return {**(values if isinstance(values, dict) else {}), **parsed_object(job.inputs)}


def settings_of(job: Job, batch: Batch) -> dict[str, Any]:
    """Its combination in a sweep, or the inputs given for it and its book."""
    metadata = parsed_object(job.metadata)
    for key in ("combination", "inputs"):
        if isinstance(metadata.get(key), dict):
            return dict(metadata[key])
    given, own = batch.metadata.get("inputs"), metadata.get("overrides")
    return {**given, **own} if isinstance(given, dict) and isinstance(own, dict) else {}


def label_of(job: Job, batch: Batch) -> str:
    """Its settings in one line, or its name if it has none."""
    return ", ".join(f"{name} = {value}" for name, value in settings_of(job, batch).items()) or job.config_name


@dataclass(frozen=True)
class Shared:
    """A template with the shared values in it. A member stores only the values that differ."""

    template: Template
    values: Mapping[str, Any]

    def own(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """The values by place that a member stores itself."""
        return {
            where: value
            for where, value in bound.items()
            if where not in self.values or _comparable(value) != _comparable(self.values[where])
        }

    def as_json(self) -> dict[str, Any]:
        """The shared values by template hash, for the metadata of the batch."""
        return {self.template.hash: dict(self.values)} if self.values else {}


def share(workflow: Workflow, values: Mapping[str, Any], members: int) -> Shared:
    """Put values into the workflow if that takes less room than a copy in every member."""
    if members < 2 or bytes_of(values) * members <= max(WORTH_IT, len(workflow.template.text)):
        return Shared(workflow.template, {})
    return Shared(Template.of(place(workflow.graph, values)), values)


def common(bound: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each place that all members have, the most frequent value, unless all differ."""
    found: dict[str, Any] = {}
    for where in bound[0]:
        values = [each[where] for each in bound if where in each]
        [(most, count)] = Counter(map(_comparable, values)).most_common(1)
        if count > 1 and len(values) == len(bound):
            found[where] = next(value for value in values if _comparable(value) == most)
    return found


def _comparable(value: Any) -> tuple[bool, str]:
    """A key that is equal for equal values only, where 1 and true differ. Long texts are not copied."""
    is_text = isinstance(value, str)
    return is_text, value if is_text else json_text(value)

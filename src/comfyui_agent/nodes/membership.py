"""What an iterator gives to the nodes behind it: the member that its prompt is. Runs on Python 3.9."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.domain.batches import member_name, slug
from comfyui_agent.nodes.core.prompt_rewriting import BATCH, INDEX, TOTAL, VALUES


@dataclass(frozen=True)
class Membership:
    """One prompt in a batch."""

    batch_id: str
    index: int
    total: int
    values: Mapping[str, Any] = field(default_factory=dict)

    def prefix(self, filename_prefix: str) -> str:
        """The prefix of its files: a folder for the batch, and a name with the number and the values."""
        digits = max(4, len(str(self.total)))
        name = member_name(f"{self.index + 1:0{digits}d}", self.values, list(self.values))
        return "/".join(part for part in (filename_prefix.rstrip("/"), self.batch_id, name) if part)


def membership_of(inputs: Mapping[str, Any]) -> Membership | None:
    """The membership that the inputs of an iterator are marked with; None without valid marks."""
    batch_id, index, total, values = (inputs.get(name) for name in (BATCH, INDEX, TOTAL, VALUES))
    is_marked = isinstance(batch_id, str) and isinstance(index, int) and isinstance(total, int)
    if not is_marked or not batch_id or batch_id != slug(str(batch_id), len(str(batch_id))):
        return None
    return Membership(str(batch_id), int(str(index)), int(str(total)), values if isinstance(values, Mapping) else {})

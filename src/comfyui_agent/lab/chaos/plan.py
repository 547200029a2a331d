"""The options of a chaos run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from comfyui_agent.domain.processes import module_command
from comfyui_agent.lab.payloads import Payload


@dataclass(frozen=True)
class ChaosPlan:
    """What is broken in front of which agent. Without a server a simulator stands in."""

    payload: Payload
    url: str | None = None
    start_command: tuple[str, ...] | None = None
    agent: Sequence[str] = field(default_factory=lambda: module_command("comfyui_agent", "run"))
    """The agent under test, as a command; `-C DIR` is added."""
    pages: int | None = None
    patience: float = 120.0
    """Seconds without any progress after which a scenario is given up."""
    is_quick: bool = False
    netem: str | None = None
    """A network device to lose packets on with `tc netem`, instead of the proxy."""

    @property
    def is_simulated(self) -> bool:
        return self.url is None

    def amount(self, quick: int, full: int) -> int:
        """How many pages a scenario renders."""
        return self.pages or (quick if self.is_quick else full)

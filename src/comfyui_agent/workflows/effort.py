"""How much work a conversion is: a small file can ask for a lot of it, by what its nodes have to do with each other."""

from __future__ import annotations

from comfyui_agent.workflows.errors import BadWorkflow

MOST_STEPS = 5_000_000
"""Some seconds, and some hundred megabytes. The largest workflows that people make take a twentieth."""
MOST_LETTERS = 32 * 1024 * 1024


class Effort:
    """What is left to be spent on one workflow."""

    def __init__(self) -> None:
        self._steps, self._letters = MOST_STEPS, MOST_LETTERS

    def spend(self, steps: int) -> None:
        """BadWorkflow once it is too much."""
        self._steps -= steps
        if self._steps < 0:
            raise BadWorkflow("its nodes and subgraphs are connected in too many ways to be converted")

    def write(self, letters: int) -> None:
        """BadWorkflow once the graph is too large."""
        self._letters -= letters
        if self._letters < 0:
            raise BadWorkflow(f"converted, it would have more than {MOST_LETTERS:,} bytes")

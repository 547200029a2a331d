"""What simulated nodes do. A class without a behaviour of its own gets the generic one."""

from __future__ import annotations

from comfyui_agent.sim.engine.behaviours import generic, images, sampling, saving
from comfyui_agent.sim.engine.values import BEHAVIOURS, Behaviour

__all__ = ["behaviour_of", "images", "sampling", "saving"]


def behaviour_of(class_type: str) -> Behaviour:
    return BEHAVIOURS.get(class_type, generic.anything)

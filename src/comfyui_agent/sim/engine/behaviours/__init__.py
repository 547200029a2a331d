"""What simulated nodes do. A class without a behaviour of its own gets the generic one."""

from __future__ import annotations

from comfyui_agent.sim.engine.behaviours import generic, images, models, sampling, saving
from comfyui_agent.sim.engine.node_run import Behaviour

BEHAVIOURS: dict[str, Behaviour] = {
    **models.BEHAVIOURS,
    **sampling.BEHAVIOURS,
    **images.BEHAVIOURS,
    **saving.BEHAVIOURS,
    **generic.BEHAVIOURS,
}


def behaviour_of(class_type: str) -> Behaviour:
    return BEHAVIOURS.get(class_type, generic.anything)

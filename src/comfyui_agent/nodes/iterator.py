"""The node that makes one prompt into a batch. Runs on Python 3.9."""

from __future__ import annotations

from typing import Any

from comfyui_agent.domain.prompts import inputs_of
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.core.prompt_rewriting import PARAMETER_INPUT
from comfyui_agent.nodes.membership import Membership, membership_of

CATEGORY = "E3"


class Parameters(dict[str, Any]):
    """The optional inputs of an iterator: any number of parameters. Only the first is listed."""

    SLOT = ("WI_PARAMETER", {"tooltip": "An E3 Parameter. Connect as many as you like: a free slot appears."})

    def __init__(self) -> None:
        super().__init__({"param_1": self.SLOT})

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and PARAMETER_INPUT.fullmatch(name) is not None

    def __missing__(self, name: str) -> Any:
        if name in self:
            return self.SLOT
        raise KeyError(name)


class WIIterator:
    """The batch is made when the prompt is queued. The node itself only gives the membership of its prompt."""

    CATEGORY = CATEGORY
    DESCRIPTION = (
        "Queue once, render every combination. Connect E3 Parameters; connect the output to E3 Save Image and E3 Grid."
    )
    RETURN_TYPES = ("WI_ITERATOR",)
    RETURN_NAMES = ("iterator",)
    OUTPUT_TOOLTIPS = ("Which member of the batch this is: connect it to E3 Save Image and E3 Grid.",)
    FUNCTION = "membership"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        return {
            "required": {
                "enabled": (
                    "BOOLEAN",
                    {"default": True, "tooltip": "Off: the prompt runs once, with the values that its nodes show."},
                ),
                "mode": (
                    ["matrix", "linear"],
                    {
                        "default": "matrix",
                        "tooltip": "matrix: each value with each. linear: first with first, second with second; a "
                        "parameter of one value stays.",
                    },
                ),
                "batch_name": (
                    "STRING",
                    {
                        "default": "batch",
                        "tooltip": "The batch and its folder are called this, and eight letters.",
                    },
                ),
            },
            "optional": Parameters(),
            "hidden": {"prompt": "PROMPT", "unique_id": "UNIQUE_ID"},
        }

    def membership(
        self, enabled: bool = True, prompt: dict[str, Any] | None = None, unique_id: str | None = None, **_: Any
    ) -> tuple[Membership | None]:
        found = membership_of(inputs_of(prompt or {}, str(unique_id))) if enabled else None
        manager = IterationStateManager.instance()
        is_member = found is not None and manager.is_member(found.batch_id, found.index, manager.host.executing())
        return (found if is_member else None,)

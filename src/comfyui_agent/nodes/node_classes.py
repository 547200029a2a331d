"""The four nodes: what each does when its prompt runs. `declarations.json` declares them. Runs on Python 3.9."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from comfyui_agent.domain.batches import member_name, slug
from comfyui_agent.domain.prompts import inputs_of
from comfyui_agent.nodes.core.batch_state import GridOptions, ImageFile
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.core.prompt_rewriting import BATCH, INDEX, PARAMETER_INPUT, TOTAL, VALUES
from comfyui_agent.nodes.host import pictures_of

DECLARATIONS = json.loads(Path(__file__).with_name("declarations.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Membership:
    """What an iterator gives to the nodes behind it: the member that their prompt is."""

    batch_id: str
    index: int
    total: int
    values: Mapping[str, Any] = field(default_factory=dict)

    def prefix(self, filename_prefix: str) -> str:
        """The prefix of its files: a folder for the batch, and a name with the number and the values."""
        digits = max(4, len(str(self.total)))
        name = member_name(f"{self.index + 1:0{digits}d}", self.values, list(self.values))
        return "/".join(part for part in (filename_prefix.rstrip("/"), self.batch_id, name) if part)

    def report(self, node_id: str, images: list[ImageFile]) -> None:
        manager = IterationStateManager.instance()
        manager.report(self.batch_id, self.index, node_id, images, {"values": dict(self.values)})


def membership_of(inputs: Mapping[str, Any]) -> Membership | None:
    """The membership that the inputs of an iterator are marked with; None without valid marks."""
    batch_id, index, total, values = (inputs.get(name) for name in (BATCH, INDEX, TOTAL, VALUES))
    if not (isinstance(batch_id, str) and isinstance(index, int) and isinstance(total, int)):
        return None
    if not batch_id or batch_id != slug(batch_id, len(batch_id)):
        return None
    return Membership(batch_id, index, total, values if isinstance(values, Mapping) else {})


class Node:
    """A node as ComfyUI takes it, with the declaration of its class name."""

    CATEGORY = "E3"
    inputs: Mapping[str, Mapping[str, Any]]

    def __init_subclass__(cls) -> None:
        for name, value in DECLARATIONS[cls.__name__].items():
            setattr(cls, name, tuple(value) if isinstance(value, list) else value)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        return {
            part: {name: tuple(each) if isinstance(each, list) else each for name, each in inputs.items()}
            for part, inputs in deepcopy(cls.inputs).items()
        }


class Parameters(dict[str, Any]):
    """The optional inputs of an iterator: any number of parameters. Only the first is listed."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and PARAMETER_INPUT.fullmatch(name) is not None

    def __missing__(self, name: str) -> Any:
        if name in self:
            return self["param_1"]
        raise KeyError(name)


class WIIterator(Node):
    """The batch is made when the prompt is queued. The node itself only gives the membership of its prompt."""

    FUNCTION = "membership"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        declared = super().INPUT_TYPES()
        return {**declared, "optional": Parameters(declared["optional"])}

    def membership(
        self, enabled: bool = True, prompt: dict[str, Any] | None = None, unique_id: str | None = None, **_: Any
    ) -> tuple[Membership | None]:
        found = membership_of(inputs_of(prompt or {}, str(unique_id))) if enabled else None
        manager = IterationStateManager.instance()
        is_member = found is not None and manager.is_member(found.batch_id, found.index, manager.host.executing())
        return (found if is_member else None,)


class WIParameter(Node):
    """Read when the prompt is queued. Running it does nothing."""

    FUNCTION = "name"

    def name(self, name: str = "", input_name: str = "", **_: Any) -> tuple[str]:
        return (name or input_name,)


class WISaveImage(Node):
    """Saves and reports the pictures of a member. Outside of a batch it saves like ComfyUI's own node."""

    FUNCTION = "save"

    def save(
        self,
        images: Any,
        filename_prefix: str = "E3/image",
        iterator: Membership | None = None,
        prompt: Any = None,
        extra_pnginfo: Any = None,
        unique_id: str | None = None,
    ) -> dict[str, Any]:
        host = IterationStateManager.instance().host
        prefix = filename_prefix if iterator is None else iterator.prefix(filename_prefix)
        texts = {} if prompt is None else {"prompt": prompt}
        texts.update(extra_pnginfo or {})
        pictures = enumerate(pictures_of(images))
        saved = [host.save(picture, prefix, "output", texts, number) for number, picture in pictures]
        if iterator is not None:
            iterator.report(str(unique_id), saved)
        return {"ui": {"images": [dict(image) for image in saved]}, "result": (images,)}


class WIGridCompositor(Node):
    """Shows a whole batch as one picture. It runs in each member; the last member to end makes the grid."""

    FUNCTION = "compose"

    def compose(
        self, images: Any, iterator: Membership | None = None, unique_id: str | None = None, **options: Any
    ) -> dict[str, Any]:
        if iterator is None:  # no batch: there is nothing to compare
            return {"ui": {"images": []}}
        node_id = str(unique_id)
        manager = IterationStateManager.instance()
        if manager.shows_its_own(iterator.batch_id, node_id):
            prefix = iterator.prefix(f"e3_grid/{slug(node_id)}")
            shown = [manager.host.save(picture, prefix, "temp", {}) for picture in islice(pictures_of(images), 1)]
            if shown:
                iterator.report(node_id, shown)
        grid = manager.grid_for(iterator.batch_id, node_id, GridOptions.of(options)) or ()
        return {"ui": {"images": [dict(image) for image in grid]}}

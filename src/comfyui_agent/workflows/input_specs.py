"""The inputs that a node class declares in ComfyUI's `/object_info`, in the page's order of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from comfyui_agent.workflows.editor_graph import slot_type

DYNAMIC_COMBO, AUTOGROW, MATCH_TYPE = "COMFY_DYNAMICCOMBO_V3", "COMFY_AUTOGROW_V3", "COMFY_MATCHTYPE_V3"
DEFAULTS: Mapping[str, Any] = {
    "INT": 0,
    "FLOAT": 0,
    "BOOLEAN": False,
    "STRING": "",
    "MARKDOWN": "",
    "TEXTAREA": "",
    "PAINTER": "",
    "COLOR": "#000000",
    "COLORS": [],
    "BOUNDING_BOXES": [],
    "BOUNDING_BOX": {"x": 0, "y": 0, "width": 512, "height": 512},
    "CURVE": {"points": [[0, 0], [1, 1]], "interpolation": "monotone_cubic"},
    "RANGE": {"min": 0.0, "max": 1.0},
    "IMAGECOMPARE": ["", ""],
    "COMBO": None,
    DYNAMIC_COMBO: None,
}
"""The types whose values a page keeps in a field, and what the field has at first."""
MADE_BY_PAGE = frozenset({"WEBCAM", "AUDIO_RECORD", "LOAD_3D", "LOAD_3D_ANIMATION", "COMPOSITOR", "VIDEO_EDIT"})
"""The types whose values the page makes when it queues: a photograph, a drawn scene."""
UPLOADS = ("image_upload", "animated_image_upload", "video_upload")
MOST_GROWN = 1_000
BOX_PARTS = ("x", "y", "width", "height")


@dataclass(frozen=True)
class InputSpec:
    name: str
    type: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    choices: list[Any] | None = None

    @property
    def field_type(self) -> str:
        given = self.options.get("widgetType")
        return given if isinstance(given, str) else self.type

    @property
    def is_forced(self) -> bool:
        return bool(self.options.get("forceInput"))

    @property
    def has_field(self) -> bool:
        return (self.field_type in DEFAULTS or self.field_type in MADE_BY_PAGE) and not self.is_forced

    @property
    def has_socket(self) -> bool:
        return not (self.has_field and self.options.get("socketless"))

    @property
    def default(self) -> Any:
        """What a new field has. None stands for nothing."""
        given = self.options.get("default")
        if self.field_type == "COMBO":
            if self.options.get("multi_select"):
                return []
            return given or (self.choices[0] if self.choices else None)
        return DEFAULTS.get(self.field_type) if given is None else given

    def branches(self) -> dict[str, list[InputSpec]]:
        """The inputs below each choice of a dynamic combo, with dotted names."""
        found = {}
        options = self.options.get("options")
        for option in options if isinstance(options, list) else []:
            key = option.get("key") if isinstance(option, dict) else None
            if isinstance(key, str):
                found[key] = [replace(each, name=f"{self.name}.{each.name}") for each in _specs(option.get("inputs"))]
        return found

    def grown(self, ordinal: int) -> list[InputSpec]:
        """The inputs that an autogrow input has at one place, none past its end."""
        template = self._template
        names, prefix, inside = template.get("names"), template.get("prefix"), list(_specs(template.get("input")))
        most = len(names) if isinstance(names, list) else _number(template.get("max"), 100)
        if ordinal >= min(most, MOST_GROWN):
            return []
        if isinstance(names, list):
            return [replace(each, name=f"{self.name}.{names[ordinal]}") for each in inside]
        stem = prefix if isinstance(prefix, str) else ""
        stems = [stem] if len(inside) == 1 else [each.name for each in inside]
        return [replace(each, name=f"{self.name}.{stem}{ordinal}") for each, stem in zip(inside, stems, strict=True)]

    @property
    def least(self) -> int:
        return min(_number(self._template.get("min"), 1), MOST_GROWN)

    @property
    def _template(self) -> Mapping[str, Any]:
        given = self.options.get("template")
        return given if isinstance(given, dict) else {}


def _number(value: Any, otherwise: int) -> int:
    return value if type(value) is int else otherwise


def _specs(section: Any) -> Iterator[InputSpec]:
    for part in ("required", "optional"):
        declared = section.get(part) if isinstance(section, Mapping) else None
        for name, given in declared.items() if isinstance(declared, Mapping) else ():
            yield read_spec(name, given)


def read_spec(name: str, given: Any) -> InputSpec:
    """One declared input: `["INT", {…}]`, `["COMBO", {options: …}]` or `[["a", "b"], {…}]`."""
    parts = given if isinstance(given, (list, tuple)) and given else ["*"]
    options = parts[1] if len(parts) > 1 and isinstance(parts[1], Mapping) else {}
    declared = parts[0] if isinstance(parts[0], (str, list)) else "*"
    choices = declared if isinstance(declared, list) else options.get("options") if declared == "COMBO" else None
    return InputSpec(name, slot_type(declared), options, choices if isinstance(choices, list) else None)


class NodeClass:
    """A class of nodes as a server defines it. The page shows its connections before its fields."""

    def __init__(self, name: str, definition: Mapping[str, Any]) -> None:
        shown = definition.get("display_name")
        self.name = name
        self.title = shown if isinstance(shown, str) and shown else name
        self.declared = list(_specs(definition.get("input")))
        self.inputs = sorted(_ordered(self.declared, definition.get("input_order")), key=lambda spec: spec.has_field)
        outputs = definition.get("output")
        self.outputs = [slot_type(each) for each in outputs] if isinstance(outputs, list) else []
        with_choices = [spec for spec in self.declared if spec.choices is not None]
        self.takes_upload = any(spec.options.get(name) is True for spec in with_choices for name in UPLOADS)


def _ordered(declared: list[InputSpec], order: Any) -> list[InputSpec]:
    if not isinstance(order, Mapping):
        return declared
    by_name = {spec.name: spec for spec in declared}
    listed = [name for part in ("required", "optional") if isinstance(order.get(part), list) for name in order[part]]
    names = [name for name in listed if isinstance(name, str) and name in by_name]
    return [by_name[name] for name in dict.fromkeys([*names, *by_name])]


def companions(spec: InputSpec) -> list[str]:
    """The page's own fields behind a field: they are stored and never sent."""
    control = spec.options.get("control_after_generate")
    if spec.field_type == "INT" and control is None:
        control = spec.name in ("seed", "noise_seed")
    if spec.field_type == "BOUNDING_BOX":
        return list(BOX_PARTS)
    if not control or spec.field_type not in ("INT", "FLOAT", "COMBO"):
        return []
    return ["control_after_generate"] + (["control_filter_list"] if spec.field_type == "COMBO" else [])

"""What is wrong with a file or a setting, in one line each: where, which key, what it says, what would be right.

The description of a field in its model is what would be right; it is all that a complaint needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from comfyui_agent.domain.suggestions import suggest

M = TypeVar("M", bound=BaseModel)
Path = tuple[Any, ...]

LONGEST_VALUE = 60
MOST = 50


@dataclass(frozen=True)
class Complaint:
    """One thing that is wrong."""

    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


class Complaints(Exception):
    """All that is wrong with one file. The text is one line: the first, and how many there are besides."""

    def __init__(self, found: Sequence[Complaint]) -> None:
        self.found = tuple(found)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        super().__init__(f"{self.found[0]}{more}")


def check(model: type[M], tree: Any, where: Callable[[Path], str]) -> M:
    """Make a model of a tree; Complaints that say of each key `where` it stands."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False)
    found: dict[Path, Complaint] = {}
    for detail in details[:MOST]:
        path = _path_in(tree, detail["loc"])
        found.setdefault(path, Complaint(where(path), dotted(path), _message(model, path, detail)))
    inner = {path[:length] for path in found for length in range(len(path))}
    raise Complaints([complaint for path, complaint in found.items() if path not in inner])  # what it follows from


def dotted(path: Path) -> str:
    return ".".join(_key(part) for part in path)


def _key(part: Any) -> str:
    """A key as it is repeated: as it is written, unless that would break the line or show a password."""
    text = str(part)
    is_plain = text.isprintable() and len(text) <= LONGEST_VALUE and "://" not in text and "@" not in text
    return text if is_plain else shown(text)


def shown(value: Any) -> str:
    """A value as it is repeated in a complaint: short, and not if it may hold a password."""
    text = repr(value)
    if "://" in text or "@" in text:
        return "this value"
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _path_in(tree: Any, loc: Path) -> Path:
    """The part of a location that stands in the tree: what pydantic adds for its own unions is left out."""
    path: list[Any] = []
    here = tree
    for number, part in enumerate(loc):
        is_last = number == len(loc) - 1
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            if is_last and isinstance(here, dict) and isinstance(part, str):
                path.append(part)
            continue
        path.append(part)
    return tuple(path)


def _message(model: type[BaseModel], path: Path, detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        return f"there is no such key; {suggest(str(path[-1])[:LONGEST_VALUE], _keys(model, path[:-1]))}"
    right = _right(model, path)
    if kind == "missing":
        return f"is missing: write {right}" if right else "is missing"
    own = str(detail.get("ctx", {}).get("error", "")) if kind == "value_error" else ""
    if own:
        return own if ":" in own or not right else f"{own}: write {right}"
    return f"{shown(detail['input'])} cannot be used: write {right}" if right else detail["msg"]


def _right(model: type[BaseModel], path: Path) -> str:
    """The description of the innermost field on the way that has one."""
    found, here = "", [model]
    for part in path:
        inner: list[type[BaseModel]] = []
        for each in here:
            info = each.model_fields.get(str(part))
            if info is not None:
                found = info.description or found
                inner += _models(info.annotation)
        here = inner or here
    return found


def _keys(model: type[BaseModel], path: Path) -> list[str]:
    here = [model]
    for part in path:
        fields = [each.model_fields[str(part)] for each in here if str(part) in each.model_fields]
        here = [inner for info in fields for inner in _models(info.annotation)] or here
    return [name for each in here for name in each.model_fields]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType):
        return [found for part in get_args(annotation) for found in _models(part)]
    return []

"""Files that people write, and complaints about them: the place of each mistake, and the description of its field."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from comfyui_agent.domain.texts import suggest

M = TypeVar("M", bound=BaseModel)
KeyPath = tuple[Any, ...]

LARGEST = 4 * 1024 * 1024
LONGEST_VALUE = 60
MOST = 50


class Section(BaseModel):
    """A mapping in a file that people write. A key that it does not know is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Complaint:
    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


class Complaints(Exception):
    """All complaints about one file. The text is one line: the first, and the number of others."""

    def __init__(self, found: Sequence[Complaint]) -> None:
        self.found = tuple(found)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        super().__init__(f"{self.found[0]}{more}")

    @classmethod
    def about(cls, where: str, message: str, key: str = "") -> Complaints:
        return cls([Complaint(where, key, message)])


def check(model: type[M], tree: Any, where: Callable[[KeyPath], str]) -> M:
    """Make a model of a tree. Complaints name the place of each wrong key, as `where` tells it."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False)
    found: dict[KeyPath, Complaint] = {}
    for detail in details[:MOST]:
        path = _path_in(tree, detail["loc"])
        found.setdefault(path, Complaint(where(path), dotted(path), _message(model, path, detail)))
    inner = {path[:length] for path in found for length in range(len(path))}
    # A complaint about a section only repeats those about its keys.
    raise Complaints([complaint for path, complaint in found.items() if path not in inner])


def dotted(path: KeyPath) -> str:
    return ".".join(_key(part) for part in path)


def _key(part: Any) -> str:
    """A key for messages, quoted if it would break the line, hidden if it may hold a password."""
    text = str(part)
    is_plain = text.isprintable() and len(text) <= LONGEST_VALUE and "://" not in text and "@" not in text
    return text if is_plain else shown(text)


def shown(value: Any) -> str:
    """A value for messages: short, and hidden if it may hold a password."""
    text = repr(value)
    if "://" in text or "@" in text:
        return "this value"
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _path_in(tree: Any, loc: KeyPath) -> KeyPath:
    """The part of a location that is in the tree, without the parts that pydantic adds for unions."""
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


def _message(model: type[BaseModel], path: KeyPath, detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        _, models = _follow(model, path[:-1])
        known = [name for each in models for name in each.model_fields]
        return f"there is no such key; {suggest(str(path[-1])[:LONGEST_VALUE], known)}"
    right, _ = _follow(model, path)
    if kind == "missing":
        return f"is missing: write {right}" if right else "is missing"
    own = str(detail.get("ctx", {}).get("error", "")) if kind == "value_error" else ""
    if own:
        return own if ":" in own or not right else f"{own}: write {right}"
    return f"{shown(detail['input'])} cannot be used: write {right}" if right else detail["msg"]


def _follow(model: type[BaseModel], path: KeyPath) -> tuple[str, list[type[BaseModel]]]:
    """The description of the innermost described field on a path, and the models at its end."""
    description, models = "", [model]
    for part in path:
        fields = [each.model_fields[str(part)] for each in models if str(part) in each.model_fields]
        for info in fields:
            description = info.description or description
        models = [inner for info in fields for inner in _models(info.annotation)] or models
    return description, models


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, tuple):
        return [found for part in get_args(annotation) for found in _models(part)]
    return []


def shown_path(path: Path) -> str:
    """A path for messages: relative if it lies below the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


class Document:
    """A YAML file with a mapping, or an empty one unless `first` names keys to begin with. `wanted` is what to write
    into it. Complaints if it cannot be read or holds something else."""

    def __init__(self, path: Path, wanted: str, first: str = "") -> None:
        from comfyui_agent.config.yaml_text import NotYaml, parse  # takes time, and e3 run --help reads no file

        self.name = shown_path(path)
        try:
            if path.stat().st_size > LARGEST:
                raise Complaints.about(self.name, "it is too large")
            self._parsed = parse(path.read_bytes())
        except OSError as error:
            raise Complaints.about(self.name, f"it cannot be read: {error.strerror}") from None
        except NotYaml as error:
            raise Complaints.about(at_line(self.name, error.line), error.message) from None
        value = self._parsed.value
        if value is None and first:
            raise Complaints.about(self.name, f"it is empty: write {first}")
        if not isinstance(value, (dict, type(None))):
            raise Complaints.about(self.name, f"it is not a mapping: write {wanted}")
        self.tree: dict[str, Any] = value or {}

    @property
    def given(self) -> dict[str, Any]:
        """The keys that have a value."""
        return {key: value for key, value in self.tree.items() if value is not None}

    def where(self, path: tuple[Any, ...]) -> str:
        """File and line of a key, for messages."""
        return at_line(self.name, self._parsed.line_of(path))


def without_empty(tree: dict[str, Any]) -> dict[str, Any]:
    """A mapping without the keys that have no value, as in a section whose lines are all comments."""
    kept = {key: value for key, value in tree.items() if value is not None}
    return {key: without_empty(value) if isinstance(value, dict) else value for key, value in kept.items()}


def at_line(name: str, line: int | None) -> str:
    return f"{name}:{line}" if line else name

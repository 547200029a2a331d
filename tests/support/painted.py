"""Prompts for pictures of one colour, by which a test knows that a client was given its own."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from typing import Any

from support.graphs import fresh_color, node, picture
from support.pictures import opened, png
from support.wire import Graph


@dataclass(frozen=True)
class Painted:
    """A prompt for a picture of one colour, which no other test asks for."""

    graph: Graph
    color: int


def painted(*, seconds: float = 0, **changes: dict[str, Any]) -> Painted:
    """EmptyImage "1" saved by SaveImage "2", after it has slept as "3"; nodes may be changed or added."""
    color = fresh_color()
    graph = picture(color=color)
    if seconds:
        save = graph.pop("2")
        graph["3"] = node("Sleep", value=["1", 0], seconds=seconds)
        graph["2"] = node("SaveImage", **{**save["inputs"], "images": ["3", 0]})
    return Painted(graph | changes, color)


def colors(*pictures: str | bytes) -> list[int]:
    """The one colour of each picture, whose bytes may be in base64."""
    found = []
    for content in pictures:
        image = opened(b64decode(content) if isinstance(content, str) else content).convert("RGB")
        [(_, color)] = image.getcolors() or []
        found.append(int.from_bytes(bytes(color), "big"))
    return found


def png_of(color: int) -> bytes:
    return png((*color.to_bytes(3, "big"),))


def was_interrupted(entry: dict[str, Any]) -> bool:
    """Whether an entry of the history tells of an interrupt."""
    return entry["status"]["status_str"] == "error" and entry["status"]["messages"][-1][0] == "execution_interrupted"

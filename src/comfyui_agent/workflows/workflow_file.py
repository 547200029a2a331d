"""What a file carries: a workflow in API or UI format, bare, as the body of a post, or inside a picture or film."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from comfyui_agent.domain.prompts import is_editor_format
from comfyui_agent.workflows.errors import NoWorkflowFound, shown
from comfyui_agent.workflows.film_metadata import flac_texts, matroska_texts, mp4_texts
from comfyui_agent.workflows.picture_metadata import LARGEST_TEXT, Texts, jpeg_texts, png_texts, webp_texts

MOST_CONTAINERS = 2_000_000
CONTAINERS: list[tuple[bytes, str, Callable[[bytes], Texts]]] = [
    (rb"\x89PNG\r\n\x1a\n", "PNG picture", png_texts),
    (rb"\xff\xd8\xff", "JPEG picture", jpeg_texts),
    (rb"RIFF.{4}WEBP", "WebP picture", webp_texts),
    (rb".{4}ftyp", "MP4 film", mp4_texts),
    (rb"\x1aE\xdf\xa3", "WebM film", matroska_texts),
    (rb"fLaC", "FLAC sound", flac_texts),
    (rb"GIF8|RIFF|OggS|ID3", "picture or recording", lambda _: iter(())),
]
"""How each kind of file begins, and what reads its texts."""
EXPORT = "export one with Workflow → Export (API)"


@dataclass(frozen=True)
class FoundWorkflow:
    """`document` is a graph in API format, or a workflow in UI format. `container` is empty for a plain JSON file."""

    document: dict[str, Any]
    container: str = ""

    @property
    def is_editor_format(self) -> bool:
        return is_editor_format(self.document)

    @property
    def format(self) -> str:
        return "UI format" if self.is_editor_format else "API format"


def find_workflow(data: bytes) -> FoundWorkflow:
    """The workflow of a file. The API format wins where both are there. NoWorkflowFound says what else it is."""
    container, reader = _container(data)
    if reader is None:
        if len(data) > LARGEST_TEXT:
            raise NoWorkflowFound(f"it is larger than {LARGEST_TEXT:,} bytes, too large for a workflow")
        return read_workflow(data)
    found: dict[str, bytes] = {}
    for name, text in reader(data):
        if name.lower() in ("prompt", "workflow"):
            found.setdefault(name.lower(), text)
    errors = []
    for name in ("prompt", "workflow"):
        if name in found:
            try:
                return replace(read_workflow(found[name]), container=container)
            except NoWorkflowFound as error:
                errors.append(f"its {name} cannot be read: {error}")
    raise NoWorkflowFound(errors[0] if errors else f"it is a {container} without a workflow: {EXPORT}")


def _container(data: bytes) -> tuple[str, Callable[[bytes], Texts] | None]:
    known = ((name, reader) for head, name, reader in CONTAINERS if re.match(head, data, re.DOTALL))
    return next(known, ("", None))


def read_workflow(text: bytes) -> FoundWorkflow:
    """The workflow of a JSON text. NoWorkflowFound if it is something else."""
    if text.count(b"[") + text.count(b"{") > MOST_CONTAINERS:
        raise NoWorkflowFound(f"it has more than {MOST_CONTAINERS:,} lists and objects, too many for a workflow")
    try:
        document = json.loads(text)
    except UnicodeDecodeError:
        raise NoWorkflowFound(f"it is no JSON: {EXPORT}") from None
    except (ValueError, RecursionError) as error:
        raise NoWorkflowFound(f"it is no JSON: {shown(error)}") from None
    wrapped = document.get("prompt") if isinstance(document, dict) else None
    if isinstance(wrapped, dict) and "class_type" not in wrapped:
        document = wrapped
    if not isinstance(document, dict) or not document:
        raise NoWorkflowFound(f"it is not a workflow in API format or UI format: {EXPORT}")
    for node_id, node in () if is_editor_format(document) else document.items():
        if not isinstance(node, dict) or "class_type" not in node:
            raise NoWorkflowFound(f"{shown(node_id)!r} is not a node: {EXPORT}")
    return FoundWorkflow(document)

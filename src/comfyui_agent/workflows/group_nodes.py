"""Group nodes of older pages, turned into subgraphs."""
from __future__ import annotations
from collections.abc import Mapping
from typing import Any
from comfyui_agent.workflows.editor_graph import EditorDocument
def expand_groups(document: EditorDocument, definitions: Mapping[str, Any]) -> EditorDocument:
    return document

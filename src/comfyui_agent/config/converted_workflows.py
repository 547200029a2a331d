"""Workflows in UI format, converted once and kept beside the database: whoever reads them later asks no server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.texts import json_text
from comfyui_agent.workflows.errors import NoDefinitions, NoWorkflowFound, WorkflowError
from comfyui_agent.workflows.prompt_texts import Choose
from comfyui_agent.workflows.workflow_file import EXPORT, read_workflow

RULES = 1
"""Goes up when conversion gives something else than before: what was kept until then counts no more."""
FAILED_SECONDS = 10.0
"""So long what was refused is refused again, and no silent server is asked again."""
ANY = ""
EDITOR_FORMAT = "it is in the editor's format, which is converted with a server's definitions"


Converter = Callable[[Mapping[str, Any], Choose], Graph]
"""Converts a document in UI format as a server's page would, in any thread. WorkflowError if that cannot be done,
NoDefinitions if no server answers."""


def ask_nobody(document: Mapping[str, Any], choose: Choose | None = None, /) -> Graph:  # noqa: ARG001 - a Converter
    """Converts nothing."""
    raise NoDefinitions(f"{EDITOR_FORMAT}, and none is asked here: e3 workflow import does, or {EXPORT}")


class ConvertedWorkflows:
    """The graph of a document is the same for ever: choices `{a|b}` in its texts are made by its digest."""

    def __init__(self, folder: Path, convert: Converter) -> None:
        self._folder = folder
        self._convert = convert
        self._lock = threading.Lock()
        self._failed: dict[str, tuple[float, WorkflowError]] = {}

    def graph_of(self, document: Mapping[str, Any]) -> Graph:
        """The graph of a document in UI format. WorkflowError as its converter says."""
        digest = hashlib.sha256(f"{RULES} {json_text(document)}".encode()).hexdigest()
        kept = self._kept(digest)
        if kept is None:
            with self._lock:  # another thread may have been first
                kept = self._kept(digest) or self._made(document, digest)
        return kept

    def _made(self, document: Mapping[str, Any], digest: str) -> Graph:
        for key in (ANY, digest):
            until, error = self._failed.get(key, (0.0, None))
            if error is not None and time.monotonic() < until:
                raise error.with_traceback(None)
        try:
            graph = self._convert(document, Random(digest).choice)
        except WorkflowError as error:
            self._failed = {key: failed for key, failed in self._failed.items() if time.monotonic() < failed[0]}
            self._failed[ANY if isinstance(error, NoDefinitions) else digest] = time.monotonic() + FAILED_SECONDS, error
            raise
        with contextlib.suppress(OSError):  # it is converted again next time, to the same
            self._keep(digest, graph)
        return graph

    def _kept(self, digest: str) -> Graph | None:
        try:
            return read_workflow((self._folder / f"{digest}.json").read_bytes()).document
        except (OSError, NoWorkflowFound):
            return None

    def _keep(self, digest: str, graph: Graph) -> None:
        if self._folder.parent.is_dir():  # else there is no workspace, and nothing is left in somebody's folder
            self._folder.mkdir(exist_ok=True)
            temporary = self._folder / f".{digest}.{os.getpid()}"
            temporary.write_text(json.dumps(graph), encoding="utf-8")
            temporary.replace(self._folder / f"{digest}.json")

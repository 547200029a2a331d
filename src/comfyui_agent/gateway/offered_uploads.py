"""Uploads among the choices of nodes, as ComfyUI lists the files of its input folder."""

from __future__ import annotations

from typing import Any

from comfyui_agent.usecases.uploads import Uploads
from comfyui_agent.wire.prompts import Json


class OfferedUploads:
    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._info: Json = {}
        self._takers: list[str] = []

    async def offer(self, info: Json) -> Json:
        """Node definitions, with uploads among the choices of inputs that take uploads."""
        if info is not self._info:  # large, and the same for many calls
            self._info, self._takers = info, [name for name, found in info.items() if "_upload" in str(found["input"])]
        takers = {name: info[name] for name in self._takers}
        if not takers:
            return info
        names = sorted(await self._uploads.newest())
        return {**info, **{name: _offering(found, names) for name, found in takers.items()}} if names else info


def _offering(definition: Json, names: list[str]) -> Json:
    inputs = {
        section: {name: _with_choices(spec, names) for name, spec in specs.items()}
        if isinstance(specs, dict)
        else specs
        for section, specs in definition["input"].items()
    }
    return {**definition, "input": inputs}


def _with_choices(spec: Any, names: list[str]) -> Any:
    """The declaration of an input, with more choices if it takes uploads."""
    if not isinstance(spec, list) or len(spec) < 2 or not isinstance(spec[1], dict):
        return spec
    kind, options = spec[0], spec[1]
    if not any(key.endswith("_upload") and value for key, value in options.items()):
        return spec
    if isinstance(kind, list):
        return [list(dict.fromkeys([*kind, *names])), options]
    return [kind, {**options, "options": list(dict.fromkeys([*options.get("options", []), *names]))}]

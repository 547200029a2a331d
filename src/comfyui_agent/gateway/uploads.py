"""Files that clients upload: kept by their digest, found by the place in the input folder that clients see."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.files.connect import open_files
from comfyui_agent.files.folder import sync_folder
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.wire.places import FilePlace, Upload, names_to_try
from comfyui_agent.wire.prompts import Json

MOST_OFFERED = 1_000
ENDING = re.compile(r"\.[a-z0-9]{1,8}")


class Uploads:
    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store = store
        self._workspace = workspace
        self._files = open_files(workspace.inputs)
        self._info: Json = {}
        self._takers: list[str] = []

    async def find(self, paths: Iterable[str]) -> dict[str, str]:
        """The kept files of those paths that were uploaded."""
        wanted = list(paths)
        return await self._store.run(ops.find_uploads, wanted) if wanted else {}

    async def offer(self, info: Json) -> Json:
        """Node definitions, with uploads among the choices of inputs that take uploads."""
        if info is not self._info:  # large, and the same for many calls
            self._info, self._takers = info, [name for name, found in info.items() if "_upload" in str(found["input"])]
        takers = {name: info[name] for name in self._takers}
        if not takers:
            return info
        names = sorted(await self.newest())
        return {**info, **{name: _offering(found, names) for name, found in takers.items()}} if names else info

    async def newest(self) -> list[str]:
        """Places in the input folder, newest first. Hidden files are left out."""
        paths = await self._store.run(ops.newest_uploads, MOST_OFFERED)
        names = [path.removeprefix("input/") for path in paths if path.startswith("input/")]
        return [name for name in names if not name.startswith(".")]

    async def read(self, path: str) -> Path | None:
        """Where an upload lies on this machine. None if there is none."""
        kept = (await self.find([path])).get(path)
        if kept is None:
            return None
        file = self._workspace.kept_inputs / kept
        if not file.is_file() and self._files.is_remote:
            return await OBJECTS.run(self._files.local, kept)
        return file if file.is_file() else None

    async def save(self, upload: Upload) -> str:
        """Keep an upload. Returns the name that it has now: as in ComfyUI, other bytes never replace a file unasked."""
        place = upload.place
        sent = _kept_name(upload.sent, place.name)
        for name in [place.name] if upload.overwrite else names_to_try(place.name):
            path = f"{place.kind}/{FilePlace(place.kind, place.subfolder, name).path}"
            taken = (await self.find([path])).get(path)
            if taken == sent and not upload.overwrite:
                return name
            if taken is None or upload.overwrite:
                break
        data = upload.sent if upload.content is None else await upload.content()
        if data is not None:
            kept = await OBJECTS.run(self._keep, data, place.name)
            await self._store.run(ops.keep_upload, path, kept)
        return name

    def _keep(self, data: bytes, name: str) -> str:
        folder, kept = self._workspace.kept_inputs, _kept_name(data, name)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".e3part", delete=False) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, folder / kept)  # noqa: PTH105 - as everywhere
        sync_folder(folder)
        if self._files.is_remote and not self._files.exists(kept):
            self._files.publish(folder / kept, kept, replaces=True)
        return kept


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


def _kept_name(data: bytes, name: str) -> str:
    ending = PurePosixPath(name).suffix.lower()
    return hashlib.sha256(data).hexdigest() + (ending if ENDING.fullmatch(ending) else ".bin")

"""Files that people and clients upload: kept by their digest, and found by the name that they gave."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from comfyui_agent.comfy.content import HEAD, MOST_INPUT_PIXELS, check_file, recognise
from comfyui_agent.comfy.errors import OutputProblem
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import EventName
from comfyui_agent.engine.intake.input_files import KEPT_INPUT
from comfyui_agent.files.connect import open_files
from comfyui_agent.files.folder import sync_folder
from comfyui_agent.pools import FILES, OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import Invalid, NotPossible
from comfyui_agent.wire.places import FilePlace, Upload, names_to_try

MOST_OFFERED = 1_000
LARGEST_NAME = 120
PIECE = 1024 * 1024
MEDIA = ("image", "video", "audio")
ENDING = re.compile(r"\.[a-z0-9]{1,8}")
UNSAFE = re.compile(r"[^\w .()-]+")


@dataclass(frozen=True)
class UploadedInput:
    """An input file that was uploaded. Jobs name it by `value`, whatever becomes of the original."""

    name: str
    kept: str
    media: str
    size: int

    @property
    def value(self) -> str:
        return f"{KEPT_INPUT}{self.kept}"


async def keep_input(store: Store, workspace: Workspace, actor: Actor, data: bytes, name: str) -> UploadedInput:
    """Keep an uploaded picture, film or sound under its digest. Invalid if it is none, or not whole."""
    kind = recognise(data[:HEAD], name)
    if kind.media not in MEDIA:
        raise Invalid("it is no picture, film or sound", "Send a PNG, JPEG, WebP, MP4, WebM, FLAC or the like.")
    stem = UNSAFE.sub("_", PurePosixPath(name.replace("\\", "/")).name.rpartition(".")[0])[:LARGEST_NAME].strip(" .")
    whole = f"{stem or 'upload'}.{kind.extension}"
    try:
        await FILES.run(check_file, io.BytesIO(data), kind, whole, MOST_INPUT_PIXELS)
    except OutputProblem as error:
        raise Invalid(error.message, "Send a whole file that fits.") from None
    try:
        saved = await Uploads(store, workspace).save(Upload(FilePlace("input", "", whole), data, overwrite=False))
    except OSError as error:
        raise NotPossible(f"the file cannot be kept: {error.strerror}", "Try again in a while.") from None
    found = UploadedInput(saved, _kept_name(data, saved), kind.media, len(data))
    await actor.audit(store, EventName.AUDIT_INPUT_UPLOAD, message=f"{saved}, {len(data):,} bytes")
    return found


class Uploads:
    """The input folder that all clients see, wherever its files are rendered."""

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store = store
        self._workspace = workspace
        self._files = open_files(workspace.inputs)

    async def find(self, paths: Iterable[str]) -> dict[str, str]:
        """The kept files of those paths that were uploaded."""
        wanted = list(paths)
        return await self._store.run(ops.find_uploads, wanted) if wanted else {}

    async def newest(self) -> list[str]:
        """Places in the input folder, newest first. Hidden files are left out."""
        paths = await self._store.run(ops.newest_uploads, MOST_OFFERED)
        names = [path.removeprefix("input/") for path in paths if path.startswith("input/")]
        return [name for name in names if not name.startswith(".")]

    async def read(self, path: str) -> Path | None:
        """Where an upload lies on this machine. None if there is none."""
        kept = (await self.find([path])).get(path)
        return None if kept is None else await self.local(kept)

    async def local(self, kept: str) -> Path | None:
        """Where a kept file lies on this machine. None if there is none; OSError if it cannot be fetched."""
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
            kept = await OBJECTS.run(self.keep, io.BytesIO(data), place.name)
            await self._store.run(ops.keep_upload, path, kept)
        return name

    def keep(self, source: IO[bytes], name: str) -> str:
        """Keep a copy of a file under its digest. Returns the name that this gives it."""
        folder, digest = self._workspace.kept_inputs, hashlib.sha256()
        folder.mkdir(parents=True, exist_ok=True)
        source.seek(0)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".e3part", delete=False) as file:
            while piece := source.read(PIECE):
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        kept = digest.hexdigest() + _ending(name)
        os.replace(file.name, folder / kept)  # noqa: PTH105 - as everywhere
        sync_folder(folder)
        if self._files.is_remote and not self._files.exists(kept):
            self._files.publish(folder / kept, kept, replaces=True)
        return kept

    def keep_copy(self, path: Path, name: str) -> str:
        with path.open("rb") as file:
            return self.keep(file, name)


def _kept_name(data: bytes, name: str) -> str:
    return hashlib.sha256(data).hexdigest() + _ending(name)


def _ending(name: str) -> str:
    ending = PurePosixPath(name).suffix.lower()
    return ending if ENDING.fullmatch(ending) else ".bin"

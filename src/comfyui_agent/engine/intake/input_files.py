"""Input files that jobs name by a local path: a copy is kept under the digest of its bytes, whatever becomes of the
original."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from comfyui_agent.config.workflows import Stamp, Workflow, stamp_of
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Unbindable
from comfyui_agent.domain.node_classes import is_marked, leaves_folder, loads_from_outside, takes_file
from comfyui_agent.engine.intake.folder_scan import SETTLED_SECONDS, Unsettled
from comfyui_agent.files.connect import open_files
from comfyui_agent.files.folder import sync_folder
from comfyui_agent.files.port import FilesAway

LARGEST = 2 * 1024**3
PIECE = 1024 * 1024
MOST_REMEMBERED = 10_000
HEAD = 512
MEDIA = ("image", "video", "audio", "3d", "latent")
PATIENCE = 2.0
KEPT_INPUT = "input:"
"""Before the name of a kept file: an upload, or what a job had."""
KEPT_NAME = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{1,8}")


class Unusable(Exception):
    """An input file that cannot be used: why, and what to do."""


class NotKept(Exception):
    """Input files that could not be kept, through no fault of who names them: what happened, and what to do."""


class InputFiles:
    """Copies input files into the workspace's memory. An original that has not changed is not read again."""

    def __init__(self, workspace: Workspace, is_leaving: Callable[[], bool] = lambda: False) -> None:
        self._workspace = workspace
        self._is_leaving = is_leaving
        self._results, self._inputs = open_files(workspace.results), open_files(workspace.inputs)
        self._kept: dict[Path, tuple[Stamp, str]] = {}

    def local_file(self, value: str) -> Path | None:
        """The local file that a value names; None if it names one at the server. Unusable if a path leads nowhere."""
        if is_marked(value) and leaves_folder(value):
            raise Unusable(
                f"{value[:200]!r} leads out of the server's folder: name a file in it, or one of the workspace without "
                "[input] behind it"
            )
        if not value or is_marked(value):
            return None
        problem = (
            f"there is no file {value[:200]!r}: put it there, or write ' [input]' behind its name if it is in the "
            "server's input folder"
        )
        try:
            found = self._workspace.readable(value)
            if found.is_file():
                return found
            if (result := self._result(value)) is not None:
                return result
        except FilesAway:
            raise
        except ValueError as error:
            problem = str(error)
        except OSError as error:
            problem = f"{value[:200]!r} cannot be read: {error.strerror}"
        if "/" in value or "\\" in value or value.startswith("~"):
            raise Unusable(problem)
        return None

    def _result(self, value: str) -> Path | None:
        """A result that lies elsewhere than in the workspace, by its name; where it is on this machine."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            name = self._workspace.shown(self._workspace.inside(value))
            if "/" in name and self._workspace.results.has(name):
                found = self._results.local(name)
                return found if found.is_file() else None
        return None

    def keep_all(self, workflow: Workflow, values: Mapping[str, Any]) -> dict[str, str]:
        """Keep every local file that a value names, by its place. Unbindable names the inputs whose files cannot be
        used."""
        kept = {}
        problems = {}
        for text, value in values.items():
            place = workflow.places.all[text]
            try:
                if isinstance(value, str) and takes_file(place.class_type, place.name):
                    if value.startswith(KEPT_INPUT):
                        kept[text] = self.known(value.removeprefix(KEPT_INPUT))
                        continue
                    found = self.local_file(value)
                    if found is not None:
                        kept[text] = self.keep(found)
                elif loads_from_outside(place.name, value, is_given=True):
                    raise Unusable("it names a file outside the server's folders: name one that lies in them")
            except Unusable as error:
                problems[name_of(workflow, text)] = str(error)
        if problems:
            raise Unbindable(problems)
        return kept

    def known(self, name: str) -> str:
        """The name of a file that is kept already. Unusable if there is none."""
        path = self._workspace.kept_inputs / name
        if KEPT_NAME.fullmatch(name) is not None:
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)  # or it may be removed as unused before its job is there
                return name
            if self._inputs.is_remote and self._inputs.exists(name):
                return name
        raise Unusable(f"there is no uploaded file {name[:80]!r}: upload it again")

    def keep_patiently(self, workflow: Workflow, values: Mapping[str, Any]) -> dict[str, str]:
        """`keep_all` for a thread that may wait for a file that is being written. NotKept if it cannot be done now."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.keep_all(workflow, values)
            except Unsettled:
                if time.monotonic() > until:
                    raise NotKept("an input picture is being written: try again when it is whole") from None
                time.sleep(0.1)
            except OSError as error:
                words = error.strerror if isinstance(error, FilesAway) else error
                raise NotKept(f"input pictures cannot be kept: {words}") from error

    def keep(self, path: Path) -> str:
        """Keep a copy, on disk before this returns; its name. Unusable if it is not what a workflow can load."""
        stamp = stamp_of(path)
        known = self._kept.get(path)
        if known and known[0] == stamp:
            with contextlib.suppress(FileNotFoundError):
                os.utime(
                    self._workspace.kept_inputs / known[1]
                )  # or it may be removed as unused before its job is there
                return known[1]
        if stamp is not None and abs(time.time() - stamp[0] / 1e9) < SETTLED_SECONDS:
            raise Unsettled  # it may still be written
        name = self._copy(path)
        self._share(name)
        if stamp_of(path) != stamp:
            raise Unsettled
        if stamp is not None and len(self._kept) < MOST_REMEMBERED:
            self._kept[path] = stamp, name
        return name

    def _share(self, name: str) -> None:
        """Bring a copy to where other agents find it, once: its name is the digest of its bytes."""
        if self._inputs.is_remote and not self._inputs.exists(name):
            self._inputs.publish(self._workspace.kept_inputs / name, name, replaces=True)

    def _copy(self, path: Path) -> str:
        from comfyui_agent.comfy.content import (
            MOST_INPUT_PIXELS,
            check_whole,
            recognise,
        )  # Pillow, for those who need it
        from comfyui_agent.comfy.errors import OutputProblem

        folder = self._workspace.kept_inputs
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".e3part", dir=folder)
        try:
            with os.fdopen(handle, "wb") as copy:
                digest, head = _pour(path, copy, self._is_leaving)
                copy.flush()
                os.fsync(copy.fileno())
            kind = recognise(head, path.name)
            if kind.media not in MEDIA:
                raise Unusable(f"{path.name} is no picture, video, sound or 3d model")
            try:
                check_whole(Path(temporary), kind, path.name, MOST_INPUT_PIXELS)
            except OutputProblem as error:
                raise Unusable(error.message) from None
            name = f"{digest}.{kind.extension}"
            os.replace(temporary, folder / name)  # noqa: PTH105 - the other half of mkstemp
            sync_folder(folder)
            return name
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise


def name_of(workflow: Workflow, place: str) -> str:
    """What people call the input that goes to a place."""
    names = [name for name, places in workflow.recipe.inputs.items() if place in places]
    return names[0] if names else workflow.places.all[place].name


def _pour(path: Path, copy: BinaryIO, is_leaving: Callable[[], bool]) -> tuple[str, bytes]:
    """Copy the bytes; their digest and the first of them. Trouble with reading is the file's, with writing ours."""
    digest, head, size = hashlib.sha256(), b"", 0
    try:
        source = path.open("rb")
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from None
    with source:
        while True:
            try:
                piece = source.read(PIECE)
            except OSError as error:
                raise Unusable(f"{path} cannot be read: {error.strerror}") from None
            if not piece:
                return digest.hexdigest(), head
            size += len(piece)
            if size > LARGEST:
                raise Unusable(f"{path} is larger than {LARGEST / 1024**3:.0f} GB")
            head = head or piece[:HEAD]
            digest.update(piece)
            copy.write(piece)
            if is_leaving():
                raise Unsettled

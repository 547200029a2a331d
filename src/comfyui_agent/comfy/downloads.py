"""Bringing results home: streamed to a temporary file, checked, on disk for good, and only then under their name."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
import unicodedata
import uuid
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.content import HEAD, FileKind, check_whole, recognise
from comfyui_agent.comfy.errors import AnswerTooLarge, OutputProblem, ServerLost
from comfyui_agent.comfy.results import ResultFile
from comfyui_agent.comfy.transport import CHUNK, Transport

LONGEST_NAME = 120
LONGEST_EXTENSION = 16
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
MARK = ".e3part"
WRITTEN_AT_ONCE = 4 * 1024 * 1024


@dataclass(frozen=True)
class StagedFile:
    """A result that is whole and on disk, under a temporary name in the folder where it will be published."""

    result: ResultFile
    path: Path
    kind: FileKind
    size: int

    def publish(self, target: Path, *, overwrite: bool = True) -> Path:
        """Give the file its final name, atomically and for good. The target lies in the folder of the staged file.

        It waits for the disk: call it in a thread where that matters.

        With `overwrite=False` an existing file is kept, and FileExistsError is raised.
        """
        if overwrite:
            self.path.replace(target)
        else:
            _rename_without_replacing(self.path, target)
        sync_folder(target.parent)
        return target

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)


async def stage(transport: Transport, result: ResultFile, folder: Path, owner: str = "") -> StagedFile:
    """Download one result into a folder. OutputProblem if it is gone, empty, cut short or unreadable.

    `owner` becomes part of the temporary name, so that what a killed process leaves can be told and removed.

    A connection that breaks or falls silent is tried again, from the start.
    """
    return await transport.again(lambda: _stage_once(transport, result, folder, owner), on=(ServerLost,))


@dataclass(frozen=True)
class Transfer:
    """How a result came over: when it was asked for, when its answer began and ended (monotonic), and its size."""

    asked_at: float
    answered_at: float
    ended_at: float
    size: int


async def read_through(transport: Transport, result: ResultFile) -> Transfer:
    """Read one result and keep nothing of it. OutputProblem if it is gone, empty or cut short."""
    name = shapes.shown(result.filename)
    asked_at = time.monotonic()
    size = 0
    async with transport.download("view", result.query) as response:
        _expect_file(response, name, str(transport.address))
        answered_at = time.monotonic()
        declared = response.content_length
        async for chunk in response.content.iter_chunked(CHUNK):
            size += len(chunk)
            if size > transport.limits.file_bytes:
                raise AnswerTooLarge(f"{transport.address}: {name} has more than {transport.limits.file_bytes:,} bytes")
    if size == 0 or (declared is not None and size != declared):
        raise OutputProblem(f"{transport.address}: {name} is cut short: {size:,} of {declared or 1:,} bytes came")
    return Transfer(asked_at, answered_at, time.monotonic(), size)


async def _stage_once(transport: Transport, result: ResultFile, folder: Path, owner: str) -> StagedFile:
    path = folder / f".{owner}{'-' if owner else ''}{uuid.uuid4().hex}{MARK}"
    try:
        head, size, unwritten = await _receive(transport, result, path)
        kind = recognise(head, result.filename)
        keep = transport.limits.keep_free_bytes
        await transport.on_disk(_finish, path, unwritten, size, kind, result.filename, keep)
    except OutputProblem as problem:
        path.unlink(missing_ok=True)
        raise OutputProblem(f"{transport.address}: {problem.message}") from None
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return StagedFile(result, path, kind, size)


async def _receive(transport: Transport, result: ResultFile, path: Path) -> tuple[bytes, int, bytes]:
    """The first bytes, the size, and what is not in the file yet: all of a small one, the rest of a large one."""
    limit = transport.limits.file_bytes
    name = shapes.shown(result.filename)
    head, size, waiting = b"", 0, bytearray()
    async with transport.download("view", result.query) as response:
        _expect_file(response, name, str(transport.address))
        declared = response.content_length
        if declared is not None and declared > limit:
            raise AnswerTooLarge(f"{transport.address}: {name} has {declared:,} bytes, the limit is {limit:,}")
        keep = transport.limits.keep_free_bytes
        if declared is not None and declared > WRITTEN_AT_ONCE:
            await transport.on_disk(expect_room, path.parent, declared, keep)
        async for chunk in response.content.iter_chunked(CHUNK):
            size += len(chunk)
            if size > limit:
                raise AnswerTooLarge(f"{transport.address}: {name} has more than the limit of {limit:,} bytes")
            head = head if len(head) >= HEAD else (head + chunk)[:HEAD]
            waiting += chunk
            if len(waiting) >= WRITTEN_AT_ONCE:
                await transport.on_disk(_append, path, bytes(waiting), keep)
                waiting.clear()
    if declared is not None and size != declared:
        raise OutputProblem(f"{name} is cut short: {size:,} of {declared:,} bytes came")
    return head, size, bytes(waiting)


def expect_room(folder: Path, size: int, keep: int) -> None:
    """OSError, as from a full disk, if so many bytes more would leave less than `keep` free."""
    if keep:
        disk = shutil.disk_usage(folder)
        if disk.free - size < min(keep, disk.total // 2):
            raise OSError(errno.ENOSPC, "No space left but what paths.keep_free_gb keeps free")


def _append(path: Path, data: bytes, keep: int = 0) -> None:
    expect_room(path.parent, len(data), keep)
    with path.open("ab") as file:
        file.write(data)


def _finish(path: Path, data: bytes, size: int, kind: FileKind, server_name: str, keep: int = 0) -> None:
    """Write the rest, put it on disk for good, and see that it is whole.

    FileNotFoundError if someone has removed what was there of it.
    """
    expect_room(path.parent, len(data), keep)
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if os.fstat(file.fileno()).st_size != size:
            raise FileNotFoundError(f"{path} was removed while it was written")
    check_whole(path, kind, server_name)


def _expect_file(response: aiohttp.ClientResponse, name: str, server: str) -> None:
    if response.status == 404:
        raise OutputProblem(f"{name} is not there any more")
    if response.status in (502, 503, 504):
        raise ServerLost(f"{server} answered {response.status} when asked for {name}: ComfyUI behind it is not up")
    if response.status != 200:
        raise OutputProblem(f"asked for {name}, it answered {response.status}")


def remove_leftovers(folder: Path, owner: str) -> None:
    """Remove what a process that is gone had staged and not published."""
    for path in folder.glob(f".{owner}-*{MARK}"):
        path.unlink(missing_ok=True)


def safe_name(server_name: str) -> str:
    """A file name of our own, made from a server's: no folders, no dots in front, nothing a file system trips over."""
    name = unicodedata.normalize("NFC", server_name).replace("\\", "/").rpartition("/")[2]
    name = "".join("_" if c in '<>:"|?*' or not c.isprintable() else c for c in name).strip().lstrip(".")
    stem, dot, extension = name.rpartition(".")
    if not dot:
        stem, extension = name, ""
    stem = stem.encode("utf-8", "replace")[:LONGEST_NAME].decode("utf-8", "ignore").rstrip(". ")
    extension = extension[:LONGEST_EXTENSION].rstrip()
    name = f"{stem}.{extension}" if extension else stem
    return f"_{name}" if not stem or RESERVED.fullmatch(name) else name


def _rename_without_replacing(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
        path.unlink()
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: reserve the name, then take it
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        path.replace(target)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Downloading results: streamed to a temporary file, checked, synced to disk, and only then renamed."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.content import HEAD, FileKind, check_file, check_whole, recognise
from comfyui_agent.comfy.errors import AnswerTooLarge, OutputProblem, ServerLost
from comfyui_agent.comfy.results import ResultFile
from comfyui_agent.comfy.transport import CHUNK, Transport
from comfyui_agent.files.folder import rename

MARK = ".e3part"
WRITTEN_AT_ONCE = 4 * 1024 * 1024


@dataclass(frozen=True)
class StagedFile:
    """A complete result on disk, under a temporary name in its final folder."""

    result: ResultFile
    path: Path
    kind: FileKind
    size: int
    sha256: str

    def publish(self, target: Path) -> Path:
        """Give the file its final name in the same folder, atomically. This waits for the disk."""
        rename(self.path, target)
        return target

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)


async def stage(transport: Transport, result: ResultFile, folder: Path, owner: str = "") -> StagedFile:
    """Download one result into a folder, again if the connection breaks. OutputProblem if it is gone or damaged.

    `owner` becomes part of the temporary name, so that `remove_leftovers` finds the files of a killed process.
    """
    return await transport.again(lambda: _stage_once(transport, result, folder, owner), on=(ServerLost,))


@dataclass(frozen=True)
class Transfer:
    """The monotonic times of a download, and its size."""

    asked_at: float
    answered_at: float
    ended_at: float
    size: int


async def read_through(transport: Transport, result: ResultFile) -> Transfer:
    """Read one result and drop its bytes. OutputProblem if it is gone, empty or cut short."""
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
    digest = hashlib.sha256()
    try:
        head, size, unwritten = await _receive(transport, result, path, digest)
        kind = recognise(head, result.filename)
        keep = transport.limits.keep_free_bytes
        await transport.disk.run(_finish, path, unwritten, digest, size, kind, result.filename, keep)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OutputProblem):
            raise OutputProblem(f"{transport.address}: {error.message}") from None
        raise
    return StagedFile(result, path, kind, size, digest.hexdigest())


async def _receive(
    transport: Transport, result: ResultFile, path: Path, digest: hashlib._Hash
) -> tuple[bytes, int, bytes]:
    """Returns the first bytes, the size, and the bytes that are not in the file yet."""
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
            await transport.disk.run(expect_room, path.parent, declared, keep)
        async for chunk in response.content.iter_chunked(CHUNK):
            size += len(chunk)
            if size > limit:
                raise AnswerTooLarge(f"{transport.address}: {name} has more than the limit of {limit:,} bytes")
            head = head if len(head) >= HEAD else (head + chunk)[:HEAD]
            waiting += chunk
            if len(waiting) >= WRITTEN_AT_ONCE:
                await transport.disk.run(_append, path, bytes(waiting), digest, keep)
                waiting.clear()
    if declared is not None and size != declared:
        raise OutputProblem(f"{name} is cut short: {size:,} of {declared:,} bytes came")
    return head, size, bytes(waiting)


def expect_room(folder: Path, size: int, keep: int) -> None:
    """OSError, as from a full disk, if `size` more bytes would leave less than `keep` free."""
    if keep:
        disk = shutil.disk_usage(folder)
        if disk.free - size < min(keep, disk.total // 2):
            raise OSError(errno.ENOSPC, "No space left but what paths.keep_free_gb keeps free")


def _append(path: Path, data: bytes, digest: hashlib._Hash, keep: int) -> None:
    digest.update(data)
    expect_room(path.parent, len(data), keep)
    with path.open("ab") as file:
        file.write(data)


def _finish(
    path: Path, data: bytes, digest: hashlib._Hash, size: int, kind: FileKind, server_name: str, keep: int
) -> None:
    """Write the rest, sync the file to disk, and check it. FileNotFoundError if someone removed the file."""
    digest.update(data)
    expect_room(path.parent, len(data), keep)
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if os.fstat(file.fileno()).st_size != size:
            raise FileNotFoundError(f"{path} was removed while it was written")
    if len(data) == size:  # it never left the memory, and the disk has all of it
        check_file(io.BytesIO(data), kind, server_name)
    else:
        check_whole(path, kind, server_name)


def _expect_file(response: aiohttp.ClientResponse, name: str, server: str) -> None:
    if response.status == 404:
        raise OutputProblem(f"{name} is not there any more")
    if response.status in (502, 503, 504):
        raise ServerLost(f"{server} answered {response.status} when asked for {name}: ComfyUI behind it is not up")
    if response.status != 200:
        raise OutputProblem(f"asked for {name}, it answered {response.status}")


def remove_leftovers(folder: Path, owner: str) -> None:
    """Remove the staged files of a dead process."""
    for path in folder.glob(f".{owner}-*{MARK}"):
        path.unlink(missing_ok=True)

"""Files as objects of a bucket: S3, Google Cloud Storage or Azure, by `obstore`, which also finds the credentials.

An object is written whole or not at all. Where the store honours conditional puts, nobody replaces an object that they
have not seen; elsewhere a name has the fence of its lease in it, so that an old lease cannot have the same one.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from errno import EACCES, EEXIST, EINVAL, EIO, ENOENT
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from comfyui_agent.domain.locations import Location
from comfyui_agent.files.folder import free_name
from comfyui_agent.files.local_cache import LocalCache, digest_of_file
from comfyui_agent.files.port import BadLocation, FilesAway, Peek

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, PutResult
    from obstore.store import ObjectStore

LARGEST_PUT = 128 * 1024**2
"""Larger files are sent in parts, which no store does conditionally: their names are fenced."""
PART_BYTES, PARTS_AT_ONCE = 16 * 1024**2, 4
TRANSFER_SECONDS, ANSWER_SECONDS, CONNECT_SECONDS = 300, 4, 2
TRIES = 5
LOOKS_AT_ONCE = 16
REMEMBERED_SECONDS, MOST_REMEMBERED = 60.0, 10_000
AWAY_SECONDS = 2.0
"""For so long after a failure nobody who only looks is made to wait for another."""
NO_CREDENTIALS = ("//169.254.", "//metadata")
"""Where clouds give credentials to their own machines: asked last, when there are no others."""


class _Stored(NamedTuple):
    """An object that was read whole."""

    digest: str
    meta: ObjectMeta


class ObjectFiles:
    is_remote = True

    def __init__(self, location: Location) -> None:
        self._location = location
        self._cache = LocalCache(location.copies, location.memory_bytes)
        self._transfers = _connect(location.url, TRANSFER_SECONDS, retries=2)
        self._quick = _connect(location.url, ANSWER_SECONDS, retries=1)
        self._probing = threading.Lock()
        self._is_conditional: bool | None = None
        self._peeks: dict[tuple[str, str], tuple[float, Peek]] = {}
        self._away_until = 0.0

    def check(self) -> None:
        try:
            self._probe()
        except FilesAway as error:
            message = f"{self._location.url}: {error.strerror}"
            raise BadLocation(message) if error.errno in (EACCES, ENOENT) else FilesAway(EIO, message) from None

    def staging(self, folder: Path) -> Path:  # noqa: ARG002 - a folder needs it
        return self._location.staged

    def is_fenced(self, size: int) -> bool:
        return size > LARGEST_PUT or not self._probe()

    def publish(self, source: Path, name: str, *, replaces: bool) -> None:
        """Put an object and read it back. Equal bytes that are there already are an earlier try."""
        digest, size = digest_of_file(source), source.stat().st_size
        is_conditional = not self.is_fenced(size)
        there, is_ours = None if is_conditional else self._read(name, size), False
        for _ in range(TRIES):
            if there is None or there.digest != digest:
                if there is not None and not replaces:
                    raise FileExistsError(EEXIST, "it is there already", name)
                mode: PutMode = "create" if there is None else _unless_changed(there.meta)
                is_ours = self._put(source, name, mode if is_conditional else "overwrite")
                there = self._read(name, size)
            if there is not None and there.digest == digest:
                with suppress(OSError):  # whoever wants it on this machine need not fetch it
                    self._cache.get(*self._copy_of(there.meta, name), lambda path: os.link(source, path))
                return
            if is_ours:
                break
        raise FilesAway(EIO, f"{self._location.url} gave back other bytes than {name} has")

    def keep_aside(self, name: str) -> str:
        kept = free_name(PurePosixPath(name), lambda each: self.exists(str(each)))
        with _translated(self._location):
            obstore.copy(self._transfers, name, str(kept))
            obstore.delete(self._transfers, name)
        return kept.name

    def exists(self, name: str) -> bool:
        try:
            self._head(name)
        except FileNotFoundError:
            return False
        return True

    def missing(self, names: Sequence[str]) -> list[str]:
        with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
            return [name for name, is_there in zip(names, pool.map(self.exists, names), strict=True) if not is_there]

    def peek(self, name: str, length: int, version: str = "") -> Peek:
        known = self._peeks.get((name, version))
        if known is not None and time.monotonic() - known[0] < REMEMBERED_SECONDS:
            return known[1]
        with self._answering(name):  # not every store knows ranges: the first bytes are read, and the rest is not
            result = obstore.get(self._quick, name)
            head = bytes(next(iter(result.stream(min_chunk_size=length)), b""))[:length]
        peek = Peek(head, hashlib.sha256(_version_of(result.meta).encode()).hexdigest()[:20])
        if len(self._peeks) >= MOST_REMEMBERED:
            self._peeks.clear()
        self._peeks[name, version] = time.monotonic(), peek
        return peek

    def local(self, name: str) -> Path:
        try:
            return self._cache.get(*self._copy_of(self._head(name), name), lambda path: self._fetch(name, path))
        except (FileNotFoundError, FilesAway):
            raise
        except OSError as error:
            raise FilesAway(error.errno, f"no copy can be made on this machine: {error.strerror}") from None

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._answering(name):
            obstore.delete(self._quick, name)

    def _probe(self) -> bool:
        """Whether the store honours conditional puts: asked once, with a small object."""
        with self._probing:
            if self._is_conditional is None:
                name = f"e3-probe-{uuid.uuid4().hex}"
                with _translated(self._location):
                    first = obstore.put(self._quick, name, b"1", mode="create")
                try:
                    is_kept = not self._put(b"2", name, "create") and self._put(b"3", name, "overwrite")
                    self._is_conditional = is_kept and not self._put(b"4", name, _unless_changed(first))
                finally:
                    self.remove(name)
            return self._is_conditional

    def _put(self, source: Path | bytes, name: str, mode: PutMode) -> bool:
        """Send a file, or a few bytes. False if something else is there."""
        is_large = isinstance(source, Path) and source.stat().st_size > LARGEST_PUT
        sent = source.read_bytes() if isinstance(source, Path) and not is_large else source
        kind = {"Content-Type": mimetypes.guess_type(name)[0] or "application/octet-stream"}
        parts: dict[str, Any] = {"use_multipart": is_large, "chunk_size": PART_BYTES, "max_concurrency": PARTS_AT_ONCE}
        with _translated(self._location), suppress(AlreadyExistsError, PreconditionError):
            obstore.put(self._transfers, name, sent, mode=mode, attributes=kind, **parts)
            return True
        return False

    def _read(self, name: str, size: int) -> _Stored | None:
        """Read an object of the expected size to its end. One of another size has no digest."""
        try:
            with _translated(self._location, name):
                result = obstore.get(self._transfers, name)
                digest = hashlib.sha256()
                if result.meta["size"] != size:
                    return _Stored("", result.meta)
                for chunk in result.stream():
                    digest.update(chunk)
                return _Stored(digest.hexdigest(), result.meta)
        except FileNotFoundError:
            return None

    def _fetch(self, name: str, path: Path) -> None:
        with _translated(self._location, name), path.open("xb") as file:
            result = obstore.get(self._transfers, name)
            for chunk in result.stream():
                file.write(chunk)
            if file.tell() != result.meta["size"]:
                raise FilesAway(EIO, f"{name} was cut short")

    def _head(self, name: str) -> ObjectMeta:
        with self._answering(name):
            return obstore.head(self._quick, name)

    @contextmanager
    def _answering(self, name: str) -> Iterator[None]:
        """A quick question. None is asked right after one that failed: pages would wait for each of their pictures."""
        if time.monotonic() < self._away_until:
            raise FilesAway(EIO, "the object store did not answer a moment ago")
        try:
            with _translated(self._location, name):
                yield
        except FilesAway:
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise

    def _copy_of(self, meta: ObjectMeta, name: str) -> tuple[Path, int, float]:
        """Where the local copy of an object is, its size and its time."""
        path = self._cache.path_of(f"{self._location.url}/{name} {_version_of(meta)}", name)
        return path, meta["size"], meta["last_modified"].timestamp()


def _connect(url: str, seconds: float, retries: int) -> ObjectStore:
    seconds_to_retry = timedelta(seconds=ANSWER_SECONDS * retries)
    try:
        return from_url(
            url,
            client_options={
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": timedelta(seconds=seconds),
                "allow_http": True,  # only an endpoint that somebody has set speaks it
            },
            retry_config={"max_retries": retries, "retry_timeout": seconds_to_retry},
        )
    except BaseError as error:
        raise BadLocation(f"{url} cannot be used: {_first_line(error)}") from None


@contextmanager
def _translated(location: Location, name: str = "") -> Iterator[None]:
    """Errors of the library as OSError. FileNotFoundError only for a named object; else the bucket is not there."""
    try:
        yield
    except FileNotFoundError:
        if name:
            raise FileNotFoundError(ENOENT, "it is not there", name) from None
        raise FilesAway(ENOENT, f"there is no bucket {location.url.split('/')[2]}: make it") from None
    except (InvalidPathError, ValueError):  # half a character, a name with dots or empty parts
        if name:
            raise FileNotFoundError(ENOENT, "no object can have this name", name) from None
        raise OSError(EINVAL, "no object can have this name") from None
    except (AlreadyExistsError, PreconditionError):
        raise
    except BaseError as error:
        asked = str(error).partition(" - ")[0]
        if any(host in asked for host in NO_CREDENTIALS):
            words = "no credentials were found: set those of the store, see docs/object_storage.md"
            raise FilesAway(EACCES, words) from None
        is_denied = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
        raise FilesAway(EACCES if is_denied else EIO, _reason(error)) from None


def _reason(error: BaseError) -> str:
    """What happened, in one short line. Answers of a store are left out: they may repeat what signs a request."""
    status = re.search(r"status code: (\d{3}[A-Za-z ]*)", str(error))
    code = re.search(r"<Code>(\w{1,60})</Code>", str(error))
    if status:
        return f"the object store answered {status[1].strip()}" + (f" ({code[1]})" if code else "")
    return f"the object store does not answer: {_first_line(error)}"


def _first_line(error: BaseError) -> str:
    return str(error).split("\n")[0].rpartition(": ")[2][:100]


def _unless_changed(known: ObjectMeta | PutResult) -> PutMode:
    """To replace an object only if it is still the known one."""
    version = {"e_tag": known["e_tag"], "version": known["version"]}
    return {key: value for key, value in version.items() if value}  # type: ignore[return-value]


def _version_of(meta: ObjectMeta) -> str:
    return f"{meta['e_tag'] or meta['last_modified']} {meta['version'] or ''} {meta['size']}"

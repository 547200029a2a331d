"""Which file a result is, and whether the page may serve it. Rows are not trusted: the file itself is checked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath

from comfyui_agent.comfy.content import HEAD, recognise
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.texts import printable
from comfyui_agent.files.connect import open_files
from comfyui_agent.files.port import Files, NoPlainFile
from comfyui_agent.pictures.grid_sources import look_at
from comfyui_agent.pictures.thumbnails import NoThumbnail
from comfyui_agent.store.records import Digest
from comfyui_agent.web.thumbnail_cache import ThumbnailCache

WIDTHS = (160, 320, 640, 1280)
USUAL_WIDTH = 320
ATTACHMENT = "application/octet-stream"
"""For files that a browser only saves and never shows: HTML, SVG, texts and unknown formats."""
MEDIA_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "tiff": "image/tiff",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "avi": "video/x-msvideo",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "m4a": "audio/mp4",
    "glb": "model/gltf-binary",
}


NO_DIGESTS: Mapping[str, Digest] = {}


class NotShown(ValueError):
    """A result that is not served. The message says why."""


@dataclass(frozen=True)
class ResultFile:
    """A result that was checked just now. `version` changes with the file."""

    path: Path
    """Where it lies. If it is an object, nothing is there: `Outputs.local` fetches it."""
    media_type: str
    version: str
    name: str

    @property
    def is_picture(self) -> bool:
        return self.media_type.startswith("image/")


@dataclass(frozen=True)
class Result:
    """A result file that can be fetched."""

    number: int
    name: str
    url: str
    """It changes with the file, so that browsers can cache it for ever, like `thumbnail`."""
    thumbnail: str | None
    """None if the result is no picture."""
    media_type: str
    sha256: str | None = None
    """None if it is older than digests."""
    bytes: int | None = None

    def thumbnail_at(self, width: int) -> str:
        return (self.thumbnail or "").replace(f"?width={USUAL_WIDTH}&", f"?width={width}&")


def version_of(job: Job) -> str:
    """A text that changes with the results of a job, for their addresses."""
    facts = f"{job.prompt_id} {job.end_time} {job.status} {job.fence}"
    return hashlib.sha256(facts.encode("utf-8", "backslashreplace")).hexdigest()[:12]


class Outputs:
    """Serves results of jobs: only files that a row records, in the workspace, with the type that their bytes show."""

    def __init__(self, workspace: Workspace) -> None:
        self._results = workspace.results
        self._root = workspace.results.folder
        self._roots = {self._root, workspace.root.resolve()}
        self._finished = (self._root / workspace.settings.paths.jobs_finished).resolve()
        self.thumbnails = ThumbnailCache(workspace.thumbnails)
        self._own_folders = workspace.own_folders
        self._own_files = workspace.own_files

    def find(self, job: Job, number: int) -> ResultFile:
        """Find a job's result by its number from 1, with links resolved. Raises NotShown. It reads the file's head."""
        if not 1 <= number <= len(job.outputs):
            count = f"{len(job.outputs)} result{'' if len(job.outputs) == 1 else 's'}" if job.outputs else "no result"
            raise NotShown(f"{job.config_name} has {count}: there is no number {number}")
        return self._check(job.outputs[number - 1], version_of(job))

    def grid(self, recorded: str) -> Path:
        """The picture of a batch's grid on this machine, from the path in its row. Raises NotShown."""
        result = self._check(recorded)
        if not result.is_picture:
            raise NotShown(f"{printable(result.path.name)} is no picture")
        return self.local(result)

    def grid_page(self, recorded: str) -> Path:
        """The page beside the picture of a grid. Raises NotShown."""
        return self.local(self._check(str(PurePath(recorded).with_suffix(".html"))))

    def local(self, result: ResultFile) -> Path:
        """The file of a result on this machine. Raises NotShown."""
        files = open_files(self._results, result.name)
        if not files.is_remote:
            return result.path
        try:
            return files.local(result.name)
        except FileNotFoundError:
            raise _gone(result.path.name) from None
        except OSError as error:
            raise NotShown(f"{printable(result.path.name)} cannot be fetched: {error.strerror}") from None

    def file(self, job: Job, number: int) -> Path:
        """The file of a job's result on this machine. Raises NotShown."""
        return self.local(self.find(job, number))

    def shown(self, job: Job, most: int | None = None, digests: Mapping[str, Digest] = NO_DIGESTS) -> list[Result]:
        """The results that may be served, in order, at most `most`. It checks each file."""
        version = version_of(job)
        numbered = ((number, self._known(recorded, version)) for number, recorded in enumerate(job.outputs, start=1))
        shown = (_shown(job, number, result, digests) for number, result in numbered if result is not None)
        return list(islice(shown, most))

    def bytes_of(self, job: Job) -> int:
        """How much room the results of a job take, as far as they lie on this machine."""
        found = (self._known(recorded, "") for recorded in job.outputs)
        return sum(each.path.stat().st_size for each in found if each is not None and each.path.is_file())

    def size(self, recorded: str, version: str) -> tuple[int, int] | None:
        """The size of a result in pixels. None if it is no picture, or not on this machine."""
        if open_files(self._results, recorded).is_remote:
            return None
        found = self._known(recorded, version)
        size = look_at(found.path).size if found and found.is_picture else (0, 0)
        return size if all(size) else None

    async def thumbnail(self, result: ResultFile, width: int) -> Path:
        """The thumbnail of a picture as a WebP file, at the next larger of `WIDTHS`. Raises NotShown."""
        if not result.is_picture:
            raise NotShown(f"{printable(result.path.name)} is no picture: it has no thumbnail")
        allowed = next((each for each in WIDTHS if each >= width), WIDTHS[-1])
        try:
            return await self.thumbnails.get(result.path, result.version, allowed, lambda: self.local(result))
        except FileNotFoundError:
            raise _gone(result.path.name) from None
        except NoThumbnail as error:
            raise NotShown(printable(str(error))) from None
        except OSError as error:
            raise NotShown(f"the thumbnail of {printable(result.path.name)} cannot be made: {error.strerror}") from None

    def _known(self, recorded: str, version: str) -> ResultFile | None:
        try:
            return self._check(recorded, version)
        except (OSError, ValueError):  # not served, not there, or no valid path
            return None

    def _check(self, recorded: str, of: str = "") -> ResultFile:
        """The result under a recorded name. What is known of an object for the same version of a job is believed."""
        name = printable(PurePath(recorded).name) or "the result"
        files = open_files(self._results, recorded)
        path = self._resolve(recorded, name, is_here=not files.is_remote)
        media_type, version = _look_at(files, recorded if files.is_remote else str(path), of)
        if media_type == ATTACHMENT and not path.is_relative_to(self._finished):
            raise NotShown(f"{name} is no picture, film, sound or model, and does not lie among the results")
        return ResultFile(path, media_type, version, recorded)

    def _resolve(self, recorded: str, name: str, *, is_here: bool) -> Path:
        """The resolved path of a result. NotShown if nothing is served from there."""
        try:
            path = (self._root / recorded).resolve(strict=is_here)
        except FileNotFoundError:
            raise _gone(name) from None
        except (OSError, RuntimeError, ValueError):  # links in circles, a name too long, half a character, a null
            raise NotShown(f"{name} cannot be found: its path leads nowhere") from None
        root = next((each for each in self._roots if path.is_relative_to(each)), None)
        if root is None:
            raise NotShown(f"{name} lies outside the workspace: it is not shown here, open it where it lies")
        written = () if PurePath(recorded).is_absolute() else PurePath(recorded).parts
        if any(part.startswith(".") for part in (*written, *path.relative_to(root).parts)):
            raise NotShown(f"{name} lies in a hidden place: it is not shown here")
        if path in self._own_files or not self._is_open(path):
            raise NotShown(f"{name} lies among the files that E3 works with: it is not shown here")
        return path

    def _is_open(self, path: Path) -> bool:
        """The innermost known folder decides: results may be inside one of E3's own folders, and the reverse."""
        for folder in path.parents:
            if folder == self._finished or folder in self._roots:
                return True
            if folder in self._own_folders:
                return False
        return False


def _look_at(files: Files, recorded: str, of: str) -> tuple[str, str]:
    """The media type by the first bytes of a file or an object, and its version."""
    name = printable(PurePath(recorded).name)
    try:
        peek = files.peek(recorded, HEAD, of)
    except FileNotFoundError:
        raise _gone(name) from None
    except NoPlainFile:
        raise NotShown(f"{name} is not a file") from None
    except OSError as error:
        raise NotShown(f"{name} cannot be read: {error.strerror}") from None
    return media_type_of(peek.head), peek.version


def media_type_of(head: bytes) -> str:
    """The media type by the first bytes of a file."""
    return MEDIA_TYPES.get(recognise(head, "").extension, ATTACHMENT)


def _gone(name: str) -> NotShown:
    return NotShown(f"{printable(name)} is not there any more")


def _shown(job: Job, number: int, file: ResultFile, digests: Mapping[str, Digest]) -> Result:
    digest = digests.get(file.name, Digest())
    url = f"/api/v1/jobs/{job.id}/results/{number}"
    version = f"v={file.version}" + (f"&take={job.take}" if job.take is not None else "")
    thumbnail = f"{url}/thumbnail?width={USUAL_WIDTH}&{version}" if file.is_picture else None
    address = f"{url}?{version}"
    return Result(number, file.path.name, address, thumbnail, file.media_type, digest.sha256, digest.bytes)

"""The workspace: the folder that relative paths are relative to."""

from __future__ import annotations

import re
import time
import unicodedata
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from comfyui_agent.config.settings import Settings
from comfyui_agent.domain.locations import Location, is_url

SQLITE = "sqlite:///"
FOLLOWED_SECONDS = 1.0

Key = tuple[str, ...]


@dataclass(frozen=True)
class Workspace:
    root: Path
    settings: Settings
    config: Path | None = None
    named: tuple[Path, ...] = ()
    """Folders for results named on the command line. They may lie outside the workspace."""

    @property
    def database(self) -> str:
        """The database URL if there is one, else the path of the SQLite file."""
        url = self.settings.database.url
        if "://" in url and not url.startswith(SQLITE):
            return url
        return str(self.root / (url.removeprefix(SQLITE) or self.settings.paths.database))

    @property
    def database_file(self) -> Path | None:
        """The SQLite file. None for a database with a URL."""
        return None if "://" in self.database else Path(self.database)

    @property
    def database_name(self) -> str:
        """The database for people, for logs and notes: its path, or its URL without user, password and options."""
        return shown_database(self.database)

    @property
    def beside_database(self) -> Path:
        """The folder for what E3 keeps beside the database: that of its file, or `database` in the workspace."""
        return (self.database_file or self.root / "database" / "any").parent

    @property
    def locks(self) -> Path:
        """The lock files of the processes that work in this workspace, whatever database they use."""
        return self._real_root / "database" / "agents"

    @property
    def processes(self) -> Path:
        """The folders of ComfyUI processes that E3 supervises, one for each slot."""
        return self._real_root / "comfyui"

    @property
    def metrics_log(self) -> Path:
        return self.root / self.settings.metrics_log

    @property
    def recipes(self) -> Path:
        """`workflows.yaml`, beside the configuration."""
        folder = self.config.parent if self.config else self.root / "config"
        return folder / "workflows.yaml"

    def workflow(self, workflow_id: str) -> Path:
        return self.root / self.settings.paths.workflows / f"{workflow_id}.json"

    @property
    def processing(self) -> Path:
        """The folder for job files. It may lie outside the workspace."""
        return self.root / self.settings.paths.jobs_processing

    @property
    def kept_inputs(self) -> Path:
        """The folder of input pictures, named by the digest of their bytes, beside the database."""
        return self.beside_database.resolve() / "inputs"

    @property
    def converted_workflows(self) -> Path:
        """The folder of graphs that workflows in UI format became, beside the database."""
        return self.kept_inputs.with_name("converted")

    @property
    def secrets_key(self) -> Path:
        """The key that seals secrets in the database. Machines that share a database need the same file."""
        return self.beside_database.resolve() / "secrets.key"

    @property
    def thumbnails(self) -> Path:
        """The folder of thumbnails, beside the database."""
        return self.kept_inputs.with_name("thumbnails")

    @cached_property
    def results(self) -> Location:
        """Where results lie. Their names are relative to its folder, which nothing is in if they are objects."""
        where = self.settings.paths.results
        return self._location(self.kept_inputs.with_name("results") if is_url(where) else self.root / where, where)

    @cached_property
    def inputs(self) -> Location:
        """Where input pictures are kept for all agents, named by the digest of their bytes."""
        url = next((each for each in self.settings.paths.inputs if is_url(each)), "")
        return self._location(self.kept_inputs, url)

    @property
    def elsewhere(self) -> dict[str, Location]:
        """The places of files that are not in the workspace, by their settings."""
        places = {"paths.results": self.results, "paths.inputs": self.inputs}
        usual = (self._real_root, self.kept_inputs)
        return {key: each for key, each in places.items() if each.url or each.folder not in usual}

    def _location(self, folder: Path, where: str) -> Location:
        if not is_url(where):
            return Location(folder.resolve())
        most_bytes = round(self.settings.paths.cache_gb * 1024**3)
        return Location(folder.resolve(), where, self.kept_inputs.with_name("cache"), most_bytes)

    def readable(self, path: str) -> Path:
        """An input file of a job. ValueError unless it lies in the workspace or one of `paths.inputs`."""
        try:
            found = (self._real_root / Path(path).expanduser()).resolve()
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{path!r} cannot be followed: {error}") from None
        inputs = (each for each in self.settings.paths.inputs if not is_url(each))
        folders = [self._real_root, self.results.folder, *((self.root / each).resolve() for each in inputs)]
        if not any(found.is_relative_to(folder) for folder in folders):
            raise ValueError(f"{path!r} lies outside the workspace: copy it there, or add its folder to paths.inputs")
        return found

    @cached_property
    def _real_root(self) -> Path:
        return self.root.resolve()

    @cached_property
    def _real_named(self) -> tuple[Path, ...]:
        return tuple(folder.resolve() for folder in self.named)

    def finished(self, kind: str) -> Path:
        """The folder for results of a kind. Its links are followed once a second: every result asks for it twice."""
        kept, now = self._finished.get(kind), time.monotonic()
        if kept is None or now - kept[0] > FOLLOWED_SECONDS:
            kept = self._finished[kind] = now, self.inside(f"{self.settings.paths.jobs_finished}/{kind}")
        return kept[1]

    @property
    def _finished_root(self) -> Path:
        return self.root / self.settings.paths.jobs_finished

    @cached_property
    def _finished(self) -> dict[str, tuple[float, Path]]:
        return {}

    def inside(self, path: str) -> Path:
        """The path of a result, with links followed. ValueError if it leads out of where results go."""
        root = self.results.folder
        try:
            found = (root / path).resolve()
        except (OSError, RuntimeError) as error:  # a loop of links
            raise ValueError(f"{path!r} cannot be followed: {error}") from None
        if found == root or not any(found.is_relative_to(each) for each in (root, *self._real_named)):
            place = f"the workspace {root}" if root == self._real_root else self.results.url or root
            raise ValueError(f"{path!r} leads out of {place}")
        return found

    @cached_property
    def own_folders(self) -> frozenset[Path]:
        """The folders of E3 itself. No results go there, unless the folder of results is in one of them."""
        folders = [self.recipes.parent, self.processing, self.root / self.settings.paths.workflows]
        folders.append(self.beside_database)
        folders += [self.locks, self.kept_inputs, self.thumbnails, self.kept_inputs.with_name("cache")]
        folders.append(self.converted_workflows)
        folders += [self.processes] if self.settings.comfyui.launch else []
        return frozenset(folder.resolve() for folder in folders)

    @cached_property
    def own_files(self) -> frozenset[Path]:
        file, files = self.database_file, list[Path]()
        if file is not None:
            files += [file.with_name(file.name + end) for end in ("", "-wal", "-shm", "-journal")]
        files += [self.recipes, self.metrics_log, self.root / ".env", *([self.config] if self.config else [])]
        return frozenset(file.resolve() for file in files)

    @cached_property
    def _closed(self) -> tuple[frozenset[Key], frozenset[Key], frozenset[Key]]:
        """Keys of all known folders, own files, and folders in which results may lie."""
        is_open = [self.results.folder, self.results.folder / self.settings.paths.jobs_finished]
        closed = {_key(folder) for folder in self.own_folders}
        files = {_key(file) for file in self.own_files}
        results = frozenset(_key(folder.resolve()) for folder in is_open)
        return results | closed, frozenset(files), results

    def check_result(self, path: Path) -> None:
        """ValueError if no result may lie at a resolved path. The innermost known folder decides, whatever its case."""
        if any(path.is_relative_to(folder) for folder in self._real_named):
            return
        known, files, is_open = self._closed
        key = _key(path)
        above = next((key[:end] for end in range(len(key), 0, -1) if key[:end] in known), ())
        if key in files or above not in is_open:
            raise ValueError(
                f"{self.shown(path)!r} is where E3 keeps its own files: write a path such as jobs/finished/image/…"
            )
        if any(part.startswith(".") for part in path.parts[len(self.results.folder.parts) :]):
            raise ValueError(f"{self.shown(path)!r} is hidden: write a path without a dot in front of a name")

    def folder(self, path: str) -> Path:
        """A folder of results, or the one they are all in. ValueError if it leads out."""
        whole = self.results.folder / path
        return self.results.folder if whole == self.results.folder else self.inside(path)

    def entry(self, path: str) -> Path:
        """The name of a result. A link is not followed."""
        whole = self.results.folder / path
        return self.folder(str(whole.parent)) / whole.name

    def shown(self, path: Path) -> str:
        """A result as it is recorded: with forward slashes, relative to the workspace or `paths.results`."""
        root = self.results.folder
        return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()

    def whereabouts(self, name: str) -> str:
        """A recorded result for people: its name, and all of its address if it lies elsewhere."""
        return name if self.results.folder == self._real_root else self.results.address(name)

    def finished_files(self, kind: str) -> Path:
        """The folder for job files whose jobs are done: beside the results, if those are in the workspace."""
        return self.finished(kind) if self.results.folder == self._real_root else self._finished_root / kind

    def finished_job_file(self, kind: str, name: str) -> str:
        """Where the file of a finished job goes, as it is recorded."""
        return self.job_file(self._finished_root / kind / name)

    def without_root(self, text: str) -> str:
        """A text with paths relative to the workspace, to hide where it lies on the disk."""
        for place in self._own_places:
            text = place.sub(lambda found: "" if found[1] else ".", text)
        return text

    @cached_property
    def _own_places(self) -> list[re.Pattern[str]]:
        """Patterns of the workspace and the database folder in a sentence."""
        folder = self.beside_database
        places = [self.root.absolute(), self._real_root, folder.absolute(), folder.resolve(), self.results.folder]
        found = dict.fromkeys(str(place) for place in places if place != Path(place.anchor))
        return [re.compile(rf"(?<![\w./\\-]){re.escape(place)}(?:([/\\])|(?![\w.-]))") for place in found]

    def job_file(self, path: Path) -> str:
        """A job file as it is recorded: relative if it is in the workspace. Links are not followed."""
        text = path.as_posix()
        for root in (self.root, self._real_root):
            above = root.as_posix().rstrip("/") + "/"
            if text.startswith(above):
                return text.removeprefix(above)
        return text


def shown_database(place: str) -> str:
    """A path as it is, a URL without user, password and options."""
    scheme, mark, rest = place.partition("://")
    return f"{scheme}://{re.split('[?#]', rest)[0].rpartition('@')[2]}" if mark else place


def _key(path: Path) -> Key:
    """The parts of a path, equal for names that some file system takes for the same one."""
    return tuple(map(_part_key, path.parts))


@lru_cache(1_000)
def _part_key(part: str) -> str:
    return unicodedata.normalize("NFC", part).casefold().rstrip(". ") or part

"""The folder that all relative paths are relative to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from comfyui_agent.config.settings import Settings

SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Workspace:
    """Where things are."""

    root: Path
    settings: Settings
    config: Path | None = None
    """The file that the settings were read from."""
    named: tuple[Path, ...] = ()
    """Folders for results that the command line names; they may lie anywhere."""
    _finished: dict[str, Path] = field(default_factory=dict, repr=False, compare=False)

    @property
    def database(self) -> str:
        """What to open: the URL if there is one, else the file."""
        url = self.settings.database.url
        if "://" in url and not url.startswith(SQLITE):
            return url
        return str(self.root / (url.removeprefix(SQLITE) or self.settings.paths.database))

    @property
    def locks(self) -> Path:
        """The lock files of agents, beside the database."""
        return Path(self.database).resolve().parent / "agents"

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
        """The folder where job files are dropped. It may lie anywhere: it is the word of whoever set E3 up."""
        return self.root / self.settings.paths.jobs_processing

    @property
    def kept_inputs(self) -> Path:
        """Input pictures of jobs, by the digest of their bytes, beside the database."""
        return Path(self.database).resolve().parent / "inputs"

    def readable(self, path: str) -> Path:
        """An input file that a job names; ValueError unless it lies in the workspace or one of `paths.inputs`."""
        try:
            found = (self._real_root / Path(path).expanduser()).resolve()
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{path!r} cannot be followed: {error}") from None
        folders = [self._real_root, *((self.root / each).resolve() for each in self.settings.paths.inputs)]
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
        """The folder for results of a kind. It is looked at once: links in it are not followed anew for every file."""
        if kind not in self._finished:
            self._finished[kind] = self.inside(f"{self.settings.paths.jobs_finished}/{kind}")
        return self._finished[kind]

    def inside(self, path: str) -> Path:
        """A path in the workspace; ValueError if it leads out, by whatever way."""
        root = self._real_root
        try:
            found = (root / path).resolve()
        except (OSError, RuntimeError) as error:  # links that go round in circles
            raise ValueError(f"{path!r} cannot be followed: {error}") from None
        if found == root or not any(found.is_relative_to(each) for each in (root, *self._real_named)):
            raise ValueError(f"{path!r} leads out of the workspace {root}")
        return found

    def folder(self, path: str) -> Path:
        """A folder in the workspace, or the workspace itself; ValueError if it leads out."""
        whole = self._real_root / path
        return self._real_root if whole == self._real_root else self.inside(path)

    def entry(self, path: str) -> Path:
        """A name in the workspace; a link there is the link itself, not where it leads."""
        whole = self._real_root / path
        folder = self.inside(str(whole.parent)) if whole.parent != self._real_root else self._real_root
        return folder / whole.name

    def shown(self, path: Path) -> str:
        """A path as it is recorded: with forward slashes, and relative if it is in the workspace."""
        return (path.relative_to(self._real_root) if path.is_relative_to(self._real_root) else path).as_posix()

    def without_root(self, words: str) -> str:
        """The same words with paths as seen from the workspace: where on its disk that lies is nobody's business."""
        for place in self._own_places:
            words = place.sub(lambda found: "" if found[1] else ".", words)
        return words

    @cached_property
    def _own_places(self) -> list[re.Pattern[str]]:
        """The workspace and the folder of the database, as they may stand in a sentence."""
        folder = Path(self.database).parent
        places = [self.root.absolute(), self._real_root, folder.absolute(), folder.resolve()]
        found = dict.fromkeys(str(place) for place in places if place != Path(place.anchor))
        return [re.compile(rf"(?<![\w./\\-]){re.escape(place)}(?:([/\\])|(?![\w.-]))") for place in found]

    def job_file(self, path: Path) -> str:
        """A job file as it is recorded: relative to the workspace if it lies there."""
        text = path.as_posix()
        for root in (self.root, self._real_root):
            above = root.as_posix().rstrip("/") + "/"
            if text.startswith(above):
                return text.removeprefix(above)
        return text

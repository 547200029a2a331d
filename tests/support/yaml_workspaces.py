"""Workspaces that are worked with by dropping YAML files, and what must be true of them in the end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Counts
from support.agents import QUICK, AgentWorkspace, sized_picture
from support.servers import ServerProcess

COLOUR = "wf_colour"
PICTURE = "wf_picture"
WORKFLOWS = f"""\
{COLOUR}:
  template_path: workflows/{COLOUR}.json
  required_inputs: [color]
  inputs:
    color: "1.color"
    size: ["1.width", "1.height"]
{PICTURE}:
  template_path: workflows/{PICTURE}.json
  required_inputs: [image]
  inputs:
    image: "1.image"
    size: "2.width"
"""
NOBODY = 65534
"""The id of a user who owns nothing."""


def loaded_picture() -> dict[str, Any]:
    """LoadImage "1", scaled by "2", saved by SaveImage "3"."""
    scaling = {"upscale_method": "nearest-exact", "width": 32, "height": 32, "crop": "disabled", "image": ["1", 0]}
    return {
        "1": {"class_type": "LoadImage", "inputs": {"image": "example.png"}},
        "2": {"class_type": "ImageScale", "inputs": scaling},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "x"}},
    }


def colour_job(colour: int, **keys: Any) -> str:
    """A job file for a picture of one colour. What else it says is given as JSON, which YAML understands."""
    more = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in keys.items())
    return f"job_type: T2I\nworkflow_id: {COLOUR}\ninputs:\n  color: {colour}\n{more}"


def picture_job(image: str, size: int = 32, **keys: Any) -> str:
    """A job file that wants a picture scaled, to a width of its own so that no cache can answer."""
    more = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in keys.items())
    return f"job_type: I2I\nworkflow_id: {PICTURE}\ninputs:\n  image: {json.dumps(image)}\n  size: {size}\n{more}"


def write_picture(path: Path, colour: tuple[int, int, int] = (200, 30, 40), edge: int = 48) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (edge, edge), colour).save(path)
    return path


@dataclass
class YamlWorkspace(AgentWorkspace):
    """A workspace with a configuration, two workflows and folders of job files; its agents are `e3 run`."""

    dropped: dict[str, str] = field(default_factory=dict)
    user: int | None = None
    """Whose process it is, if not ours."""

    def prepare(self, config: str = "retry_limit: 2\n", workflows: str = WORKFLOWS) -> YamlWorkspace:
        for base in ("processing", "finished"):
            for kind in ("image", "video"):
                (self.root / "jobs" / base / kind).mkdir(parents=True, exist_ok=True)
        for folder in ("config", "workflows", "database"):
            (self.root / folder).mkdir(exist_ok=True)
        (self.root / "config" / "global_config.yaml").write_text(config)
        (self.root / "config" / "workflows.yaml").write_text(workflows)
        (self.root / "workflows" / f"{COLOUR}.json").write_text(json.dumps(sized_picture()))
        (self.root / "workflows" / f"{PICTURE}.json").write_text(json.dumps(loaded_picture()))
        return self

    @property
    def processing(self) -> Path:
        return self.root / "jobs" / "processing" / "image"

    @property
    def finished(self) -> Path:
        return self.root / "jobs" / "finished" / "image"

    # Processes.

    def start(self, *flags: str, **environment: str) -> subprocess.Popen[bytes]:
        """One more `e3 run`."""
        return self.launch("run", *flags, **environment)

    def launch(self, command: str, *flags: str, **environment: str) -> subprocess.Popen[bytes]:
        """One more process: `run`, `monitor` or `execute`."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*self._as_user(), *self.command(command), "-v", *flags],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(environment),
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def die(self, moment: str, command: str = "run", timeout: float = 60) -> None:
        """A process that is killed at a moment that `dying_agent.py` knows, to its end."""
        script = str(Path(__file__).parent / "dying_agent.py")
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, script, moment, *self.command(command)[3:], "-v"],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment({}),
                start_new_session=True,
            )
        self.processes.append(process)
        assert process.wait(timeout) == -9, self.tail()

    def call(self, *arguments: str, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command on this workspace, to its end."""
        return subprocess.run(
            [*self._as_user(), *self.command(arguments[0]), *arguments[1:]],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self._environment(environment),
            check=False,
        )

    def command(self, command: str) -> list[str]:
        servers = [part for url in self.servers for part in ("--server", url)] if command in ("run", "execute") else []
        return [sys.executable, "-m", "comfyui_agent", command, "-C", str(self.root), *servers]

    def _as_user(self) -> list[str]:
        if self.user is None:
            return []
        return ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        own = {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return {**os.environ, **QUICK, **own, **self.environment, **more}

    # Files.

    def drop(self, name: str, text: str, *, is_plain: bool = False, kind: str = "image") -> Path:
        """Put a job file there: under another name first, then renamed, or simply written."""
        path = self.root / "jobs" / "processing" / kind / name
        self.dropped[name] = text
        if is_plain:
            path.write_text(text)
        else:
            hidden = path.with_name(f".{name}.part")
            hidden.write_text(text)
            hidden.rename(path)
        return path

    def drop_colours(self, numbers: Iterable[int]) -> None:
        """Job files with a colour each, every other one written in place."""
        for number in numbers:
            self.drop(f"job_{number:05}.yaml", colour_job(number + 1), is_plain=number % 2 == 1)

    def waiting_files(self) -> list[str]:
        """Everything below the folder of job files, whatever it is."""
        folder = self.root / "jobs" / "processing"
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())

    # What is known.

    def has_row(self, name: str) -> bool:
        return self.database.exists() and self.store(lambda store: store.run(ops.find_job_by_name, name)) is not None

    def wait_row(self, name: str, timeout: float = 60) -> Job:
        self.wait_for(lambda: self.has_row(name), f"a row of {name}", timeout)
        found = self.store(lambda store: store.run(ops.find_job_by_name, name))
        assert found is not None
        return found

    def wait_end(self, name: str, status: JobStatus = JobStatus.DONE, timeout: float = 60) -> Job:
        def has_ended() -> bool:
            return self.has_row(name) and self.job(name).status is status

        self.wait_for(has_ended, f"{name} {status.value}", timeout)
        return self.job(name)

    def wait_log(self, words: str, timeout: float = 60) -> str:
        """The line of the log that holds these words."""
        self.wait_for(lambda: words in self.text(), f"{words!r} in the log", timeout)
        return next(line for line in self.text().splitlines() if words in line)

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def counts(self) -> Any:
        """Nothing while there is no database: it is the agent's to make."""
        return super().counts() if self.database.exists() else Counts(0, 0, 0, 0)

    def rejections(self) -> dict[str, str]:
        return self.store(lambda store: store.run(ops.rejections))


MakeYaml = Callable[..., YamlWorkspace]


@contextlib.contextmanager
def yaml_workspaces(folder: Path) -> Iterator[MakeYaml]:
    """Makes workspaces; their processes are ended at the end."""
    made: list[YamlWorkspace] = []

    def make(*servers: str, **environment: str) -> YamlWorkspace:
        root = folder / f"workspace-{len(made)}"
        root.mkdir()
        workspace = YamlWorkspace(root, list(servers), environment).prepare()
        made.append(workspace)
        return workspace

    try:
        yield make
    finally:
        for workspace in made:
            workspace.stop_all()


@contextlib.contextmanager
def workspace_of_nobody(*servers: str) -> Iterator[YamlWorkspace]:
    """A workspace whose processes are those of a user who is not root, to whom permissions mean something."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user here, and needs setpriv for it")
    folder = Path(tempfile.mkdtemp(prefix="e3-nobody-"))
    folder.chmod(0o755)
    with contextlib.ExitStack() as leaving:
        leaving.callback(shutil.rmtree, folder)
        make = leaving.enter_context(yaml_workspaces(folder))
        workspace = make(*servers)
        workspace.user = NOBODY
        give_to_nobody(workspace.root)
        if workspace.call("run", "--help").returncode != 0:
            pytest.skip("another user cannot run this Python")
        yield workspace


def give_to_nobody(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def check_files_promises(workspace: YamlWorkspace) -> list[Job]:
    """Every file that was dropped is a job that is done; it was moved once; results are whole, and nothing else is."""
    jobs = workspace.jobs()
    names = [job.config_name for job in jobs]
    assert len(names) == len(set(names))
    assert set(names) == set(workspace.dropped)
    unfinished = {job.config_name: job.error_trace for job in jobs if job.status is not JobStatus.DONE}
    assert not unfinished, dict(list(unfinished.items())[:3])
    assert workspace.waiting_files() == []
    listed = [path for job in jobs for path in job.outputs]
    assert len(listed) == len(set(listed)) == len(jobs)
    for path in listed:
        with Image.open(workspace.root / path) as picture:
            picture.load()
    found = {
        path.relative_to(workspace.root).as_posix(): path
        for path in (workspace.root / "jobs").rglob("*")
        if not path.is_dir()
    }
    moved = {f"jobs/finished/image/{name}" for name in names}
    assert set(found) == set(listed) | moved, "stray or missing files"
    for name, text in workspace.dropped.items():
        assert found[f"jobs/finished/image/{name}"].read_text() == text
    assert _told(workspace, "job.done") == dict.fromkeys((job.id for job in jobs), 1)
    assert _told(workspace, "job.submitted") == dict.fromkeys((job.id for job in jobs), 1)
    assert not workspace.store(lambda store: store.run(ops.open_attempts))
    assert workspace.rejections() == {}
    return jobs


def _told(workspace: YamlWorkspace, name: str) -> dict[int, int]:
    """How often the metrics log tells an event, by job."""
    found: dict[int, int] = {}
    for event in workspace.events():
        if event["event"] == name:
            found[event["job_id"]] = found.get(event["job_id"], 0) + 1
    return found


def input_files(server: ServerProcess) -> list[Path]:
    """The files in a server's input folder that E3 brought there."""
    places = (server.output_dir / ".e3sim" / "input", server.folder / "input")
    return sorted(path for place in places for path in place.rglob("*") if path.is_file() and "e3_inputs" in path.parts)


def rendered_pictures(server: ServerProcess) -> int:
    """How many pictures a server has saved. The simulator keeps its inputs below its outputs: they do not count."""
    found = (path.relative_to(server.output_dir) for path in server.output_dir.rglob("*.png"))
    return sum(1 for path in found if ".e3sim" not in path.parts)


def resident_megabytes(process: subprocess.Popen[bytes]) -> float:
    """The memory that a process has now."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)
    assert found, "the process is gone"
    return int(found[1]) / 1024


def seconds_until(condition: Callable[[], Any], what: str, timeout: float = 60) -> float:
    """Wait; how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + timeout, f"waited {timeout} s for {what}"
        time.sleep(0.01)
    return time.monotonic() - began

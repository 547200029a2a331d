"""Folders of prompts, bursts on them as a person or a watchdog sees them, and what must be true of both."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from PIL import Image

from comfyui_agent.cli.app import main
from comfyui_agent.sim.settings import CHECKPOINTS
from support.agents import renders
from support.graphs import node
from support.servers import ServerProcess
from support.stores import Rows, in_the_shell

NODE = "98:6"
KEYS = ["completed", "failed", "total_completed", "total", "remaining", "next_size", "next_item"]
QUICK = {"E3_RETRY_BACKOFF_SECONDS": "0", "COLUMNS": "200", "NO_COLOR": "1"}
DYING = str(Path(__file__).parent / "dying_burst.py")


def text_picture() -> dict[str, Any]:
    """A picture at once, whose file keeps the text of node 98:6, on every server."""
    return {
        NODE: node("CLIPTextEncode", text="nothing yet", clip=["4", 1]),
        "1": node("EmptyImage", width=16, height=16, batch_size=1, color=7),
        "2": node("SaveImage", images=["1", 0], filename_prefix="x"),
    }


def slow_text_picture(seconds: float) -> dict[str, Any]:
    """From text to picture, and a while of sleep for every text; only the simulator sleeps."""
    noise = {"seed": 1, "steps": 1, "cfg": 7.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
    return {
        "4": node("CheckpointLoaderSimple", ckpt_name=CHECKPOINTS[0]),
        NODE: node("CLIPTextEncode", text="nothing yet", clip=["4", 1]),
        "5": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "7": node("KSampler", model=["4", 0], positive=[NODE, 0], negative=[NODE, 0], latent_image=["5", 0], **noise),
        "8": node("VAEDecode", samples=["7", 0], vae=["4", 2]),
        "3": node("Sleep", value=["8", 0], seconds=seconds),
        "2": node("SaveImage", images=["3", 0], filename_prefix="x"),
    }


def graph_of(picture: Path) -> dict[str, Any]:
    """The graph that a picture was made from, read from the whole picture."""
    with Image.open(picture) as opened:
        opened.load()
        graph: dict[str, Any] = json.loads(opened.info["prompt"])
        return graph


def text_of(picture: Path, node: str = NODE) -> str:
    """The prompt that a picture was made from."""
    text: str = graph_of(picture)[node]["inputs"]["text"]
    return text


@dataclass(frozen=True)
class Ended:
    """A burst that is over."""

    code: int
    out: str
    err: str

    @property
    def summary(self) -> dict[str, Any]:
        """What `--json` printed: one document with exactly the promised keys, and nothing else."""
        found = json.loads(self.out)
        assert list(found) == KEYS
        return dict(found)

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()


@dataclass
class Running:
    """A burst in a process of its own, with what it says in files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def end(self, timeout: float = 60) -> Ended:
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not done after {timeout} s:\n{self.said()[-3000:]}") from None
        return Ended(self.process.returncode, self.out.read_text(), self.said())

    def said(self) -> str:
        """What it has told people so far."""
        return self.err.read_text(errors="replace")

    def send(self, number: int, timeout: float = 60) -> tuple[Ended, float]:
        """Send a signal and wait for the end; how it ended, and the seconds that it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        ended = self.end(timeout)
        return ended, time.monotonic() - began

    def kill(self) -> Ended:
        """kill -9."""
        return self.send(signal.SIGKILL)[0]

    def wait_said(self, words: str, timeout: float = 60) -> None:
        """Until it has told people this, or has ended."""
        wait_until(lambda: words in self.said() or self.process.poll() is not None, f"{words!r}", timeout)


@dataclass
class BurstFolder:
    """A folder that nobody has prepared, with prompts, a workflow and bursts."""

    root: Path
    server: str
    saves_to: Path | None = None
    """Where the server saves its pictures, if that can be seen."""
    host: ServerProcess | None = None
    """The server, if it is this folder's own."""
    environment: dict[str, str] = field(default_factory=dict)
    started: list[Running] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Every prompt that was written, by its absolute path."""

    def __post_init__(self) -> None:
        self._renders_before = self.renders() or 0
        self.prompts.mkdir(parents=True)
        self.use(text_picture())

    @property
    def prompts(self) -> Path:
        return self.root / "prompts"

    @property
    def state(self) -> Path:
        return self.root / "re_render_state.json"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def database(self) -> Path:
        return self.root / "database" / "comfyui_agent.db"

    @property
    def results(self) -> list[str]:
        """Every file below the output folder, hidden ones included."""
        found = self.output.rglob("*")
        return sorted(path.relative_to(self.output).as_posix() for path in found if not path.is_dir())

    def use(self, graph: Mapping[str, Any]) -> None:
        (self.root / "book.json").write_text(json.dumps(graph), encoding="utf-8")

    def write(self, name: str, text: str | bytes | None = None) -> str:
        """A prompt file, such as `EP01/prompt_1.txt`; its absolute path."""
        path = self.prompts / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = f"a fox, as told in {name}" if text is None else text
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if isinstance(content, str):
            self.texts[str(path)] = content.strip()
        return str(path)

    def write_many(self, count: int, a_folder: int = 30) -> list[str]:
        """So many prompts in folders EP01, EP02, …; their paths in the order in which people count."""
        return [self.write(f"EP{n // a_folder + 1:02}/prompt_{n % a_folder + 1}.txt") for n in range(count)]

    # Bursts.

    def arguments(self, *flags: str, node: str = NODE) -> list[str]:
        given = ["--server", self.server] if "--server" not in flags else []
        given += ["--poll", "0.1"] if "--poll" not in flags else []
        return ["burst", "prompts", "--workflow", "book.json", "--node", node, *given, *flags]

    def start(self, *flags: str, dies: str = "", **environment: str) -> Running:
        """One burst in the background; with `dies` it is killed at that moment, which `dying_burst.py` knows."""
        place = self.root / "said"
        place.mkdir(exist_ok=True)
        out, err = place / f"{len(self.started)}.out", place / f"{len(self.started)}.err"
        program = [DYING, dies] if dies else ["-m", "comfyui_agent"]
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, *program, *self.arguments(*flags)],
                stdout=stdout,
                stderr=stderr,
                cwd=self.root,
                env={**os.environ, **QUICK, **self.environment, **environment},
                start_new_session=True,
            )
        running = Running(process, out, err)
        self.started.append(running)
        return running

    def run(self, *flags: str, timeout: float = 60, **environment: str) -> Ended:
        """One burst in a process of its own, to its end."""
        return self.start(*flags, **environment).end(timeout)

    def die(self, moment: str, *flags: str) -> Ended:
        """One burst that kill -9 meets at an exact moment."""
        ended = self.start(*flags, dies=moment).end()
        assert ended.code == -signal.SIGKILL, ended
        return ended

    def call(self, *flags: str, node: str = NODE, **environment: str) -> Ended:
        """One burst in this process, to its end, in less time: the same lines and exit status."""
        return self.e3(*self.arguments(*flags, node=node), **environment)

    def e3(self, *arguments: str, **environment: str) -> Ended:
        """`e3` in this process and in this folder."""
        out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
        with (
            mock.patch.object(sys, "argv", ["e3", *arguments]),
            mock.patch.dict(os.environ, {**QUICK, **self.environment, **environment}),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            os.chdir(self.root)
            try:
                main()
            except SystemExit as leaving:
                code = leaving.code or 0
            finally:
                os.chdir(before)
        assert isinstance(code, int)
        return Ended(code, out.getvalue(), err.getvalue())

    def stop(self) -> None:
        """End whatever still runs of this folder."""
        for running in self.started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait(60)

    # What is known.

    def items(self) -> dict[str, dict[str, Any]]:
        """The state file, which is one at every moment."""
        return dict(json.loads(self.state.read_text(encoding="utf-8")))

    def words(self) -> dict[str, str]:
        """What the state file says of each prompt, by its path below the folder of prompts."""
        return {os.path.relpath(key, self.prompts): item["status"] for key, item in self.items().items()}

    def edit(self, change: Callable[[dict[str, dict[str, Any]]], object]) -> None:
        """What a person does with an editor."""
        items = self.items()
        change(items)
        self.state.write_text(json.dumps(items, indent=2), encoding="utf-8")

    def set(self, key: str, word: str) -> None:
        """Set one item to another word by hand, and nothing else."""
        self.edit(lambda items: items[key].update(status=word))

    def rows(self, sql: str) -> Rows:
        """Ask the database, in a process of its own."""
        return in_the_shell(self.database, sql)

    def renders(self) -> int | None:
        """How many pictures the server has saved since this folder is there: one each time that it renders."""
        if self.saves_to is None:
            return None
        return renders([self.saves_to]) - getattr(self, "_renders_before", 0)

    @property
    def batch_id(self) -> str:
        ((row),) = self.rows("SELECT id FROM batches WHERE kind = 'burst'")
        return str(row["id"])

    def result_of(self, key: str) -> Path:
        """Where the result of a prompt belongs, by the promise alone."""
        below = Path(os.path.relpath(key, self.prompts))
        return self.output / below.parent / f"{below.stem}.png"


def check_all_done(folder: BurstFolder) -> None:
    """Every prompt is completed, was rendered once, its result is there, whole, its own; nothing else lies about."""
    keys = list(folder.texts)
    items = folder.items()
    assert set(items) == set(keys)
    assert {item["status"] for item in items.values()} == {"completed"}
    assert folder.results == sorted(folder.result_of(key).relative_to(folder.output).as_posix() for key in keys)
    for key in keys:
        assert text_of(folder.result_of(key)) == folder.texts[key]
    beside = {path.name for path in folder.state.parent.glob(f".{folder.state.name}*")}
    assert beside <= {f".{folder.state.name}.lock"}
    assert folder.renders() in (len(keys), None)
    ends = "SELECT sum(outcome = 'done') AS done, sum(outcome IS NULL) AS open FROM attempts"
    assert folder.rows(ends) == [{"done": len(keys), "open": 0}]
    assert folder.rows("SELECT max(retries_attempted) AS charged FROM jobs") == [{"charged": 0}]


def wait_until(condition: Callable[[], object], what: str, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.01)


@dataclass
class Watcher:
    """Reads a state file all the time, and believes nothing that it does not see."""

    folder: BurstFolder
    looks: int = 0
    lies: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _most: int = 0

    def look(self) -> None:
        try:
            data = self.folder.state.read_bytes()
        except FileNotFoundError:
            if self.looks:
                self.lies.append("the file was gone")
            return
        self.looks += 1
        try:
            items = json.loads(data.decode("utf-8"))
        except ValueError as error:
            self.lies.append(f"no JSON: {error}: {data[:100]!r}")
            return
        if len(items) < self._most:
            self.lies.append(f"{len(items)} items, and there were {self._most}")
        self._most = max(self._most, len(items))
        completed = {key for key, item in items.items() if item["status"] == "completed"}
        self.lies += [f"{key} was completed, and is not any more" for key in self._seen - completed]
        for key in completed - self._seen:
            self._check(key)
        self._seen |= completed

    def _check(self, key: str) -> None:
        try:
            text = text_of(self.folder.result_of(key))
        except (OSError, SyntaxError, KeyError) as error:
            self.lies.append(f"{key} is completed, and its result is not there: {error}")
        else:
            if text != self.folder.texts[key]:
                self.lies.append(f"{key} has the result of another: {text}")


@contextlib.contextmanager
def watched(folder: BurstFolder) -> Iterator[Watcher]:
    """Somebody reads the state file of a folder meanwhile; at the end nothing in it was ever untrue."""
    watcher, over = Watcher(folder), threading.Event()
    errors: list[Exception] = []

    def watch() -> None:
        while not over.wait(0.002):
            try:
                watcher.look()
            except Exception as error:  # noqa: BLE001 - told to the test
                errors.append(error)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield watcher
    finally:
        over.set()
        thread.join(60)
    assert errors == []
    assert watcher.lies == []
    assert watcher.looks


def is_there(pid: int) -> bool:
    """Whether a process lives; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

"""Row 21: whatever lies in the folder of job files is one failed row or one line; good files are still taken in."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from support.agents import wait_until
from support.breakage import Stranger
from support.sampling import some
from support.servers import ServerProcess, simulator
from support.workspaces import call_e3 as e3
from support.yaml_workspaces import (
    COLOUR,
    YamlWorkspace,
    colour_job,
    give_to_nobody,
    picture_job,
    seconds_until,
    workspace_of_nobody,
    write_picture,
    yaml_workspaces,
)

SAMPLES = Path(__file__).parents[2] / "src" / "comfyui_agent" / "config" / "samples"
HEAD = f"job_type: T2I\nworkflow_id: {COLOUR}\n"
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = simulator(tmp_path_factory.mktemp("server")).start()
    yield process
    process.kill()


class Yard:
    """A workspace with an agent at work, and neighbours that are none of its business."""

    def __init__(self, workspace: YamlWorkspace) -> None:
        self.workspace = workspace
        self.outside = workspace.root.parent / "outside"
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text("nobody's business")
        write_picture(self.outside / "secret.png")
        self._before = self._neighbours()
        self.agent = workspace.start()
        self._number = 0

    def drop(self, content: str | bytes, name: str = "") -> str:
        """A file under a name of its own; that name."""
        self._number += 1
        name = name or f"bad_{self._number:04}.yaml"
        data = content.encode() if isinstance(content, str) else content
        (self.workspace.processing / name).write_bytes(data)
        return name

    def failed(self, name: str, words: str = "", timeout: float = 60) -> Job:
        """The one failed row that a bad file becomes: never run, with a line that says where, what, and what to do."""
        job = self.workspace.wait_end(name, JobStatus.FAILED, timeout)
        assert job.run_count == 0
        assert job.failure_class == "invalid"
        lines = (job.error_trace or "").splitlines()
        assert 1 <= len(lines) <= 20
        assert lines[0].startswith(f"invalid: jobs/processing/image/{name}")
        assert words in lines[0], lines[0]
        assert all(f"jobs/processing/image/{name}" in line for line in lines)
        return job

    def still_works(self) -> None:
        """A good file is rendered, nobody's files were touched, and nothing broke on the way."""
        self._number += 1
        name = f"good_{self._number:04}.yaml"
        self.workspace.drop(name, colour_job(100_000 + self._number))
        job = self.workspace.wait_end(name)
        assert (self.workspace.root / job.outputs[0]).is_file()
        assert self.agent.poll() is None, self.workspace.tail()
        assert "Traceback" not in self.workspace.text(), self.workspace.tail()
        assert self._neighbours() == self._before

    def _neighbours(self) -> dict[str, Any]:
        """All that no job may touch: what lies beside the workspace, and how it is set up."""
        root = self.workspace.root
        places = [self.outside, root / "config", root / "workflows"]
        found: dict[str, Any] = {"beside": sorted(os.listdir(root.parent))}
        for path in (inner for place in places for inner in place.rglob("*")):
            found[str(path)] = path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else None
        return found


@pytest.fixture(scope="module")
def yard(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """One agent for all that cannot hold it up."""
    with yaml_workspaces(tmp_path_factory.mktemp("shared")) as make:
        yield Yard(with_prompts(make(server.url)))


@pytest.fixture
def own_yard(server: ServerProcess, tmp_path: Path) -> Iterator[Yard]:
    """An agent of one's own, for what might."""
    with yaml_workspaces(tmp_path) as make:
        yield Yard(make(server.url))


@pytest.fixture
def resting(server: ServerProcess, tmp_path: Path) -> Iterator[YamlWorkspace]:
    """A workspace where no agent runs yet."""
    with yaml_workspaces(tmp_path) as make:
        yield make(server.url)


def with_prompts(workspace: YamlWorkspace) -> YamlWorkspace:
    """The workflow that people begin with, beside the others."""
    name = "wf_realistic_portrait"
    shutil.copy(SAMPLES / "workflows" / f"{name}.json", workspace.root / "workflows")
    recipes = workspace.root / "config" / "workflows.yaml"
    entry = f'{name}:\n  template_path: workflows/{name}.json\n  inputs:\n    prompt: "2.text"\n    seed: "5.seed"\n'
    recipes.write_text(recipes.read_text() + entry)
    return workspace


# What is written in a file.


def bomb() -> str:
    """A billion laughs: nine levels of nine."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for here, below in zip("bcdefghij", "abcdefghi", strict=True):
        lines.append(f"{here}: &{here} [{', '.join([f'*{below}'] * 9)}]")
    return "\n".join(lines)


CONTENTS = {
    "bomb": (bomb(), "more than 100,000 values"),
    "bomb_of_merges": (
        HEAD + "a: &a {k: 1}\n" + "".join(f"m{n}: &m{n}\n  <<: [*a, *a]\n" for n in range(200)),
        "there is no such key",
    ),
    "anchor_in_itself": (HEAD + "inputs: &me {color: 1, again: *me}\n", "stands for nothing"),
    "binary": (random.Random(1).randbytes(50_000), "UTF-8"),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(5000), "UTF-8"),
    "zeros": (bytes(10_000), "not YAML"),
    "utf_16": ("job_type: T2I\n".encode("utf-16"), "UTF-8"),
    "escape_sequences": (HEAD + "inputs: {color: \x1b[2J}\n", "not YAML"),
    "empty": ("", "it is empty"),
    "comments_only": ("# nothing\n\n# at all\n", "it is empty"),
    "a_list": ("- job_type: T2I\n", "not a mapping"),
    "a_word": ("T2I\n", "not a mapping"),
    "two_documents": (HEAD + "---\n" + HEAD, "more than one document"),
    "key_twice": (HEAD + "job_type: T2V\n", "'job_type' is there twice"),
    "tab": ("job_type:\n\tT2I\n", "not YAML"),
    "cut_short": (HEAD + 'inputs: {color: 1, name: "kni', "not YAML"),
    "python_tag": (HEAD + "inputs: {color: !!python/object/apply:os.system ['touch /tmp/e3-owned']}\n", "tag"),
    "own_tag": (HEAD + "inputs: !include /etc/passwd\n", "tag"),
    "deep_lists": ("inputs: " + "[" * 100_000, "nested more than 40 deep"),
    "deep_mappings": ("a:" + " {a:" * 50_000, "nested more than 40 deep"),
    "list_as_key": (HEAD + "? [a, b]\n: 1\n", "cannot be a key"),
    "long_number": (HEAD + f"inputs: {{color: '{'9' * 50_000}'}}\n", "takes a whole number"),
    "huge_priority": (colour_job(1) + f"priority: {'9' * 390}\n", "priority"),
    "huge_timeout": (colour_job(1) + f"timeout_seconds: {'9' * 390}\n", "timeout_seconds"),
    "infinite_timeout": (colour_job(1) + "timeout_seconds: 1e999\n", "too large for a number"),
    "too_many_values": ("".join(f"k{n}: 1\n" for n in range(90_000)), "more than 100,000 values"),
}


@pytest.mark.parametrize("case", some(CONTENTS, 6))
def test_a_file_that_is_no_job_is_one_failed_row(yard: Yard, case: str) -> None:
    content, words = CONTENTS[case]
    yard.failed(yard.drop(content), words)
    yard.still_works()
    assert not Path("/tmp/e3-owned").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        pytest.param("".join(f"key_{n:05}: 1\n" for n in range(49_000)), id="keys"),
        pytest.param(f"{HEAD}inputs:\n" + "".join(f"  key_{n:05}: 1\n" for n in range(49_000)), id="inputs"),
    ],
)
def test_a_megabyte_of_keys_is_one_failed_row_with_twenty_lines(yard: Yard, content: str) -> None:
    yard.failed(yard.drop(content))
    yard.still_works()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(HEAD + "inputs: {color: 1}\n? '" + "k" * 900_000 + "'\n: 1\n", id="key"),
        pytest.param(HEAD + "inputs:\n  color: 1\n  ? '" + "k" * 900_000 + "'\n  : 1\n", id="input"),
        pytest.param(colour_job(1, outputs={"node": "9" * 900_000}), id="node"),
    ],
)
def test_what_is_a_megabyte_long_is_named_in_a_line_that_can_be_read(yard: Yard, content: str) -> None:
    job = yard.failed(yard.drop(content))
    assert len(job.error_trace or "") < 2_000
    assert re.search("there is no such key|has no place|has no node", job.error_trace or "")


@pytest.mark.slow
def test_a_megabyte_of_merged_keys_holds_nobody_up(own_yard: Yard) -> None:
    parts = ", ".join(f"{{k{n}: 1}}" for n in range(33_000))
    name = own_yard.drop(f"{HEAD}inputs:\n  <<: [{parts}]\n")
    own_yard.failed(name, timeout=15)
    own_yard.still_works()


WRONG: dict[str, list[str]] = {
    "job_type": ["1", "1.5", "true", "null", "[T2I]", "{T2I: 1}", "T9I", "''", "2025-08-09"],
    "workflow_id": ["1", "true", "null", "[]", "{}", "''", "no_such", "../config/x", "/etc/passwd", '"a\\0b"'],
    "priority": ["high", "1.5", "true", "[]", "{}", "''", "99999999999", "-99999999999", ".inf", ".nan"],
    "inputs": ["1", "text", "true", "[color]", "[1, 2]"],
    "outputs": ["1", "text", "true", "[]", "[file_path]", "{file: x}"],
    "outputs.file_path": ["1", "true", "[]", "{}", "''", '"a\\0b.png"', f'"{"x" * 1001}"'],
    "outputs.node": ["1.5", "true", "[]", "{}", "''", "99"],
    "metadata": ["1", "text", "true", "[]", "[a]"],
    "retry_limit": ["many", "1.5", "true", "[]", "{}", "-1", "1001"],
    "timeout_seconds": ["soon", "true", "[]", "{}", "0", "-1", ".inf", ".nan", "99999999"],
    "inputs.color": ["red", "true", "{}", "[]", "[1, 2]", "null"],
    "inputs.size": ["large", "{}", "[]", "false"],
}


@pytest.mark.slow
def test_a_wrong_type_for_any_key_is_one_failed_row_that_names_the_key(yard: Yard) -> None:
    dropped: dict[str, tuple[str, str]] = {}
    for key, values in WRONG.items():
        for value in values:
            section, _, inner = key.partition(".")
            lines = {"job_type": "T2I", "workflow_id": COLOUR, "inputs": "{color: 1}"}
            lines[section] = f"{{{inner}: {value}}}" if inner else value
            if key == "inputs.size":
                lines["inputs"] = f"{{color: 1, size: {value}}}"
            dropped[yard.drop("".join(f"{each}: {text}\n" for each, text in lines.items()))] = key, value
    for name, (key, value) in dropped.items():
        job = yard.failed(name)
        assert any(key.partition(".")[0] in line for line in (job.error_trace or "").splitlines()), (key, value)
    yard.still_works()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: path.write_bytes(b"# x\n" * (25 * MEGABYTE)), id="100MB"),
        pytest.param(lambda path: (path.touch(), os.truncate(path, 100 * MEGABYTE)), id="100MB-sparse"),
        pytest.param(lambda path: (path.touch(), os.truncate(path, 64 * 1024 * MEGABYTE)), id="64GB-sparse"),
        pytest.param(lambda path: path.write_bytes(b"#" * (MEGABYTE + 1)), id="just-over"),
    ],
)
def test_a_large_file_is_not_read(yard: Yard, make: Any, request: pytest.FixtureRequest) -> None:
    path = yard.workspace.processing / f"large_{request.node.callspec.id}.yaml"
    yard.still_works()  # so that whatever it needs is in memory
    before = peak_megabytes(yard)
    make(path)
    yard.failed(path.name, "a job file has at most 1 MB")
    assert peak_megabytes(yard) - before < 30
    path.unlink()
    yard.still_works()


def peak_megabytes(yard: Yard) -> float:
    status = Path(f"/proc/{yard.agent.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


def test_a_large_metadata_is_kept_as_it_is_and_a_huge_one_is_refused(yard: Yard) -> None:
    metadata = {"text": "x" * 20_000, "many": {f"k{n}": [n, str(n)] for n in range(1_000)}, "日本": "🙂"}
    yard.workspace.drop("large_metadata.yaml", colour_job(7, metadata=metadata))
    assert json.loads(yard.workspace.wait_end("large_metadata.yaml").metadata or "") == metadata
    yard.workspace.drop("huge_metadata.yaml", colour_job(7, metadata={"text": "x" * 400_000}))
    refused = yard.workspace.wait_end("huge_metadata.yaml", JobStatus.FAILED)
    assert "a job may have 64 KB" in (refused.error_trace or "")
    yard.still_works()


EVIL_PROMPTS = [
    "$(touch e3_was_here); `touch e3_was_here` | rm -rf . && :(){ :& };:",
    "'); DROP TABLE jobs; --\"",
    "<script>alert(1)</script>{{7*7}}$HOME%s%n\\\\..\\..",
    "_import_('os').system('touch e3_was_here')",
    "日本 🙂 \u202e right to left \u0301\u0301",
]


@pytest.mark.parametrize("number", range(len(EVIL_PROMPTS)))
def test_a_script_in_a_prompt_is_a_text(yard: Yard, server: ServerProcess, number: int) -> None:
    prompt = EVIL_PROMPTS[number]
    inputs = json.dumps({"prompt": prompt, "seed": number}, ensure_ascii=False)
    yard.workspace.drop(f"evil_{number}.yaml", f"job_type: T2I\nworkflow_id: wf_realistic_portrait\ninputs: {inputs}\n")
    job = yard.workspace.wait_end(f"evil_{number}.yaml")
    graph = Stranger(server.url).get(f"/history/{job.prompt_id}")[job.prompt_id]["prompt"][2]
    assert graph["2"]["inputs"]["text"] == prompt
    assert not list(yard.workspace.root.rglob("*was_here*"))
    assert not Path("e3_was_here").exists()
    yard.still_works()


def test_what_a_prompt_leaves_open_is_drawn_and_never_run(yard: Yard, server: ServerProcess) -> None:
    """A fork bomb has two choices, the environment is no input, and what a program would import is no wildcard."""
    prompts = {"bomb": ":(){ :|:& };:", "home": "${HOME}", "imported": "__import__('os').system('touch e3_was_here')"}
    for name, prompt in prompts.items():
        inputs = json.dumps({"prompt": prompt, "seed": 7})
        yard.workspace.drop(f"{name}.yaml", f"job_type: T2I\nworkflow_id: wf_realistic_portrait\ninputs: {inputs}\n")
    job = yard.workspace.wait_end("bomb.yaml")
    graph = Stranger(server.url).get(f"/history/{job.prompt_id}")[job.prompt_id]["prompt"][2]
    assert graph["2"]["inputs"]["text"] in (":() :;:", ":(){ :|:& };:".replace("{ :|:& }", ":& "))
    refused = [
        yard.workspace.wait_end(f"{name}.yaml", JobStatus.FAILED).error_trace or "" for name in ("home", "imported")
    ]
    assert "${HOME} names no other input" in refused[0]
    assert "__import__ is no wildcard" in refused[1]
    assert not list(yard.workspace.root.rglob("*was_here*"))
    yard.still_works()


# What a file is called.

GOOD_NAMES = [
    "日本.yaml",
    "\u00e9.yaml",
    "e\u0301.yaml",
    "🙂.yaml",
    "\u05d0\u05d1\u05d2.yaml",
    "two words.yaml",
    " .yaml",
    "-rf.yaml",
    "--help.yaml",
    "%s%n.yaml",
    "{0}.yaml",
    "'\"`.yaml",
    "$(touch e3_was_here).yaml",
    "*.yaml",
    "?[a].yaml",
    "#.yaml",
    "&.yml",
    "CON.yaml",
    "1.yaml",
    "v1.5.yaml",
    "x.png.yaml",
    "n" * 250 + ".yaml",
    "日" * 83 + ".yaml",
]


def test_names_of_any_letters_are_rendered_and_moved(yard: Yard) -> None:
    for number, name in enumerate(GOOD_NAMES):
        yard.workspace.drop(name, colour_job(5000 + number), is_plain=True)
    for name in GOOD_NAMES:
        job = yard.workspace.wait_end(name)
        stem = name.removesuffix(".yaml").removesuffix(".yml")
        assert job.outputs == (f"jobs/finished/image/{stem}.png",)
        wait_until((yard.workspace.finished / name).is_file, f"{name} to be put away")
        assert not (yard.workspace.processing / name).exists()
    assert not list(yard.workspace.root.rglob("e3_was_here"))
    yard.still_works()


BAD_NAMES = [b"new\nline.yaml", b"clear\x1b[2J.yaml", b"bell\x07.yaml", b"tab\t.yaml", b"\xff\xfe.yaml", b"\xc3.yaml"]


@pytest.mark.parametrize("is_there_first", some([True, False], 2))
def test_names_that_cannot_be_written_are_one_line_each_and_no_row(
    server: ServerProcess, resting: YamlWorkspace, is_there_first: bool
) -> None:
    agent = None if is_there_first else Yard(resting)
    for name in BAD_NAMES:
        Path(os.fsdecode(os.fsencode(resting.processing) + b"/" + name)).write_text(colour_job(1))
    agent = agent or Yard(resting)
    agent.still_works()
    for name in BAD_NAMES:
        shown = repr(os.fsdecode(name))[1:-1]
        resting.wait_log(shown, timeout=15)
        assert resting.text().count(shown) == 1
    assert "\x1b[2J" not in resting.text()
    assert len(resting.jobs()) == 1
    doctor = resting.call("doctor")
    assert doctor.returncode == 1
    assert "Traceback" not in doctor.stderr
    assert sum("control characters" in line for line in doctor.stdout.splitlines()) == len(BAD_NAMES)


@pytest.mark.parametrize("is_there_first", some([True, False], 2))
def test_a_folder_that_is_not_utf_8_holds_nobody_up(resting: YamlWorkspace, is_there_first: bool) -> None:
    agent = None if is_there_first else Yard(resting)
    folder = Path(os.fsdecode(os.fsencode(resting.processing) + b"/caf\xe9"))
    folder.mkdir()
    (folder / "in.yaml").write_text(colour_job(1))
    agent = agent or Yard(resting)
    seconds_until(lambda: resting.has_row("in.yaml") or "caf" in resting.text(), "a row or a line", timeout=15)
    agent.still_works()
    assert e3("queue", "ls", "-C", str(resting.root)).returncode == 0


# What only looks like a file.


def test_links_pipes_sockets_and_folders_are_neither_followed_nor_waited_for(yard: Yard) -> None:
    folder = yard.workspace.processing
    (folder / "to_passwd.yaml").symlink_to("/etc/passwd")
    (folder / "to_secret.yaml").symlink_to(yard.outside / "secret.txt")
    (folder / "to_nowhere.yaml").symlink_to(yard.outside / "not_there.yaml")
    (folder / "to_folder.yaml").symlink_to(yard.outside)
    os.mkfifo(folder / "pipe.yaml")
    leave_socket(folder, "s.yaml")
    (folder / "folder.yaml").mkdir()
    for name in ("to_passwd.yaml", "to_secret.yaml", "to_nowhere.yaml"):
        job = yard.failed(name, "it is a link: put the file itself here")
        assert "root:" not in (job.error_trace or "")
    yard.failed("pipe.yaml", "it is not a file")
    yard.failed("s.yaml", "it cannot be read")
    yard.workspace.wait_log("to_folder.yaml", timeout=15)
    assert not yard.workspace.has_row("folder.yaml")
    yard.still_works()


def leave_socket(folder: Path, name: str) -> None:
    """A socket's path may have 107 letters: by way of the folder's number."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"/proc/self/fd/{handle}/{name}")
    finally:
        os.close(handle)


def test_a_device_is_not_read(yard: Yard) -> None:
    path = yard.workspace.processing / "zero.yaml"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root can make a device")
    try:
        yard.failed(path.name)
    finally:
        path.unlink()
    yard.still_works()


@pytest.mark.parametrize("is_there_first", some([True, False], 2))
def test_links_in_circles_are_one_failed_row_or_one_line_each(resting: YamlWorkspace, is_there_first: bool) -> None:
    agent = None if is_there_first else Yard(resting)
    (resting.processing / "itself.yaml").symlink_to("itself.yaml")
    (resting.processing / "left.yaml").symlink_to("right.yaml")
    (resting.processing / "right.yaml").symlink_to("left.yaml")
    agent = agent or Yard(resting)
    agent.still_works()
    for name in ("itself.yaml", "left.yaml", "right.yaml"):
        seconds_until(
            lambda name=name: resting.has_row(name) or name in resting.text(), f"a word on {name}", timeout=10
        )


@pytest.mark.slow
def test_what_lies_behind_a_link_is_not_watched(resting: YamlWorkspace) -> None:
    far = resting.root.parent / "far"
    for number in range(50):
        (far / f"folder_{number}").mkdir(parents=True)
    (resting.processing / "link").symlink_to(far)
    agent = Yard(resting)
    agent.still_works()
    folders = sum(1 for path in (resting.root / "jobs" / "processing").rglob("*") if path.is_dir())
    handles = Path(f"/proc/{agent.agent.pid}/fdinfo").iterdir()
    watched = sum(handle.read_text().count("inotify wd") for handle in handles)
    assert watched <= folders + 10


@pytest.mark.slow
def test_a_file_that_becomes_a_pipe_while_its_job_runs_does_not_stop_the_agent_from_leaving(
    tmp_path: Path,
) -> None:
    slow = simulator(tmp_path / "slow", "--render-seconds", "1").start()
    try:
        with yaml_workspaces(tmp_path) as make:
            workspace = make(slow.url)
            agent = workspace.start()
            path = workspace.drop("knight.yaml", colour_job(1))
            workspace.wait_row(path.name)
            workspace.wait_end(path.name, JobStatus.PROCESSING)
            path.unlink()
            os.mkfifo(path)
            workspace.wait_end(path.name)
            agent.terminate()
            assert agent.wait(6) == 143
    finally:
        slow.kill()


# Where results and pictures shall be.

BAD_RESULTS = [
    "../x.png",
    "../outside/x.png",
    "jobs/finished/image/../../../../outside/x.png",
    "/etc/e3_x.png",
    "/x.png",
    "//x.png",
    "out/x.png",
    "out/../x.png",
    "config/x.png",
    "config/global_config.yaml",
    "./config/../config/workflows.yaml",
    "database/x.png",
    "database/comfyui_agent.db",
    "database/inputs/x.png",
    "jobs/processing/x.png",
    "jobs/processing/image/x.yaml",
    "jobs/finished/../processing/image/x.png",
    "jobs/finished/image",
    "jobs/finished/image/",
    "jobs/finished/image/.",
    "jobs/finished/image/..",
    ".",
    "..",
    "/",
    "a\\",
]


def test_a_result_that_would_go_where_none_belongs_is_refused_before_it_is_rendered(yard: Yard) -> None:
    """`out` is a link that leads out of the workspace."""
    out = yard.workspace.root / "out"
    out.symlink_to(yard.outside)
    names = {yard.drop(colour_job(1, outputs={"file_path": path})): path for path in BAD_RESULTS}
    for name, path in names.items():
        if path == "out/../x.png":  # which is beside `outside`, as the system sees it
            assert not (yard.outside.parent / "x.png").exists()
        job = yard.failed(name, "outputs.file_path")
        assert job.outputs == (), path
    out.unlink()
    assert not Path("/etc/e3_x.png").exists()
    yard.still_works()


def test_an_absolute_path_in_the_workspace_is_as_good_as_a_relative_one(yard: Yard) -> None:
    path = yard.workspace.root / "album" / "deep" / "absolute.png"
    yard.workspace.drop("absolute.yaml", colour_job(3, outputs={"file_path": str(path)}))
    assert yard.workspace.wait_end("absolute.yaml").outputs == ("album/deep/absolute.png",)
    assert path.is_file()
    yard.still_works()


def test_a_picture_outside_the_workspace_is_not_read(yard: Yard) -> None:
    link = write_picture(yard.workspace.root / "pictures" / "mine.png").with_name("link.png")
    link.symlink_to(yard.outside / "secret.png")
    wishes = ["/etc/passwd", str(yard.outside / "secret.png"), "../outside/secret.png", "pictures/link.png", "~/x.png"]
    names = [yard.drop(picture_job(wish)) for wish in wishes]
    for name in names:
        yard.failed(name, "inputs.image")
    kept = yard.workspace.root / "database" / "inputs"
    assert not kept.exists() or (yard.outside / "secret.png").read_bytes() not in [
        path.read_bytes() for path in kept.iterdir()
    ]
    yard.still_works()


LONG = "x" * 300
TOO_LONG = {
    "file_path": colour_job(1, outputs={"file_path": f"jobs/finished/image/{LONG}.png"}),
    "workflow_id": f"job_type: T2I\nworkflow_id: '{'語' * 200}'\ninputs: {{color: 1}}\n",
    "picture": picture_job(f"{LONG}.png"),
}


@pytest.mark.parametrize("case", some(TOO_LONG, 3))
def test_a_name_that_no_disk_takes_is_one_failed_row_and_holds_nobody_up(own_yard: Yard, case: str) -> None:
    name = own_yard.drop(TOO_LONG[case])
    own_yard.workspace.drop("good.yaml", colour_job(1))
    own_yard.workspace.wait_end("good.yaml", timeout=10)
    if case != "picture":  # a bare name may be one that the server knows
        own_yard.failed(name)
    own_yard.still_works()


@pytest.mark.slow
def test_a_link_at_one_result_does_not_lead_the_results_of_others_astray(resting: YamlWorkspace) -> None:
    (resting.root / "elsewhere").mkdir()
    (resting.finished / "first.png").symlink_to(resting.root / "elsewhere" / "other.png")
    for number, name in enumerate(("first", "second")):
        path = f"jobs/finished/image/{name}.png"
        resting.drop(f"{name}.yaml", colour_job(number, outputs={"file_path": path}))
    assert resting.finish() == 0
    assert resting.job("second.yaml").outputs == ("jobs/finished/image/second.png",)


def test_a_link_at_a_result_does_not_lead_into_the_configuration(resting: YamlWorkspace) -> None:
    (resting.finished / "second.png").symlink_to(resting.root / "config" / "second.png")
    for number, name in enumerate(("first", "second")):
        path = f"jobs/finished/image/{name}.png"
        resting.drop(f"{name}.yaml", colour_job(number, outputs={"file_path": path}))
    resting.finish()
    assert sorted(os.listdir(resting.root / "config")) == ["global_config.yaml", "workflows.yaml"]


# Files that do not hold still.


@pytest.mark.slow
def test_files_that_come_change_and_vanish_all_the_time_do_no_harm(own_yard: Yard) -> None:
    workspace = own_yard.workspace
    over = threading.Event()
    writers = [threading.Thread(target=_restless, args=(workspace.processing, n, over), daemon=True) for n in range(3)]
    for writer in writers:
        writer.start()
    until = time.monotonic() + 6
    while time.monotonic() < until:
        own_yard.still_works()
    over.set()
    for writer in writers:
        writer.join(20)
    workspace.wait_for(lambda: _is_settled(workspace), "everything to be taken in", timeout=60)
    own_yard.still_works()
    names = [job.config_name for job in workspace.jobs()]
    assert len(names) == len(set(names))
    for job in workspace.jobs():
        assert all((workspace.root / path).is_file() for path in job.outputs)


def _restless(folder: Path, number: int, over: threading.Event) -> None:
    """Somebody who cannot make up their mind."""
    chance = random.Random(number)
    while not over.is_set():
        path = folder / f"restless_{number}_{chance.randrange(8)}.yaml"
        with contextlib.suppress(OSError):
            match chance.randrange(6):
                case 0:
                    path.unlink()
                case 1:
                    path.write_text(colour_job(chance.randrange(1000)))
                case 2:
                    path.write_text("job_type: [")
                case 3:
                    with path.open("a") as file:
                        file.write("# more\n")
                case 4:
                    hidden = path.with_suffix(".part")
                    hidden.write_text(colour_job(chance.randrange(1000)))
                    hidden.replace(path)
                case 5:
                    path.rename(path.with_name(f"restless_{number}_{chance.randrange(8)}.yaml"))
        time.sleep(chance.uniform(0, 0.05))


def _is_settled(workspace: YamlWorkspace) -> bool:
    """What lies there still is bad or was rejected, and nothing waits or runs."""
    counts = workspace.counts()
    failed = {job.config_name for job in workspace.jobs() if job.status is JobStatus.FAILED}
    left = {Path(name).name for name in workspace.waiting_files()}
    return not (counts.pending or counts.processing) and all(n in failed or n.endswith(".rejected") for n in left)


# Files that may not be read.


@pytest.fixture
def nobodys(server: ServerProcess) -> Iterator[YamlWorkspace]:
    with workspace_of_nobody(server.url) as workspace:
        yield workspace


@pytest.mark.slow
def test_a_file_that_may_not_be_read_is_one_failed_row_until_it_may(nobodys: YamlWorkspace) -> None:
    agent = nobodys.start()
    path = nobodys.processing / "private.yaml"
    hidden = nobodys.processing / ".private.part"
    hidden.write_text(colour_job(1))
    hidden.chmod(0)
    hidden.rename(path)
    job = nobodys.wait_end(path.name, JobStatus.FAILED)
    assert "it cannot be read: Permission denied" in (job.error_trace or "")
    nobodys.drop("good.yaml", colour_job(2))
    nobodys.wait_end("good.yaml")
    path.chmod(0o644)
    give_to_nobody(path)
    nobodys.wait_end(path.name)
    assert agent.poll() is None


@pytest.mark.slow
def test_a_folder_that_may_not_be_read_for_a_while_cancels_nothing(nobodys: YamlWorkspace) -> None:
    folder = nobodys.processing / "sub"
    folder.mkdir()
    (folder / "knight.yaml").write_text(colour_job(1))
    give_to_nobody(folder)
    nobodys.launch("monitor", E3_RESCAN_SECONDS="0.5")
    nobodys.wait_row("knight.yaml")
    folder.chmod(0)
    nobodys.wait_log("it cannot be read")
    nobodys.drop("good.yaml", colour_job(2))
    nobodys.wait_row("good.yaml")
    until = time.monotonic() + 3  # longer than a deleted file is waited for
    while time.monotonic() < until:
        assert nobodys.job("knight.yaml").status is JobStatus.PENDING
        time.sleep(0.1)


@pytest.mark.slow
def test_a_picture_that_may_not_be_read_holds_nobody_up(nobodys: YamlWorkspace) -> None:
    write_picture(nobodys.root / "private" / "picture.png").parent.chmod(0o700)
    nobodys.start()
    nobodys.drop("bad.yaml", picture_job("private/picture.png"))
    nobodys.drop("good.yaml", colour_job(2))
    nobodys.wait_end("good.yaml", timeout=10)
    job = nobodys.wait_end("bad.yaml", JobStatus.FAILED, timeout=10)
    assert "inputs.image" in (job.error_trace or "")

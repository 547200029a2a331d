"""The scripts inside ComfyUI's image: its entry point, its health check, and the installer of custom nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.shared_servers import Servers

COMFYUI = Path(__file__).parents[2] / "infra" / "comfyui"
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")


class Started(NamedTuple):
    returncode: int
    said: dict[str, Any]
    error: str
    pid: int
    data: Path


def start_comfyui(folder: Path, *flags: str, **environment: str) -> Started:
    """The entry point, in front of a ComfyUI that only says how it was started."""
    for name in ("home/models", "bin", "workflows"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    if not (folder / "bin" / "python").exists():
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "workflows" / "page.json").write_text("{}")
    tell = "import json, os, sys; print(json.dumps({'flags': sys.argv[1:], 'pid': os.getpid()}))"
    (folder / "home" / "main.py").write_text(tell)
    places = {f"COMFYUI_{name.upper()}": str(folder / name) for name in ("home", "data", "workflows")}
    process = subprocess.Popen(
        ["bash", str(COMFYUI / "entrypoint.sh"), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **places, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", **environment},
    )
    said, error = process.communicate(timeout=30)
    return Started(process.returncode, json.loads(said or "{}"), error, process.pid, folder / "data")


@needs_bash
def test_comfyui_listens_for_other_containers_and_writes_below_one_folder(tmp_path: Path) -> None:
    started = start_comfyui(tmp_path, "--lowvram")
    *flags, last = started.said["flags"]
    assert last == "--lowvram"
    flags.remove("--disable-auto-launch")
    given = dict(zip(flags[::2], flags[1::2], strict=True))
    assert (given.pop("--listen"), given.pop("--port")) == ("0.0.0.0", "8188")
    assert given.pop("--database-url") == f"sqlite:///{started.data}/user/comfyui.db"
    assert set(given) == {"--input-directory", "--output-directory", "--temp-directory", "--user-directory"}
    assert all(Path(place).is_dir() and Path(place).is_relative_to(started.data) for place in given.values())


@needs_bash
def test_comfyui_takes_the_place_of_the_script_so_that_signals_reach_it(tmp_path: Path) -> None:
    started = start_comfyui(tmp_path)
    assert started.said["pid"] == started.pid


@needs_bash
def test_a_second_comfyui_takes_another_port(tmp_path: Path) -> None:
    flags = start_comfyui(tmp_path, COMFYUI_PORT="8189").said["flags"]
    assert flags[flags.index("--port") + 1] == "8189"


@needs_bash
def test_workflows_are_copied_in_once(tmp_path: Path) -> None:
    place = start_comfyui(tmp_path).data / "user" / "default" / "workflows" / "page.json"
    assert place.read_text() == "{}"
    place.write_text("mine")
    assert start_comfyui(tmp_path).returncode == 0
    assert place.read_text() == "mine"


@needs_bash
def test_a_folder_that_cannot_be_written_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "output").write_text("a file where a folder must be")
    started = start_comfyui(tmp_path)
    assert started.returncode == 1
    assert started.error.count("\n") == 1
    assert f"cannot write to {tmp_path}/data/output" in started.error


@needs_bash
def test_models_that_cannot_be_read_are_named_in_one_line(tmp_path: Path) -> None:
    started = start_comfyui(tmp_path, COMFYUI_HOME=str(tmp_path / "elsewhere"))
    assert started.returncode == 1
    assert started.error.count("\n") == 1
    assert f"cannot read {tmp_path}/elsewhere/models" in started.error


def check_health(port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(COMFYUI / "health_check.py")]
    environment = {**os.environ, "COMFYUI_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_comfyui_that_answers_is_healthy(servers: Servers) -> None:
    told = check_health(int(servers.url("sim").rpartition(":")[2]))
    assert told.returncode == 0, told.stdout
    assert re.search(r": \d+ MB free", told.stdout)


class CardIsGone(BaseHTTPRequestHandler):
    """A ComfyUI that cannot ask its card any more."""

    def do_GET(self) -> None:
        self.send_error(500)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def without_card() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), CardIsGone) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_comfyui_whose_card_is_gone_is_not_healthy(without_card: int) -> None:
    told = check_health(without_card)
    assert told.returncode == 1
    assert told.stdout.startswith(f"ComfyUI at port {without_card} is not well")


def test_a_comfyui_that_is_not_there_is_not_healthy() -> None:
    assert check_health(9).returncode == 1


def git(*words: str, cwd: Path) -> str:
    who = ["-c", "user.name=anna", "-c", "user.email=anna@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *who, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def pack(tmp_path: Path) -> tuple[Path, str]:
    """A pack of custom nodes with two versions, and the commit of the first."""
    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    place = tmp_path / "pack.git"
    place.mkdir()
    git("init", "--quiet", cwd=place)
    (place / "requirements.txt").write_text("einops\n")
    commits = []
    for version in ("first", "second"):
        (place / "nodes.py").write_text(version)
        git("add", ".", cwd=place)
        git("commit", "--quiet", "--message", version, cwd=place)
        commits.append(git("rev-parse", "HEAD", cwd=place))
    return place, commits[0]


def install_nodes(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """The list of custom nodes installed into `nodes`, with a python that only notes what it was asked for."""
    (folder / "bin").mkdir()
    (folder / "bin" / "python").write_text(f'#!/bin/sh\necho "$@" >> "{folder}/asked"\n')
    (folder / "bin" / "python").chmod(0o755)
    (folder / "list.txt").write_text(text)
    return subprocess.run(
        ["bash", str(COMFYUI / "install_custom_nodes.sh"), "list.txt", "nodes"],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@needs_bash
def test_custom_nodes_are_installed_at_their_commit_with_what_they_need(pack: tuple[Path, str], tmp_path: Path) -> None:
    place, commit = pack
    told = install_nodes(tmp_path, f"# packs\n\n  {place}@{commit}   # the old one")
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "nodes" / "pack" / "nodes.py").read_text() == "first"
    assert not (tmp_path / "nodes" / "pack" / ".git").exists()
    assert (tmp_path / "asked").read_text() == "-m pip install --requirement nodes/pack/requirements.txt\n"


@needs_bash
@pytest.mark.parametrize("cut", [slice(0, 0), slice(0, 12)])
def test_custom_nodes_without_a_whole_commit_are_refused(cut: slice, pack: tuple[Path, str], tmp_path: Path) -> None:
    place, commit = pack
    told = install_nodes(tmp_path, f"{place}@{commit[cut]}\n")
    assert told.returncode == 1
    assert told.stderr.startswith("list.txt: ")
    assert told.stderr.count("\n") == 1


def test_the_list_of_custom_nodes_has_whole_commits_and_an_example() -> None:
    lines = (COMFYUI / "custom_nodes.txt").read_text(encoding="utf-8").splitlines()
    named = [line.removeprefix("# ") for line in lines if not line.startswith("#") or "https://" in line]
    assert named
    assert [line for line in named if not re.fullmatch(r"https://\S+@[0-9a-f]{40}", line)] == []

"""The plugin that ends what tests start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.agents import wait_until

TESTS = Path(__file__).parent.parent
LEAKY = """
import os, signal, subprocess, sys
from support.agents import wait_until
from unit.test_children import PARENT, is_running

def spinning():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, start_new_session=True)
    os.environ["PIDS"] = f"{parent.pid} {parent.stdout.readline().strip()}"
    print("PIDS", os.environ["PIDS"], flush=True)
"""
PARENT = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "while True: pass"]).pid, flush=True)
while True: pass
"""
FAILS = """
def test_that_fails():
    spinning()
    assert False

def test_after_it():
    for pid in os.environ["PIDS"].split():
        wait_until(lambda: not is_running(pid), pid)
"""
IS_KILLED = """
def test_that_is_killed():
    spinning()
    os.kill(os.getpid(), signal.SIGKILL)
"""


LEAVES_ONE_BEHIND = """
import subprocess

def test_that_leaves_one_behind():
    subprocess.run("sleep 60 > /dev/null 2>&1 &", shell=True, check=True)
"""
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def run_tests(folder: Path, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A run of one file with this plugin and no other."""
    (folder / "test_leaky.py").write_text(body)
    command = [sys.executable, "-m", "pytest", "-s", "-c", os.devnull, "--rootdir", str(folder)]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [*command, "-p", "support.children", "-p", "no:cacheprovider", *options, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )


@needs_proc
@pytest.mark.parametrize(("body", "code"), [(FAILS, 1), (IS_KILLED, -signal.SIGKILL)], ids=["failed", "killed"])
def test_what_a_test_starts_ends_with_it(tmp_path: Path, body: str, code: int) -> None:
    told = run_tests(tmp_path, LEAKY + body)
    assert told.returncode == code, told.stdout
    if body == FAILS:
        assert "1 failed, 1 passed" in told.stdout
    pids = told.stdout.partition("PIDS ")[2].splitlines()[0].split()
    assert len(pids) == 2
    for pid in pids:
        wait_until(lambda pid=pid: not is_running(pid), f"the end of {pid}")


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("options", [[], ["-p", "xdist", "-n", "1"]], ids=["alone", "in a worker"])
def test_a_process_that_nobody_owns_fails_the_run_and_is_named(tmp_path: Path, options: list[str]) -> None:
    told = run_tests(tmp_path, LEAVES_ONE_BEHIND, *options)
    assert told.returncode == 1, told.stdout
    assert "1 passed" in told.stdout
    assert "sleep 60 (started in test_leaky.py::test_that_leaves_one_behind (call))" in told.stdout


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

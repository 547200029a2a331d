"""Workspaces as `e3 init` makes them, with a workflow that renders at once, and job files for it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from comfyui_agent.cli.app import main
from comfyui_agent.config.scaffold import start_workspace
from support.agents import AgentWorkspace, sized_picture

NOWHERE = "http://127.0.0.1:9"
QUICK = {
    "E3_RETRY_BACKOFF_SECONDS": "0.2",
    "E3_POLL_INTERVAL_MS": "250",
}


def new_workspace(folder: Path, url: str = NOWHERE) -> AgentWorkspace:
    """What `e3 init --server URL` leaves, but for the database; `picture` is a workflow of two small nodes."""
    list(start_workspace(folder, url))
    (folder / "workflows" / "picture.json").write_text(json.dumps(sized_picture()), encoding="utf-8")
    return AgentWorkspace(folder, [url])


def job_text(color: int = 1, **changes: Any) -> str:
    """A job file; a change of None leaves that key out."""
    job = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": color}, **changes}
    return yaml.safe_dump({key: value for key, value in job.items() if value is not None}, allow_unicode=True)


def drop(workspace: AgentWorkspace, name: str, text: str | None = None, *, kind: str = "image") -> Path:
    """A job file, renamed into place; unlike all others unless its text is given."""
    folder = workspace.root / "jobs" / "processing" / kind
    text = job_text(int(hashlib.sha256(name.encode()).hexdigest()[:5], 16)) if text is None else text
    beside = folder / f".{name}.part"
    beside.write_text(text, encoding="utf-8")
    return beside.replace(folder / name)


def run_e3(
    *arguments: str,
    cwd: Path | None = None,
    module: str = "comfyui_agent",
    timeout: float = 60,
    preexec_fn: Any = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """`e3` to its end, with quick retries."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        env={**os.environ, **QUICK, "COLUMNS": "200", "NO_COLOR": "1", **environment},
        preexec_fn=preexec_fn,
        check=False,
    )


def call_e3(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`e3` in this process: the same lines and exit status without the time that a start takes. Not for agents."""
    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    with (
        mock.patch.object(sys, "argv", ["e3", *arguments]),
        mock.patch.dict(os.environ, {"COLUMNS": "200", "NO_COLOR": "1", **environment}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            os.chdir(cwd or before)
            main()
        except SystemExit as leaving:
            code = leaving.code or 0
        finally:
            os.chdir(before)
    assert isinstance(code, int)
    return subprocess.CompletedProcess(["e3", *arguments], code, out.getvalue(), err.getvalue())


def start_e3(workspace: AgentWorkspace, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """`e3` in the background, with quick retries; what it says is in the log of the workspace."""
    with workspace.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "comfyui_agent", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **QUICK, **environment},
            cwd=workspace.root,
            start_new_session=True,
        )
    workspace.processes.append(process)
    return process


def wait_for_words(workspace: AgentWorkspace, words: str | Sequence[str], timeout: float = 60) -> str:
    """Wait until the log of the workspace says all this; the log."""
    wanted = [words] if isinstance(words, str) else words
    deadline = time.monotonic() + timeout
    while True:
        told = workspace.log.read_text(encoding="utf-8") if workspace.log.exists() else ""
        if all(word in told for word in wanted):
            return told
        assert time.monotonic() < deadline, f"waited {timeout} s for {wanted}:\n{told[-3000:]}"
        time.sleep(0.02)


def everything_in(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file and folder below, with its time and a digest of its bytes, to see that nothing was changed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[path.relative_to(folder).as_posix()] = (path.stat().st_mtime_ns if path.is_file() else 0, digest)
    return found

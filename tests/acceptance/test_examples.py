"""The programs in examples/ work as they stand: against E3 as it runs, on the simulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from comfyui_agent.domain.webhooks import mint_secret
from comfyui_agent.remote import Client
from comfyui_agent.sim.process import free_port
from support.agents import wait_until
from support.command import e3
from support.shared_servers import Servers

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRET = mint_secret()


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Iterator[tuple[str, str]]:
    """`e3 run` on a new workspace, and the backend of the bookshop; their addresses."""
    folder, port, shop = tmp_path_factory.mktemp("examples"), free_port(), free_port()
    assert e3("init", "night", "--server", servers.url("sim"), cwd=folder).returncode == 0
    address, backend = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{shop}"
    hook = {"name": "shop", "url": f"{backend}/webhooks/e3", "events": ["book"], "allow": ["127.0.0.1"]}
    environment = {
        **os.environ,
        "E3_UI__ENABLED": "true",
        "E3_UI__PORT": str(port),
        "E3_WEBHOOKS": json.dumps([{**hook, "secret": "env:WEBHOOK_SECRET"}]),
        "WEBHOOK_SECRET": SECRET,
        "RENDER_URL": address,
    }
    commands = (["comfyui_agent", "run"], ["uvicorn", "book_backend:app", "--port", str(shop), "--app-dir", EXAMPLES])
    log = (folder / "log").open("wb")
    with log:
        running = [
            subprocess.Popen(
                [sys.executable, "-m", *map(str, command)],
                cwd=folder / "night",
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            for command in commands
        ]
    wait_until(lambda: answers(f"{address}/healthz") and answers(f"{backend}/docs"), "E3 and the shop")
    yield address, backend
    for process in running:
        process.kill()
        process.wait()


def run(name: str, *arguments: str, folder: Path, url: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "RENDER_URL": url},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_notebook_ends_with_a_grid_and_is_the_same_sweep_when_it_runs_again(
    night: tuple[str, str], tmp_path: Path
) -> None:
    said = [run("sweep_and_grid.py", folder=tmp_path, url=night[0]) for _ in range(2)]
    assert "look at portraits/grid.png" in said[1]
    pictures = {path.name for path in (tmp_path / "portraits").iterdir()}
    assert len(pictures) == 5
    with Client(night[0]) as client:
        assert len(client.jobs(workflow="wf_realistic_portrait", limit=100).jobs) == 4


def test_job_files_are_rendered_elsewhere_once(night: tuple[str, str], tmp_path: Path) -> None:
    job = {
        "job_type": "T2I",
        "workflow_id": "wf_realistic_portrait",
        "inputs": {"prompt": "an owl", "seed": 3, "steps": 4},
    }
    (tmp_path / "owl.yaml").write_text(json.dumps(job))
    first, again = (run("render_files.py", "owl.yaml", folder=tmp_path, url=night[0]) for _ in range(2))
    assert first == again
    assert first.startswith("owl.yaml: pictures/")
    assert len(list((tmp_path / "pictures").iterdir())) == 1


def test_the_shop_makes_a_book_once_and_is_told_when_it_has_ended(night: tuple[str, str]) -> None:
    order = f"{night[1]}/orders/4711"

    def ask(method: str) -> dict[str, Any]:
        body = json.dumps({"hero": "a small fox", "scenes": ["in the snow", "at home"]}).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(order, body if method == "PUT" else None, headers, method=method), timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    assert ask("PUT") == ask("PUT")
    wait_until(lambda: ask("GET")["told_at"], "the shop to be told", timeout=60)
    assert ask("GET") | {"told_at": ""} == {
        "order": "4711", "status": "complete", "done": 2, "of": 2, "attention": 0, "told_at": ""
    }  # fmt: skip


def test_the_workflow_for_github_names_what_is_there() -> None:
    text = (EXAMPLES / "render_on_push.yml").read_text(encoding="utf-8")
    assert "examples/render_files.py" in text

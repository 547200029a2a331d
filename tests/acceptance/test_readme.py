"""A newcomer's first hour: what the README tells them to type works as written."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.config.scaffold import SAMPLES
from support.agents import wait_until
from support.command import e3
from support.shared_servers import Servers

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
KNIGHT = "T2I_20250809123001_1_knight"


def typed() -> list[str]:
    """Every line of the walk through the first job, without its comments."""
    walk = README.partition("## Your first real job")[2].partition("\n## ")[0]
    blocks = re.findall(r"```\n(.*?)```", walk, re.DOTALL)
    return [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]


def row_of(night: Path, name: str) -> dict[str, Any]:
    answer = e3("show", name, "--json", cwd=night)
    return json.loads(answer.stdout) if answer.returncode == 0 else {}


def test_the_walk_has_the_steps_that_are_tried_here() -> None:
    assert typed() == [
        "source .venv/bin/activate",
        "e3 init night",
        "cd night",
        "e3 doctor",
        "e3 run",
        f"cp examples/{KNIGHT}.yaml jobs/processing/image/",
        "e3 queue ls",
        f"e3 show {KNIGHT}",
        "ls jobs/finished/image",
    ]


def test_the_job_in_the_readme_is_the_example() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert block == (SAMPLES / "jobs" / f"{KNIGHT}.yaml").read_text(encoding="utf-8")


@pytest.mark.timeout(600)
def test_the_walk_ends_in_a_picture(servers: Servers, server_kind: str, tmp_path: Path) -> None:
    answer = e3("init", "night", "--server", servers.url(server_kind), cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    night = tmp_path / "night"
    answer = e3("doctor", cwd=night)
    assert answer.returncode == 0, answer.stdout
    command = [sys.executable, "-m", "comfyui_agent", "run"]
    with (tmp_path / "run.log").open("wb") as log:
        running = subprocess.Popen(command, cwd=night, stdout=log, stderr=subprocess.STDOUT)
    try:
        file = night / "jobs" / "processing" / "image" / f"{KNIGHT}.yaml"
        file.write_bytes((night / "examples" / f"{KNIGHT}.yaml").read_bytes())
        wait_until(lambda: not file.exists(), "the knight to be done and its file put away", timeout=560)
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
    row = row_of(night, f"{KNIGHT}.yaml")
    assert (row["run_count"], row["retries_attempted"], row["error_trace"]) == (1, 0, None)
    assert row["outputs"] == [f"jobs/finished/image/{KNIGHT}.png"]
    finished = night / "jobs" / "finished" / "image"
    assert sorted(path.name for path in finished.iterdir()) == [f"{KNIGHT}.png", f"{KNIGHT}.yaml"]
    with Image.open(finished / f"{KNIGHT}.png") as picture:
        assert picture.size == (384, 512)
    assert f"● Done  20  {KNIGHT}.yaml" in e3("queue", "ls", cwd=night).stdout


@pytest.mark.timeout(400)
def test_the_other_examples_render_too(servers: Servers, server_kind: str, tmp_path: Path) -> None:
    assert e3("init", "--server", servers.url(server_kind), cwd=tmp_path).returncode == 0
    for kind, name in (("image", "I2I_watercolour"), ("video", "T2V_sunrise")):
        text = (tmp_path / "examples" / f"{name}.yaml").read_text(encoding="utf-8")
        small = "".join(f"  {line}\n" for line in _quick(kind))
        (tmp_path / "jobs/processing" / kind / f"{name}.yaml").write_text(_with_inputs(text, small))
    answer = e3("run", "--until-idle", cwd=tmp_path, timeout=360)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert (tmp_path / "jobs/finished/image/I2I_watercolour.png").is_file()
    assert (tmp_path / "jobs/finished/video/T2V_sunrise.webm").is_file()


def _quick(kind: str) -> list[str]:
    """Values that a processor can render in no time."""
    return ["steps: 1"] if kind == "image" else ["steps: 1", "frames: 2", "width: 64", "height: 64"]


def _with_inputs(text: str, lines: str) -> str:
    kept = [line for line in text.splitlines() if not re.match(r"\s+(steps|frames|width|height):", line)]
    return "\n".join(kept).replace("inputs:\n", f"inputs:\n{lines}") + "\n"


def test_the_layout_of_the_onboarding_document_works_as_printed(
    servers: Servers, server_kind: str, tmp_path: Path
) -> None:
    """Configuration in comfyui_agent/config, no map of inputs, the two processes of option B."""
    assert e3("init", cwd=tmp_path).returncode == 0
    config = tmp_path / "comfyui_agent" / "config"
    config.mkdir(parents=True)
    (config / "global_config.yaml").write_text(
        f"""default_priority: 50
retry_limit: 2
poll_interval_ms: 1000

paths:
  jobs_processing: "jobs/processing"
  jobs_finished: "jobs/finished"
  database: "database/comfyui_agent.db"

comfyui:
  api_base_url: "{servers.url(server_kind)}"
  timeout_seconds: 300
"""
    )
    (config / "workflows.yaml").write_text(
        """wf_realistic_portrait:
  template_path: "workflows/wf_realistic_portrait.json"
  required_inputs: ["prompt", "seed", "steps"]
"""
    )
    for path in (tmp_path / "config").iterdir():
        path.unlink()
    text = (tmp_path / "examples" / f"{KNIGHT}.yaml").read_text().replace("steps: 30", "steps: 1")
    (tmp_path / "jobs/processing/image/knight.yaml").write_text(
        text.replace(f"{KNIGHT}.png", "knight.png").replace("inputs:\n", "inputs:\n  width: 64\n  height: 64\n")
    )
    module = [sys.executable, "-m"]
    for name in ("comfyui_agent.monitor", "comfyui_agent.execute"):
        answer = subprocess.run(
            [*module, name, "--until-idle"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
    assert (tmp_path / "jobs/finished/image/knight.png").is_file()
    assert not (tmp_path / "jobs/processing/image/knight.yaml").exists()

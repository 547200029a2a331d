"""The program in docs/client.md works as written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from comfyui_agent.sim.process import ServerProcess
from support.agents import server_queue, wait_until
from support.sampled_graphs import text_to_image

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")


def prepare(folder: Path) -> None:
    program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
    (folder / "render.py").write_text(program)
    (folder / "my_workflow_api.json").write_text(json.dumps(text_to_image("a windmill", seed=5)))


def test_the_program_in_the_guide_renders_a_workflow(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    prepare(tmp_path)
    answer = _run(tmp_path, comfyui_simulator("--render-seconds", "0.5").url)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-1] == "result_1.png"
    assert "running KSampler step" in answer.stdout
    with Image.open(tmp_path / "result_1.png") as picture:
        assert picture.size == (768, 512)


def test_the_program_in_the_guide_explains_a_failure(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    prepare(tmp_path)
    answer = _run(tmp_path, comfyui_simulator("--failure-rate", "1").url)
    assert answer.returncode == 1
    assert "node 5 (KSampler)" in answer.stderr


def test_the_program_in_the_guide_goes_on_after_it_was_killed(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = comfyui_simulator("--render-seconds", "2")
    prepare(tmp_path)
    with subprocess.Popen(_command(server.url), cwd=tmp_path) as program:
        wait_until(lambda: server_queue(server.url).running, "the prompt at the server")
        program.kill()
    assert (tmp_path / "prompt_id.txt").exists()
    answer = _run(tmp_path, server.url)
    assert answer.returncode == 0, answer.stderr
    assert not (tmp_path / "prompt_id.txt").exists()
    assert len(list(server.output_dir.rglob("*.png"))) == 1


def test_the_program_in_the_guide_explains_a_rejection(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    prepare(tmp_path)
    answer = _run(tmp_path, comfyui_simulator("--models", "another.safetensors").url)
    assert answer.returncode == 1
    assert "not in ['another.safetensors']" in answer.stderr
    assert "Traceback" not in answer.stderr


def _command(url: str) -> list[str]:
    return [sys.executable, "render.py", url, "my_workflow_api.json"]


def _run(folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(url), cwd=folder, capture_output=True, text=True, timeout=60, check=False)

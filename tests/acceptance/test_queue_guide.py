"""What docs/queue.md and docs/database.md tell a newcomer to type works as written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from comfyui_agent.sim.process import ServerProcess
from support.agents import AgentWorkspace, check_promises
from support.command import e3
from support.sampled_graphs import text_to_image
from support.stores import in_the_shell

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_first_steps_end_in_a_picture(comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path) -> None:
    url = comfyui_simulator().url
    (tmp_path / "night" / "workflows").mkdir(parents=True)
    night = AgentWorkspace(tmp_path / "night", [url])
    (night.root / "workflows" / "portrait.json").write_text(json.dumps(text_to_image("a knight", seed=5)))
    (insert,) = re.findall(r'sqlite3 database/comfyui_agent.db "(.*?)"', blocks("queue.md", "")[0], re.DOTALL)
    assert e3("db", "migrate", cwd=night.root).returncode == 0
    in_the_shell(night.database, insert)
    answer = e3("execute", "--until-idle", "--server", url, cwd=night.root)
    assert answer.returncode == 0, answer.stderr
    assert (night.root / "jobs/finished/image/knight.png").is_file()
    assert "knight.yaml" in e3("queue", "ls", cwd=night.root).stdout
    assert "● Done" in e3("show", "knight.yaml", cwd=night.root).stdout


def test_the_program_queues_a_hundred_takes_that_differ(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    night = AgentWorkspace(tmp_path, [comfyui_simulator().url])
    (tmp_path / "submit.py").write_text(blocks("queue.md", "python")[0])
    (tmp_path / "my_workflow_api.json").write_text(json.dumps(text_to_image("a windmill", seed=0)))
    command = [sys.executable, "submit.py", "my_workflow_api.json", "5.seed", "12"]
    for accepted in ("12 of 12", "0 of 12"):
        answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        assert answer.stdout == f"{accepted} jobs accepted\n"
    assert night.finish() == 0
    jobs = check_promises(night, 12)
    assert len({(tmp_path / job.outputs[0]).read_bytes() for job in jobs}) == 12


def test_every_statement_of_the_database_page_can_be_typed(tmp_path: Path) -> None:
    night = AgentWorkspace(tmp_path, [])
    night.submit(3)
    (statements,) = blocks("database.md", "sql")
    in_the_shell(night.database, statements)

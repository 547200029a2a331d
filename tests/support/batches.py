"""Batches as people make them on the command line, and what was made of them."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.store import operations as ops
from support.agents import AgentWorkspace

KEYS = [
    *("id", "name", "kind", "status", "total", "pending", "processing", "done", "failed"),
    *("created_at", "completed_at", "generation", "grid"),
]
"""What scripts rely on."""

Answer = subprocess.CompletedProcess[str]


def document(answer: Answer, code: int = 0) -> Any:
    """The one document on stdout."""
    assert answer.returncode == code, answer.stderr
    return json.loads(answer.stdout)


def refusal(answer: Answer, code: int) -> str:
    """What a command that did nothing says: one line, on stderr alone."""
    assert (answer.returncode, answer.stdout) == (code, ""), answer
    assert answer.stderr.startswith("e3: "), answer.stderr
    assert answer.stderr.count("\n") == 1, answer.stderr
    return answer.stderr.removeprefix("e3: ").rstrip("\n")


def queued_id(answer: Answer) -> str:
    """The id of what was queued: all of stdout."""
    assert answer.returncode == 0, answer.stderr
    (line,) = answer.stdout.splitlines()
    return line


def members(workspace: AgentWorkspace, batch_id: str) -> list[Job]:
    """The jobs of a batch in their order."""

    async def read(store: Any) -> list[Job]:
        return [job async for job in ops.batch_members(store, batch_id)]

    return workspace.store(read)


def batches(workspace: AgentWorkspace) -> list[Batch]:
    """All of them, the newest first."""
    found: list[Batch] = workspace.store(lambda store: store.run(ops.newest_batches, limit=1000))
    return found


def batch_of(workspace: AgentWorkspace, batch_id: str) -> Batch:
    found = workspace.store(lambda store: store.run(ops.find_batch, batch_id))
    assert found is not None
    return found


def sent(job: Job) -> dict[str, Any]:
    """The graph that reached the server for a job; numbers with decimals exactly as they were written."""
    with urllib.request.urlopen(f"{job.server}/history/{job.prompt_id}", timeout=10) as answer:
        history = json.loads(answer.read(), parse_float=Decimal)
    graph: dict[str, Any] = history[job.prompt_id]["prompt"][2]
    return graph


def write_yaml(path: Path, content: Mapping[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_graph(workspace: AgentWorkspace, name: str, graph: Mapping[str, Any]) -> Path:
    """A template of the workspace."""
    path = workspace.root / "workflows" / f"{name}.json"
    path.write_text(json.dumps(graph), encoding="utf-8")
    return path

"""Load tests from the inside and from the outside, and what a server itself knows of the prompts it ran."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.load.document import build_report
from comfyui_agent.lab.load.plan import LoadPlan, Mode
from comfyui_agent.lab.load.run import load_test
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.lab.reports.load import Row
from support.graphs import picture
from support.sampled_graphs import text_to_image

Report = dict[str, Any]


def page(steps: int = 1, **changes: Any) -> dict[str, Any]:
    """A workflow with a seed and one small picture."""
    graph = text_to_image("a fox in a red scarf", 7, checkpoint="auto", steps=steps)
    graph["4"]["inputs"] |= {"width": 64, "height": 64}
    graph["5"]["inputs"] |= changes
    return graph


def seedless() -> dict[str, Any]:
    """A workflow in which nothing is left to chance."""
    return picture("kept", color=5)


def payload(graph: dict[str, Any] | None = None, name: str = "page") -> Payload:
    return Payload.of(name, page() if graph is None else graph)


def workflow_file(folder: Path, graph: Any = None, name: str = "page.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(page() if graph is None else graph), encoding="utf-8")
    return path


class Onlooker:
    """Nobody looks; what was told is kept."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.levels: list[float] = []

    def sent(self) -> None: ...

    def ended(self, row: Row) -> None:
        self.rows.append(row)

    def began(self, level: float, jobs: int | None) -> None:
        del jobs
        self.levels.append(level)

    def ended_level(self, run: Any) -> None: ...


async def press(
    servers: Sequence[str],
    graph: Any = None,
    mode: Mode = Mode.CLOSED,
    levels: Iterable[float] = (1.0,),
    **options: Any,
) -> Report:
    """A load test in this process, to its report."""
    plan = LoadPlan(tuple(servers), (payload(graph),), mode, tuple(levels), **options)
    return build_report(await load_test(plan, Onlooker()), Sla()).as_json()


def asked(url: str, route: str) -> Any:
    with urllib.request.urlopen(f"{url}/{route}", timeout=5) as answer:
        return json.load(answer)


@dataclass(frozen=True)
class Execution:
    """What the server noted of a prompt, by its own clock: it knows nothing of the client under test."""

    prompt_id: str
    started: float
    ended: float
    succeeded: bool
    cached: frozenset[str]

    @property
    def seconds(self) -> float:
        return self.ended - self.started


def executions(url: str, prompt_ids: Iterable[str]) -> list[Execution]:
    """These prompts in the order in which the server ran them."""
    wanted = set(prompt_ids)
    history = asked(url, "history")
    found = [_execution(prompt_id, entry) for prompt_id, entry in history.items() if prompt_id in wanted]
    return sorted(found, key=lambda each: each.started)


def _execution(prompt_id: str, entry: Any) -> Execution:
    told = dict(entry["status"]["messages"])
    ended = next(data for name, data in told.items() if name in ("execution_success", "execution_error"))
    cached = frozenset(told.get("execution_cached", {}).get("nodes", ()))
    return Execution(
        prompt_id,
        told["execution_start"]["timestamp"] / 1000,
        ended["timestamp"] / 1000,
        "execution_success" in told,
        cached,
    )


def is_idle(url: str) -> bool:
    return bool(asked(url, "queue") == {"queue_running": [], "queue_pending": []})


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.01)

"""A watch remembers when each node began and when its steps came."""

from __future__ import annotations

import time
from typing import Any

import pytest

from comfyui_agent.comfy import watch as watching
from comfyui_agent.comfy.frames import Event
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.prompts import mint_prompt_id


def hear(watch: Watch, kind: str, **data: Any) -> None:
    watch.hear(Event(kind, watch.prompt_id, data))


async def test_moments_are_what_was_heard_in_order_and_when() -> None:
    watch = Watch(mint_prompt_id(), {"5": {"class_type": "KSampler", "inputs": {}}}, None)
    before = time.monotonic()
    hear(watch, "execution_start")
    hear(watch, "execution_cached", nodes=["1"])
    hear(watch, "executing", node="5")
    hear(watch, "progress", node="5", value=1, max=20)
    hear(watch, "progress", value=2, max=20)
    hear(watch, "progress", value="much", max=20)
    hear(watch, "executed", node="5", output={})
    hear(watch, "execution_success")
    hear(watch, "executing", node=None)
    found = watch.heard.moments
    assert [(each.kind, each.node_id, each.step, each.steps) for each in found] == [
        ("start", "", 0, 0),
        ("node", "5", 0, 0),
        ("step", "5", 1, 20),
        ("step", "5", 2, 20),
        ("success", "", 0, 0),
        ("end", "", 0, 0),
    ]
    assert before <= found[0].at <= found[-1].at <= time.monotonic()
    assert [each.at for each in found] == sorted(each.at for each in found)


async def test_a_server_that_never_stops_talking_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_MOMENTS_HEARD", 3)
    watch = Watch(mint_prompt_id(), None, None)
    for number in range(10):
        hear(watch, "progress", node="5", value=number, max=20)
    assert [each.step for each in watch.heard.moments] == [0, 1, 2]
    assert watch.progress.step == 9

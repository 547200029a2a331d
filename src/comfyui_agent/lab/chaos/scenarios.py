"""The five scenarios of `e3 chaos`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from comfyui_agent.lab.chaos.bad_pages import gpu_oom, prompt_validation
from comfyui_agent.lab.chaos.bad_servers import artificial_latency, comfyui_crash, network_blip
from comfyui_agent.lab.chaos.findings import Findings
from comfyui_agent.lab.chaos.sandbox import Sandbox


@dataclass(frozen=True)
class Scenario:
    """A fault, and what an agent must do about it. `flags` are those of the simulator, where one stands in."""

    name: str
    trigger: str
    expected: str
    run: Callable[[Sandbox, Findings], Awaitable[None]]
    flags: tuple[str, ...] = ()


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "prompt-validation",
            "a page that the server rejects",
            "it is tried once more, then marked as needing regeneration; the other pages are done",
            prompt_validation,
            ("--render-seconds", "0.1"),
        ),
        Scenario(
            "gpu-oom",
            "a page that needs more memory than there is",
            "memory is freed and seen free before the page is tried again, after a longer wait",
            gpu_oom,
            ("--render-seconds", "0.1", "--vram-gb", "8", "--held-gb", "3.5"),
        ),
        Scenario(
            "network-blip",
            "answers and the websocket are lost for a while",
            "questions are asked again, every page is done, and none is rendered twice",
            network_blip,
            ("--render-seconds", "0.25"),
        ),
        Scenario(
            "comfyui-crash",
            "the server is killed while it renders",
            "an alert is given, what was lost is requeued without being charged, and every page is done",
            comfyui_crash,
            ("--render-seconds", "0.5"),
        ),
        Scenario(
            "artificial-latency",
            "every page takes longer",
            "p95 rises by as much, no page is given up or tried twice",
            artificial_latency,
            ("--render-seconds", "0.1"),
        ),
    )
}
SETS = {"all": tuple(SCENARIOS), "quick": ("prompt-validation", "network-blip")}
"""The quick set is for every week; all of them run before a release or after a new driver."""


def find_scenarios(names: Sequence[str]) -> list[Scenario]:
    """The scenarios that names and names of sets stand for, each once. KeyError for an unknown name."""
    wanted = dict.fromkeys(each for name in names for each in SETS.get(name, (name,)))
    return [SCENARIOS[name] for name in wanted]

"""What several fault tests check the same way."""

from __future__ import annotations

from comfyui_agent.comfy.outcomes import Failed, Outcome, Succeeded
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.lab.fault_proxy import FaultProxy
from support.wire import Wire


def posts(proxy: FaultProxy) -> int:
    """How many prompts were sent through the proxy."""
    return sum(request == "POST /prompt" for request in proxy.requests)


async def renders(wire: Wire, prefix: str) -> int:
    """How many pictures the server has saved under a prefix."""
    count = 0
    while (await wire.get(f"/view?filename={prefix}_{count + 1:05}_.png")).status == 200:
        count += 1
    return count


def succeeded(outcome: Outcome) -> Succeeded:
    assert isinstance(outcome, Succeeded), outcome
    return outcome


def failed(outcome: Outcome, kind: FailureClass) -> Failed:
    assert isinstance(outcome, Failed), outcome
    assert outcome.failure.kind is kind, outcome.failure
    assert outcome.failure.server.startswith("http"), outcome.failure
    assert outcome.failure.prompt_id == outcome.prompt_id, outcome.failure
    return outcome

"""How long a run waits for its prompt: facts in, decision out. Nothing here asks, waits or writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from comfyui_agent.comfy.watch import Stage
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.fleet.server import Health


@dataclass(frozen=True)
class PatienceLimits:
    """Seconds: of one execution, without a sign of life, and until a silent server is given up."""

    timeout: float
    stall: float
    failover: float


@dataclass(frozen=True)
class WatchedServer:
    """What is known of the server. Times are those of the run's clock."""

    name: str
    health: Health
    reason: str
    since: float
    answered_at: float
    seconds_down: float
    is_heard: bool
    """Whether its websocket is open."""
    has_alternative: bool
    out_of_work: ServerState | None


@dataclass(frozen=True)
class WatchedPrompt:
    """What is known of the prompt."""

    prompt_id: str
    stage: Stage
    ahead: int | None
    changed_at: float
    seconds_running: float
    is_ours: bool
    """Whether this process sent it, so that its signs of life are heard."""
    unreachable_since: float | None = None
    trouble: Failure | None = None
    """Why nothing could be learned about it, the last time."""


class Wait(Enum):
    """What to do about a prompt that may still end."""

    ON = "look again in a moment"
    GIVE_SERVER_UP = "the server has been silent for too long: the job waits for it or for another"
    TAKE_BACK = "the server is being drained, and the prompt has not begun: take it from the queue"


@dataclass(frozen=True)
class EndRun:
    """Interrupt the prompt; the run ends with this failure."""

    failure: Failure
    leaves_server: bool = False
    """The server is set aside: that it loses the prompt is no news."""
    server_misbehaved: bool = False


WaitDecision = Wait | EndRun


def is_away(server: WatchedServer, limits: PatienceLimits) -> bool:
    """Whether the server has not answered for too long."""
    return server.seconds_down > limits.failover


def is_to_be_left(server: WatchedServer) -> bool:
    """Whether the server is set aside while another takes work."""
    return server.health is Health.ASIDE and server.has_alternative


def decide_wait(now: float, server: WatchedServer, prompt: WatchedPrompt, limits: PatienceLimits) -> WaitDecision:
    """What to do about a prompt that has not ended."""
    if is_away(server, limits):
        return Wait.GIVE_SERVER_UP
    is_seen_waiting = server.health is not Health.DOWN and prompt.stage is Stage.WAITING
    if is_seen_waiting and server.out_of_work is ServerState.DRAINING:
        return Wait.TAKE_BACK
    if is_to_be_left(server) and prompt.stage is not Stage.RUNNING:
        message = f"its server does not work: {server.reason or 'set aside'}"
        return EndRun(_failure(FailureClass.SERVER_LOST, message, server, prompt), leaves_server=True)
    if server.health is not Health.UP:
        return Wait.ON
    if prompt.unreachable_since is not None:
        return _about_unreadable(server, prompt, limits)
    if prompt.seconds_running > limits.timeout:
        message = f"it ran for more than {limits.timeout:g} s"
        return EndRun(_failure(FailureClass.TIMEOUT, message, server, prompt))
    if prompt.is_ours and _could_move(server, prompt) and now - prompt.changed_at > limits.stall:
        message = f"no sign of life for {limits.stall:g} s: the server has stalled"
        return EndRun(_failure(FailureClass.TIMEOUT, message, server, prompt))
    return Wait.ON


def _about_unreadable(server: WatchedServer, prompt: WatchedPrompt, limits: PatienceLimits) -> WaitDecision:
    """What the server says about this prompt cannot be read: bearable for a while, since the server came back."""
    since = max(prompt.unreachable_since or 0.0, server.since)
    if server.answered_at - since <= limits.failover or prompt.trouble is None:
        return Wait.ON
    kind = FailureClass.SERVER_LOST if server.has_alternative else prompt.trouble.kind
    return EndRun(replace(prompt.trouble, kind=kind), server_misbehaved=True)


def _could_move(server: WatchedServer, prompt: WatchedPrompt) -> bool:
    """Whether a sign of life is due: it runs and would be heard, or it is the next to run."""
    if prompt.stage is Stage.RUNNING:
        return server.is_heard
    return prompt.stage is Stage.WAITING and prompt.ahead == 0


def _failure(kind: FailureClass, message: str, server: WatchedServer, prompt: WatchedPrompt) -> Failure:
    return Failure(kind, message, server=server.name, prompt_id=prompt.prompt_id)

"""How long a run waits for its prompt: facts in, decision out. Nothing here asks, waits or writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from comfyui_agent.comfy.watch import Judged, Progress, Stage, Watch
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.fleet.server import FleetServer, Health


@dataclass(frozen=True)
class PatienceLimits:
    """Seconds: of one execution, without a sign of life, and until a silent server is given up."""

    timeout: float
    stall: float
    failover: float


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


def is_away(server: FleetServer, limits: PatienceLimits) -> bool:
    """Whether the server has not answered for too long."""
    return server.seconds_down() > limits.failover


def decide_wait(
    now: float,
    server: FleetServer,
    watch: Watch,
    limits: PatienceLimits,
    *,
    seconds_running: float,
    has_alternative: bool,
    may_take_back: bool = True,
) -> WaitDecision:
    """What to do about a prompt that has not ended.

    `seconds_running` is for how long it has been executed; `has_alternative`, whether another server takes work.
    """

    def end(kind: FailureClass, message: str, *, leaves_server: bool = False) -> EndRun:
        failure = Failure(kind, message, server=server.name, prompt_id=watch.prompt_id)
        return EndRun(failure, leaves_server=leaves_server)

    progress = watch.progress
    if is_away(server, limits):
        return Wait.GIVE_SERVER_UP
    is_seen_waiting = server.health is not Health.DOWN and progress.stage is Stage.WAITING
    if may_take_back and is_seen_waiting and server.out_of_work is ServerState.DRAINING:
        return Wait.TAKE_BACK
    if server.health is Health.ASIDE and has_alternative and progress.stage is not Stage.RUNNING:
        message = f"its server does not work: {server.reason or 'set aside'}"
        return end(FailureClass.SERVER_LOST, message, leaves_server=True)
    if server.health is not Health.UP:
        return Wait.ON
    if watch.judged.unreachable_since is not None:
        return _about_unreadable(server, watch.judged, limits, has_alternative=has_alternative)
    if seconds_running > limits.timeout:
        return end(FailureClass.TIMEOUT, f"it ran for more than {limits.timeout:g} s")
    if watch.is_ours and _could_move(server, progress) and now - progress.changed_at > limits.stall:
        return end(FailureClass.TIMEOUT, f"no sign of life for {limits.stall:g} s: the server has stalled")
    return Wait.ON


def _about_unreadable(
    server: FleetServer, judged: Judged, limits: PatienceLimits, *, has_alternative: bool
) -> WaitDecision:
    """The server answers probes, and what it says about this prompt cannot be read: bearable for a while.

    Only the time since the server came back counts: while it was away nothing could be read.
    """
    since = max(judged.unreachable_since or 0.0, server.since)
    if server.answered_at - since <= limits.failover or judged.trouble is None:
        return Wait.ON
    kind = FailureClass.SERVER_LOST if has_alternative else judged.trouble.kind
    return EndRun(replace(judged.trouble, kind=kind), server_misbehaved=True)


def _could_move(server: FleetServer, progress: Progress) -> bool:
    """Whether a sign of life is due: it runs and would be heard, or it is the next to run."""
    if progress.stage is Stage.RUNNING:
        return server.client.websocket_is_open
    return progress.stage is Stage.WAITING and progress.ahead == 0

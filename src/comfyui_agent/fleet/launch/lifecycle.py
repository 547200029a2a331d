"""What happens to a slot next: a pure decision from its state and what can be seen of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from typing_extensions import assert_never

from comfyui_agent.fleet.launch.state import SlotState, Status

CONTEXT_ERRORS = (
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "device-side assert triggered",
    "hardware stack error",
    "invalid program counter",
    "misaligned address",
    "operation not supported on global/shared address space",
    "the launch timed out and was terminated",
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error detected during the execution",
    "unspecified launch failure",
)
"""CUDA errors after which a process cannot use its card any more. Out of memory is none of them."""
MESSAGE = re.compile(rf"(?:CUDA error|HIP error): (?:{'|'.join(map(re.escape, CONTEXT_ERRORS))})")
REPORTED = r"^(?:.{0,80}Exception during processing !!! |[\w.]*(?:Error|Exception): )"
LINE = re.compile(f"{REPORTED}({MESSAGE.pattern}.*)", re.MULTILINE)


class Action(Enum):
    NONE = 0
    START = 1
    TERMINATE = 2
    KILL = 3
    """Also what a process left behind that is gone itself."""


@dataclass(frozen=True)
class LaunchLimits:
    """How patient the supervisor is. A process is given up after `most_bad_starts` within `window_seconds`.

    A process has started well that was up for `settled_seconds` or rendered something. `stuck_seconds` is for a prompt
    that was interrupted.
    """

    silent_seconds: float = 60.0
    start_seconds: float = 300.0
    stop_seconds: float = 10.0
    stuck_seconds: float = 30.0
    settled_seconds: float = 60.0
    window_seconds: float = 600.0
    most_bad_starts: int = 5
    longest_backoff: float = 60.0
    look_seconds: float = 1.0
    log_bytes: int = 10 * 1024 * 1024


@dataclass(frozen=True)
class Seen:
    """What can be seen of a slot. `answered_at` and `rendered_at`: when it last answered, or rendered for us."""

    is_running: bool
    answered_at: float = 0.0
    rendered_at: float = 0.0
    silent_seconds: float = 0.0
    stuck_seconds: float = 0.0
    trouble: str = ""
    """Why a process that runs and answers is of no use."""
    is_drained: bool = False
    is_out_of_work: bool = False
    """Paused or drained, by whomever."""
    last_words: str = ""


def decide(state: SlotState, seen: Seen, now: float, limits: LaunchLimits) -> tuple[SlotState, Action]:
    """The next state, and what is to be done."""
    match state.status:
        case Status.STOPPED | Status.WAITING | Status.FAILED:
            return _while_down(state, seen, now)
        case Status.STARTING | Status.UP | Status.DRAINING:
            return _while_running(state, seen, now, limits)
        case Status.STOPPING:
            return _while_stopping(state, seen, now, limits)
        case _:
            assert_never(state.status)


def _while_down(state: SlotState, seen: Seen, now: float) -> tuple[SlotState, Action]:
    if seen.is_running:  # whoever started it was killed before that was noted, or it was started by hand
        return state.now(Status.STARTING, now, ""), Action.NONE
    if not state.is_wanted and state.status is not Status.STOPPED:
        return state.now(Status.STOPPED, now, ""), Action.KILL
    is_backing_off = state.since <= now < state.until  # after a reboot, `since` lies ahead
    if not state.is_wanted or state.status is Status.FAILED or is_backing_off:
        return state, Action.NONE
    started = replace(state, restarts=state.restarts + bool(state.reason), restart=False, hurry=False)
    return started.now(Status.STARTING, now), Action.START


def _while_running(state: SlotState, seen: Seen, now: float, limits: LaunchLimits) -> tuple[SlotState, Action]:
    age = now - state.since
    is_starting = state.status is Status.STARTING
    answers = seen.answered_at >= state.since
    words = f": {seen.last_words}" if seen.last_words else ""
    if not seen.is_running:
        how = "while it started" if is_starting else f"after {age:.0f} s"
        return after_fault(state, now, limits, f"it ended {how}{words}", seen.rendered_at), Action.KILL
    trouble = seen.trouble
    if is_starting and not answers and age > limits.start_seconds:
        trouble = f"it did not answer within {limits.start_seconds:.0f} s{words}"
    elif not is_starting and min(age, seen.silent_seconds) > limits.silent_seconds:
        trouble = f"it has not answered for {seen.silent_seconds:.0f} s"
    elif not is_starting and min(age, seen.stuck_seconds) > limits.stuck_seconds:
        trouble = "a prompt there did not end and could not be interrupted"
    if trouble:
        return after_fault(state, now, limits, trouble, seen.rendered_at).now(Status.STOPPING, now), Action.KILL
    if not state.is_wanted or state.restart:
        if is_starting or state.hurry or (state.status is Status.DRAINING and seen.is_drained):
            return state.now(Status.STOPPING, now, "a restart was asked for" if state.restart else ""), Action.TERMINATE
        if state.status is Status.DRAINING:
            return state, Action.NONE
        return replace(state, resume=not seen.is_out_of_work).now(Status.DRAINING, now), Action.NONE
    if state.status is Status.DRAINING or (is_starting and answers):
        return state.now(Status.UP, now, ""), Action.NONE
    return state, Action.NONE


def _while_stopping(state: SlotState, seen: Seen, now: float, limits: LaunchLimits) -> tuple[SlotState, Action]:
    if seen.is_running:
        return state, Action.KILL if now - state.since >= limits.stop_seconds else Action.NONE
    if not state.is_wanted:
        return replace(state, restart=False, hurry=False).now(Status.STOPPED, now, ""), Action.KILL
    return state.now(_resting(state, limits), now), Action.KILL


def after_fault(state: SlotState, now: float, limits: LaunchLimits, reason: str, rendered_at: float = 0.0) -> SlotState:
    """It ended or is of no use. Its next start waits: 1, 2, 4… seconds, if the last ones were bad."""
    bad = tuple(each for each in state.bad_starts if 0 <= now - each < limits.window_seconds)
    is_short = state.status is Status.STARTING or now - state.since < limits.settled_seconds
    if is_short and rendered_at <= state.since:
        bad = (*bad, now)
    backoff = min(limits.longest_backoff, 2.0 ** max(0, len(bad) - 1))
    state = replace(state, bad_starts=bad, until=now + backoff)
    return state.now(_resting(state, limits), now, reason)


def _resting(state: SlotState, limits: LaunchLimits) -> Status:
    return Status.FAILED if len(state.bad_starts) >= limits.most_bad_starts else Status.WAITING


def lost_context_in(message: str) -> bool:
    """Whether the message of an exception says that a process has lost its card."""
    return MESSAGE.match(message.strip()) is not None


def lost_context_in_log(text: str) -> str:
    """What the log of a process says about it; empty if nothing. Only lines that report an exception count."""
    found = LINE.search(text)
    return found[1][:200] if found else ""

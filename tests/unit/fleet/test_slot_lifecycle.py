"""What happens to a slot next, as a table of states and what is seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from comfyui_agent.fleet.launch.lifecycle import (
    Action,
    LaunchLimits,
    Seen,
    decide,
    lost_context_in,
    lost_context_in_log,
)
from comfyui_agent.fleet.launch.state import SlotFolder, SlotState, Status
from comfyui_agent.usecases.servers import ProcessChange

LIMITS = LaunchLimits()
NOW = 1000.0
LATE = Seen(is_running=True, answered_at=NOW - 600)
DRAINED = Seen(is_running=True, answered_at=NOW, is_drained=True)
UP = SlotState("http://127.0.0.1:8188", "gpu0", Status.UP, since=NOW - 500)
RUNS = Seen(is_running=True, answered_at=NOW)
GONE = Seen(is_running=False)


def after(state: SlotState, seen: Seen, now: float = NOW) -> tuple[Status, Action]:
    state, action = decide(state, seen, now, LIMITS)
    return state.status, action


@pytest.mark.parametrize(
    ("state", "seen", "status", "action"),
    [
        (SlotState(), GONE, Status.STARTING, Action.START),
        (SlotState(), RUNS, Status.STARTING, Action.NONE),
        (SlotState(wanted=False), GONE, Status.STOPPED, Action.NONE),
        (SlotState(spare=True), GONE, Status.STOPPED, Action.NONE),
        (replace(UP, status=Status.FAILED), GONE, Status.FAILED, Action.NONE),
        (replace(UP, status=Status.WAITING, until=NOW + 1), GONE, Status.WAITING, Action.NONE),
        (replace(UP, status=Status.WAITING, since=NOW + 9, until=NOW + 9), GONE, Status.STARTING, Action.START),
        (replace(UP, status=Status.STARTING), RUNS, Status.UP, Action.NONE),
        (replace(UP, status=Status.STARTING), LATE, Status.STOPPING, Action.KILL),
        (replace(UP, status=Status.STARTING, since=NOW - 9), LATE, Status.STARTING, Action.NONE),
        (replace(UP, status=Status.STARTING, wanted=False), RUNS, Status.STOPPING, Action.TERMINATE),
        (UP, RUNS, Status.UP, Action.NONE),
        (UP, GONE, Status.WAITING, Action.KILL),
        (UP, replace(RUNS, silent_seconds=61), Status.STOPPING, Action.KILL),
        (replace(UP, since=NOW - 5), replace(RUNS, silent_seconds=61), Status.UP, Action.NONE),
        (UP, replace(RUNS, stuck_seconds=31), Status.STOPPING, Action.KILL),
        (UP, replace(RUNS, trouble="it has lost its card"), Status.STOPPING, Action.KILL),
        (replace(UP, wanted=False), RUNS, Status.DRAINING, Action.NONE),
        (replace(UP, wanted=False, hurry=True), RUNS, Status.STOPPING, Action.TERMINATE),
        (replace(UP, restart=True), RUNS, Status.DRAINING, Action.NONE),
        (replace(UP, status=Status.DRAINING, restart=True), RUNS, Status.DRAINING, Action.NONE),
        (replace(UP, status=Status.DRAINING, restart=True), DRAINED, Status.STOPPING, Action.TERMINATE),
        (replace(UP, status=Status.DRAINING), RUNS, Status.UP, Action.NONE),
        (replace(UP, status=Status.STOPPING, since=NOW - 1), RUNS, Status.STOPPING, Action.NONE),
        (replace(UP, status=Status.STOPPING), RUNS, Status.STOPPING, Action.KILL),
        (replace(UP, status=Status.STOPPING, wanted=False), GONE, Status.STOPPED, Action.KILL),
        (replace(UP, status=Status.STOPPING), GONE, Status.WAITING, Action.KILL),
    ],
)
def test_what_comes_next(state: SlotState, seen: Seen, status: Status, action: Action) -> None:
    assert after(state, seen) == (status, action)


def test_bad_starts_wait_longer_each_time_and_end() -> None:
    state, now, waits = SlotState(), NOW, []
    while state.status is not Status.FAILED:
        state, action = decide(state, GONE, now, LIMITS)
        assert action is Action.START
        now += 3
        state, _ = decide(state, replace(GONE, last_words="no torch"), now, LIMITS)
        waits.append(state.until - now)
        now = state.until
    assert waits == [1, 2, 4, 8, 16]
    assert state.reason == "it ended while it started: no torch"
    assert after(state, GONE, now + 10_000) == (Status.FAILED, Action.NONE)
    assert after(ProcessChange.UP.on(state), GONE, now) == (Status.STARTING, Action.START)


def test_a_process_that_was_up_for_long_is_started_again_at_once_however_often() -> None:
    state, now = UP, NOW
    for _ in range(20):
        state, _ = decide(state, GONE, now, LIMITS)
        assert (state.status, state.until) == (Status.WAITING, now + 1)
        state, _ = decide(state, GONE, now + 1, LIMITS)
        state, _ = decide(state, replace(RUNS, answered_at=now + 2), now + 2, LIMITS)
        assert state.status is Status.UP
        now += 100
    assert state.restarts == 20


def test_old_bad_starts_are_forgotten() -> None:
    state = replace(UP, bad_starts=(NOW - 700, NOW - 650, NOW - 601, NOW - 50, NOW - 40), since=NOW - 5)
    state, _ = decide(state, GONE, NOW, LIMITS)
    assert (state.status, state.bad_starts) == (Status.WAITING, (NOW - 50, NOW - 40, NOW))


def test_a_state_is_read_as_it_was_written_whatever_its_reason(tmp_path: Path) -> None:
    folder = SlotFolder(tmp_path)
    state = replace(UP, bad_starts=(1.5, 2.0)).now(Status.FAILED, NOW, "there is no main.py in /\udcff\n\x00")
    folder.write(state)
    assert folder.state() == state
    (tmp_path / "state.json").write_text('{"status": "failed", "restarts": 3, "of_another_version": 1}')
    assert folder.state() == SlotState(status=Status.FAILED, restarts=3)
    for spoilt in ("", "[]", '{"status": "no such"}', '{"since": [1]}'):
        (tmp_path / "state.json").write_text(spoilt)
        assert folder.state() == SlotState()


@pytest.mark.parametrize(
    ("message", "is_lost"),
    [
        ("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be", True),
        ("CUDA error: device-side assert triggered", True),
        ("CUDA error: unspecified launch failure", True),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", False),
        ("CUDA error: out of memory", False),
        ("no such file: 'CUDA error: device-side assert triggered'", False),
    ],
)
def test_a_lost_context_is_known_by_its_words(message: str, is_lost: bool) -> None:
    assert lost_context_in(message) is is_lost
    for line in ("!!! Exception during processing !!! ", "torch.AcceleratorError: "):
        assert bool(lost_context_in_log(f"got prompt\n{line}{message}\n")) is is_lost
    assert not lost_context_in_log(f"Value not in list: ckpt_name: '{message}'")

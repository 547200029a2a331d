"""When a run stops waiting for its prompt: every rule, without a clock and without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from comfyui_agent.comfy.watch import Judged, Progress, Stage, Watch
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.engine.patience import EndRun, PatienceLimits, Wait, WaitDecision, decide_wait
from comfyui_agent.fleet.server import FleetServer, Health

NOW = 1_000.0
LIMITS = PatienceLimits(timeout=300.0, stall=120.0, failover=60.0)
TROUBLE = Failure(FailureClass.OUTPUT, "nonsense")


def decide(
    *,
    down: float = 0.0,
    is_heard: bool = True,
    stage: Stage = Stage.RUNNING,
    ahead: int | None = 0,
    changed_at: float = NOW,
    is_ours: bool = True,
    unreadable_since: float | None = None,
    running: float = 10.0,
    other: bool = False,
    **server: Any,
) -> WaitDecision:
    """What is decided about a prompt that runs well at a server that is up, but for what is said here."""
    facts = {"name": "gpu", "health": Health.UP, "reason": "", "since": 0.0, "answered_at": NOW, "out_of_work": None}
    client = SimpleNamespace(websocket_is_open=is_heard)
    watch = SimpleNamespace(
        prompt_id="p",
        progress=Progress(stage, ahead, changed_at=changed_at),
        is_ours=is_ours,
        judged=Judged(unreachable_since=unreadable_since, trouble=TROUBLE if unreadable_since is not None else None),
    )
    return decide_wait(
        NOW,
        cast("FleetServer", SimpleNamespace(**{**facts, **server}, client=client, seconds_down=lambda: down)),
        cast("Watch", watch),
        LIMITS,
        seconds_running=running,
        has_alternative=other,
    )


def test_it_waits_as_long_as_nothing_speaks_against_it() -> None:
    cases: dict[str, dict[str, Any]] = {
        "it runs": {},
        "it runs at its limit": {"running": 300.0},
        "silent up to the limit": {"changed_at": NOW - 120},
        "silent, but we would not hear it": {"is_heard": False, "changed_at": 0.0},
        "silent, sent by someone else": {"changed_at": 0.0, "is_ours": False},
        "waits behind others": {"stage": Stage.WAITING, "ahead": 1, "changed_at": 0.0},
        "away for a while": {"health": Health.DOWN, "down": 60.0},
        "too long, while its server is away": {"health": Health.DOWN, "down": 5.0, "running": 900.0},
        "runs at a server that was set aside": {"health": Health.ASIDE, "other": True},
        "set aside, and there is no other": {"health": Health.ASIDE, "stage": Stage.WAITING},
        "runs at a server that is drained": {"out_of_work": ServerState.DRAINING},
        "waits at a server that is paused": {"out_of_work": ServerState.PAUSED, "stage": Stage.WAITING, "ahead": 1},
        "unreadable for a while": {"unreadable_since": NOW - 60},
        "unreadable since before the server came back": {"since": NOW - 10, "unreadable_since": 0.0},
    }
    for case, facts in cases.items():
        assert decide(**facts) is Wait.ON, case


def test_it_ends_for_a_reason_that_says_what_happened() -> None:
    cases: dict[str, tuple[FailureClass, dict[str, Any]]] = {
        "it ran for more than 300 s": (FailureClass.TIMEOUT, {"running": 300.1}),
        "no sign of life for 120 s": (FailureClass.TIMEOUT, {"changed_at": NOW - 121}),
        "no sign": (FailureClass.TIMEOUT, {"stage": Stage.WAITING, "ahead": 0, "changed_at": 0.0}),
        "its server does not work": (
            FailureClass.SERVER_LOST,
            {"health": Health.ASIDE, "other": True, "stage": Stage.WAITING, "ahead": 1},
        ),
        "nonsense": (FailureClass.OUTPUT, {"since": NOW - 500, "unreadable_since": NOW - 61}),
    }
    for message, (kind, facts) in cases.items():
        decision = decide(**facts)
        assert isinstance(decision, EndRun), message
        assert decision.failure.kind is kind
        assert decision.failure.message.startswith(message)


def test_a_server_that_is_silent_for_too_long_is_given_up_whatever_else_is_known() -> None:
    assert decide(health=Health.DOWN, down=60.1, out_of_work=ServerState.DRAINING, running=900.0) is Wait.GIVE_SERVER_UP


def test_a_prompt_that_waits_at_a_server_that_is_drained_is_taken_back() -> None:
    waiting: dict[str, Any] = {"out_of_work": ServerState.DRAINING, "stage": Stage.WAITING, "ahead": 1}
    assert decide(**waiting) is Wait.TAKE_BACK
    assert decide(**waiting, health=Health.DOWN, down=1.0) is Wait.ON, "nobody can be asked"


def test_where_there_is_another_server_an_unreadable_answer_costs_the_job_nothing() -> None:
    decision = decide(other=True, unreadable_since=NOW - 61)
    assert isinstance(decision, EndRun)
    assert (decision.failure.kind, decision.server_misbehaved) == (FailureClass.SERVER_LOST, True)

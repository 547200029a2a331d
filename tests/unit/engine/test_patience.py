"""When a run stops waiting for its prompt: every rule, without a clock and without a server."""

from __future__ import annotations

from dataclasses import replace

from comfyui_agent.comfy.watch import Stage
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.engine.patience import (
    EndRun,
    PatienceLimits,
    Wait,
    WatchedPrompt,
    WatchedServer,
    decide_wait,
)
from comfyui_agent.fleet.server import Health

NOW = 1_000.0
LIMITS = PatienceLimits(timeout=300.0, stall=120.0, failover=60.0)
SERVER = WatchedServer("gpu", Health.UP, "", 0.0, NOW, 0.0, is_heard=True, has_alternative=False, out_of_work=None)
PROMPT = WatchedPrompt("p", Stage.RUNNING, 0, NOW, 10.0, is_ours=True)
TROUBLE = Failure(FailureClass.OUTPUT, "nonsense")


def test_it_waits_as_long_as_nothing_speaks_against_it() -> None:
    cases = {
        "it runs": (SERVER, PROMPT),
        "it runs at its limit": (SERVER, replace(PROMPT, seconds_running=300.0)),
        "silent up to the limit": (SERVER, replace(PROMPT, changed_at=NOW - 120)),
        "silent, but we would not hear it": (replace(SERVER, is_heard=False), replace(PROMPT, changed_at=0.0)),
        "silent, sent by someone else": (SERVER, replace(PROMPT, changed_at=0.0, is_ours=False)),
        "waits behind others": (SERVER, replace(PROMPT, stage=Stage.WAITING, ahead=1, changed_at=0.0)),
        "away for a while": (replace(SERVER, health=Health.DOWN, seconds_down=60.0), PROMPT),
        "too long, while its server is away": (
            replace(SERVER, health=Health.DOWN, seconds_down=5.0),
            replace(PROMPT, seconds_running=900.0),
        ),
        "runs at a server that was set aside": (replace(SERVER, health=Health.ASIDE, has_alternative=True), PROMPT),
        "set aside, and there is no other": (
            replace(SERVER, health=Health.ASIDE),
            replace(PROMPT, stage=Stage.WAITING),
        ),
        "runs at a server that is drained": (replace(SERVER, out_of_work=ServerState.DRAINING), PROMPT),
        "waits at a server that is paused": (
            replace(SERVER, out_of_work=ServerState.PAUSED),
            replace(PROMPT, stage=Stage.WAITING, ahead=1),
        ),
        "unreadable for a while": (SERVER, replace(PROMPT, unreachable_since=NOW - 60, trouble=TROUBLE)),
        "unreadable since before the server came back": (
            replace(SERVER, since=NOW - 10),
            replace(PROMPT, unreachable_since=0.0, trouble=TROUBLE),
        ),
    }
    for case, (server, prompt) in cases.items():
        assert decide_wait(NOW, server, prompt, LIMITS) == Wait.ON, case


def test_it_ends_for_a_reason_that_says_what_happened() -> None:
    cases = {
        "it ran for more than 300 s": (FailureClass.TIMEOUT, SERVER, replace(PROMPT, seconds_running=300.1)),
        "no sign of life for 120 s": (FailureClass.TIMEOUT, SERVER, replace(PROMPT, changed_at=NOW - 121)),
        "no sign": (FailureClass.TIMEOUT, SERVER, replace(PROMPT, stage=Stage.WAITING, ahead=0, changed_at=0.0)),
        "its server does not work": (
            FailureClass.SERVER_LOST,
            replace(SERVER, health=Health.ASIDE, has_alternative=True),
            replace(PROMPT, stage=Stage.WAITING, ahead=1),
        ),
        "nonsense": (
            FailureClass.OUTPUT,
            replace(SERVER, since=NOW - 500),
            replace(PROMPT, unreachable_since=NOW - 61, trouble=TROUBLE),
        ),
    }
    for message, (kind, server, prompt) in cases.items():
        decision = decide_wait(NOW, server, prompt, LIMITS)
        assert isinstance(decision, EndRun), message
        assert decision.failure.kind is kind
        assert decision.failure.message.startswith(message)


def test_a_server_that_is_silent_for_too_long_is_given_up_whatever_else_is_known() -> None:
    server = replace(SERVER, health=Health.DOWN, seconds_down=60.1, out_of_work=ServerState.DRAINING)
    assert decide_wait(NOW, server, replace(PROMPT, seconds_running=900.0), LIMITS) == Wait.GIVE_SERVER_UP


def test_a_prompt_that_waits_at_a_server_that_is_drained_is_taken_back() -> None:
    server = replace(SERVER, out_of_work=ServerState.DRAINING)
    waiting = replace(PROMPT, stage=Stage.WAITING, ahead=1)
    assert decide_wait(NOW, server, waiting, LIMITS) == Wait.TAKE_BACK
    down = replace(server, health=Health.DOWN, seconds_down=1.0)
    assert decide_wait(NOW, down, waiting, LIMITS) == Wait.ON, "nobody can be asked"


def test_where_there_is_another_server_an_unreadable_answer_costs_the_job_nothing() -> None:
    server = replace(SERVER, has_alternative=True)
    prompt = replace(PROMPT, unreachable_since=NOW - 61, trouble=TROUBLE)
    decision = decide_wait(NOW, server, prompt, LIMITS)
    assert isinstance(decision, EndRun)
    assert (decision.failure.kind, decision.server_misbehaved) == (FailureClass.SERVER_LOST, True)

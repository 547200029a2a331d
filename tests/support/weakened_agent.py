"""An agent that lacks one recovery, to see that chaos notices: `weakened_agent.py WEAKNESS run -C …`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from comfyui_agent.cli.app import main
from comfyui_agent.comfy import submission
from comfyui_agent.comfy.errors import ComfyError, NotAccepted, ServerLost
from comfyui_agent.comfy.transport import Answer, Transport
from comfyui_agent.comfy.watches import Watches
from comfyui_agent.domain import retry_policy
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import Decision, GiveUp, Retry
from comfyui_agent.engine import run as running
from comfyui_agent.engine import settlement
from comfyui_agent.engine.run import Run
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.sqlite.session import QUERIES
from comfyui_agent.store.store import Store

SHORTEST_PATIENCE = 0.3


def judge(change: Callable[[FailureClass, Decision], Decision]) -> None:
    """What is decided after a failure is changed."""
    decide = settlement.decide

    def decided(kind: FailureClass, *facts: Any, **more: Any) -> Decision:
        return change(kind, decide(kind, *facts, **more))

    settlement.decide = decided


async def nothing(*_: Any) -> None:
    return None


def no_second_try() -> None:
    """A rejected prompt is given up at once."""
    retry_policy.RETRIES_AFTER_REJECTION = 0


def no_regeneration() -> None:
    """A page that was rejected for good is not marked as needing a person."""
    QUERIES["fail_job"] = QUERIES["fail_job"].replace(":needs_regeneration OR", ":needs_regeneration < 0 AND")


def rejected_for_ever() -> None:
    """A rejected prompt is sent again and again."""
    judge(lambda kind, found: Retry(0.2, charged=False) if kind is FailureClass.INVALID else found)


def never_frees() -> None:
    """Nobody tells the server to free memory."""
    settlement.Settlement._free_memory = nothing  # type: ignore[method-assign, assignment]


def no_retry_after_oom() -> None:
    """A page that ran out of memory is given up."""
    judge(lambda kind, found: GiveUp(kind) if kind is FailureClass.OOM else found)


def no_wait_after_oom() -> None:
    """A page that ran out of memory is tried again at once."""
    judge(lambda kind, found: Retry(0.0, charged=True) if kind is FailureClass.OOM else found)


def posts_again() -> None:
    """A prompt whose answer was lost is posted again, under the same id, without asking."""
    ask = Transport.ask

    async def blindly(transport: Transport, method: str, path: str, **question: Any) -> Answer:
        try:
            return await ask(transport, method, path, **question)
        except ServerLost:
            if path != "prompt":
                raise
            return await blindly(transport, method, path, **question)

    Transport.ask = blindly  # type: ignore[method-assign, assignment]


def gives_up_on_lost_answers() -> None:
    """A prompt whose answer was lost has failed."""

    async def give_up(_: Transport, __: str, cause: ComfyError) -> None:
        raise NotAccepted(cause.message)

    submission._find_out = give_up
    judge(lambda kind, found: GiveUp(kind) if kind is FailureClass.SERVER_LOST else found)


def renders_again_what_is_unsure() -> None:
    """A prompt whose answer was lost is taken for lost, and made anew under another id."""

    async def forget(_: Transport, __: str, cause: ComfyError) -> None:
        raise NotAccepted(cause.message)

    submission._find_out = forget


def waits_for_ever() -> None:
    """A prompt that its server no longer knows is waited for."""
    Watches._look_at_history = nothing  # type: ignore[method-assign, assignment]


def no_alert() -> None:
    """Nobody hears that a server is gone."""
    FleetServer.unreported_loss = lambda *_: 0  # type: ignore[method-assign]
    FleetServer.report_loss = lambda _: 0  # type: ignore[method-assign]


def charges_losses() -> None:
    """The death of a server is counted against its pages."""
    judge(lambda kind, found: Retry(0.0, charged=True) if kind is FailureClass.SERVER_LOST else found)


def gives_up_what_was_lost() -> None:
    """Pages fail with their server."""
    judge(lambda kind, found: GiveUp(kind) if kind is FailureClass.SERVER_LOST else found)


def impatient() -> None:
    """A prompt that takes a little longer is interrupted."""
    running.TICK = 0.1
    begin = Run.__init__

    def hurried(run: Run, *facts: Any, **more: Any) -> None:
        begin(run, *facts, **more)
        run._limits = replace(run._limits, timeout=SHORTEST_PATIENCE, stall=SHORTEST_PATIENCE)

    Run.__init__ = hurried  # type: ignore[method-assign]


def gives_up_on_slow_pages() -> None:
    """A prompt that takes a little longer has failed."""
    impatient()
    judge(lambda kind, found: GiveUp(kind) if kind is FailureClass.TIMEOUT else found)


def does_not_start() -> None:
    """The agent is gone before it has done anything."""
    sys.exit(3)


def dies_at_work() -> None:
    """The agent is gone when the first page is done."""

    run = Store.run

    async def die(store: Store, operation: Any, *arguments: Any, **options: Any) -> Any:
        if operation is ops.complete_job:
            os._exit(3)
        return await run(store, operation, *arguments, **options)

    Store.run = die  # type: ignore[method-assign]


WEAKNESSES = {
    found.__name__.replace("_", "-"): found
    for found in (
        no_second_try,
        no_regeneration,
        rejected_for_ever,
        never_frees,
        no_retry_after_oom,
        no_wait_after_oom,
        posts_again,
        gives_up_on_lost_answers,
        renders_again_what_is_unsure,
        waits_for_ever,
        no_alert,
        charges_losses,
        gives_up_what_was_lost,
        impatient,
        gives_up_on_slow_pages,
        does_not_start,
        dies_at_work,
    )
}

if __name__ == "__main__":
    WEAKNESSES[sys.argv.pop(1)]()
    main()

"""How a run that brought no result is recorded: retried, moved to another server, or failed for good."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.needs import gigabytes
from comfyui_agent.domain.retry_policy import GiveUp, Retry, RetryPolicy, decide
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.fleet.routing import Routing
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Leased

log = logging.getLogger(__name__)

FREE_SECONDS = 30.0
ASKED_FOR = re.compile(r"(?:Tried to allocate|Requested\s*:)\s*([0-9.]+ [KMG]iB)")
"""How PyTorch says what it could not have."""


class Alternatives(Protocol):
    """What settling needs of the fleet."""

    def probe_now(self, server: FleetServer) -> None: ...

    def is_alternative_to(self, server: FleetServer, besides: Collection[str] = ()) -> bool: ...


@dataclass(frozen=True)
class Settlement:
    """Records how runs end. Every record needs the lease."""

    recorder: Recorder
    fleet: Alternatives
    routing: Routing
    policy: RetryPolicy
    clock: Clock
    chance: Callable[[], float]
    """Spreads backoffs (0 to 1)."""
    remove_files: Callable[[Sequence[str]], Awaitable[None]]
    """Removes files that are nobody's any more."""
    report_lost_context: Callable[[str, str], bool] = lambda *_: False
    """Called with an exception at a server. True if that has lost its card and is restarted."""

    async def settle(
        self, leased: Leased, server: FleetServer, failure: Failure, *, was_running: bool, is_left: bool
    ) -> None:
        """Decide by the class of the failure, and record it.

        `was_running`: the prompt may be why its server was lost. `is_left`: we left the server, and that it loses the
        prompt is no news.
        """
        if failure.kind is FailureClass.CANCELLED:  # of an earlier life: whoever holds the lease is wanted
            failure = replace(failure, kind=FailureClass.INTERRUPTED)
        if failure.kind is FailureClass.EXECUTION and self.report_lost_context(server.name, failure.message):
            failure, was_running = replace(failure, kind=FailureClass.SERVER_LOST), True
        if failure.kind is FailureClass.OOM:
            await self._free_memory(leased, server)
        if failure.kind is FailureClass.SERVER_LOST:
            self.fleet.probe_now(server)
            lost = 0 if is_left else server.unreported_loss(leased.prompt_id)
            if lost:
                message = f"it has lost {lost} of our prompts: {failure.message}"
                await self.alert(leased, server, EventName.ALERT_SERVER, message)
        lacks = failure.kind is FailureClass.MISSING or (failure.kind is FailureClass.INVALID and failure.by_choice)
        if lacks and self.fleet.is_alternative_to(server, leased.avoids):
            await self._requeue(leased, failure, Retry(0.0, charged=False), avoid_server=True)
            return
        decision = decide(
            failure.kind,
            leased.tally,
            self.policy,
            suspect=failure.kind is FailureClass.SERVER_LOST and was_running,
            chance=self.chance(),
            by_choice=failure.by_choice,
        )
        is_too_small = failure.kind is FailureClass.OOM and leased.last_failure == FailureClass.OOM.value
        if is_too_small and isinstance(decision, Retry):
            # Memory was short here again after it had been freed.
            failure, is_final = await self._outgrow(leased, server, failure)
            decision = GiveUp(FailureClass.OOM) if is_final else decision
        if isinstance(decision, Retry):
            is_left_behind = is_too_small and self.fleet.is_alternative_to(server, leased.avoids)
            await self._requeue(leased, failure, decision, avoid_server=is_left_behind)
            return
        if lacks and (missing := self.routing.where_it_was_looked_for(leased.needs)):
            failure = replace(failure, message=f"{failure.message} ({missing})")
        if decision.kind is FailureClass.POISON:
            times = leased.tally.strikes + 1
            message = f"its server died {times} times while it ran; not tried again. The last time: {failure.message}"
            failure = replace(failure, kind=FailureClass.POISON, message=message)
        await self.give_up(leased, failure, decision)

    async def give_up(self, leased: Leased, failure: Failure, decision: GiveUp) -> None:
        """The job has failed for good."""
        log.info("%s: %s: %s", leased.config_name, failure.kind, failure.message)
        await self.remove_files(await self.recorder.write(ops.fail_job, leased.lease, failure, decision))

    async def wait_for_server(self, leased: Leased, server: FleetServer, executed: float) -> None:
        """Give the job back, uncharged: it waits for its server or another, and the server's copy may be taken over.

        `executed`: for how many seconds the prompt is known to have been executed. Whether it is a suspect shows when
        the server is back without it, or another has taken it. Where one strike more would end it as poison, no other
        server takes it before.
        """
        away = server.seconds_down()
        message = f"it waits for a server: {server.name} has not answered for {away:.0f} s ({server.reason})"
        failure = Failure(FailureClass.SERVER_LOST, message, server=server.name, prompt_id=leased.prompt_id)
        log.info("%s: %s", leased.config_name, message)
        lost = server.unreported_loss(leased.prompt_id)
        if lost:
            await self.alert(
                leased, server, EventName.ALERT_SERVER, f"gone with {lost} of our prompts: {server.reason}"
            )
        is_held = executed > 0 and leased.tally.strikes + 1 >= self.policy.poison_limit
        await self.recorder.write(ops.wait_for_server, leased.lease, failure, away, executed, is_held=is_held)

    async def alert(self, leased: Leased, server: FleetServer, name: EventName, message: str) -> None:
        await self.recorder.note(Event(name, job_id=leased.lease.job_id, server=server.name, message=message))

    async def _requeue(self, leased: Leased, failure: Failure, retry: Retry, *, avoid_server: bool) -> None:
        log.info("%s: %s: %s", leased.config_name, failure.kind, failure.message)
        await self.recorder.write(ops.requeue_job, leased.lease, failure, retry, avoid_server=avoid_server)

    async def _outgrow(self, leased: Leased, server: FleetServer, failure: Failure) -> tuple[Failure, bool]:
        """Note that jobs like this one need a bigger server. Returns the failure, and whether no server has more."""
        known = self.routing.find(leased.needs)
        if known is None:
            return failure, False
        await asyncio.gather(*(_measure(each) for each in self.routing.employed() if each.answers))
        if server.capacity is None:
            return failure, False
        known = replace(known, memory_over=max(known.memory_over or 0, server.capacity))
        self.routing.know([known])
        await self.recorder.write(ops.raise_memory, known.key, server.capacity)
        if self.routing.bigger_servers(known):
            return failure, False
        there = ", ".join(
            f"{each.name.partition('://')[2]} {gigabytes(each.capacity)}" for each in self.routing.employed()
        )
        asked = ASKED_FOR.search(failure.message)
        needed = f"{asked[1]} at once, " if asked else ""
        message = f"{failure.message}: it needs {needed}more than {gigabytes(known.memory_over)}, and there is {there}"
        return replace(failure, message=message), True

    async def _free_memory(self, leased: Leased, server: FleetServer) -> None:
        """Make the server unload its models once it renders nothing else of ours. It gets nothing new meanwhile."""
        server.oom_failures += 1
        server.freeing.add(leased.prompt_id)
        try:
            await self.clock.wait_while(lambda: server.is_rendering_ours, FREE_SECONDS)
            freed = await server.client.free(timeout=FREE_SECONDS)
            problem = "" if freed.came_free else "memory did not come free after an out-of-memory error"
        except ComfyError as error:
            problem = f"memory could not be freed: {error.message}"
        finally:
            server.freeing.discard(leased.prompt_id)
        if problem:
            await self.alert(leased, server, EventName.ALERT_MEMORY, problem)


async def _measure(server: FleetServer) -> None:
    with contextlib.suppress(ComfyError):
        await server.measure()

"""What follows when a server's health changes: events, alerts, and another look at what it was lost with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from typing_extensions import assert_never

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.signals import Signals
from comfyui_agent.fleet.server import FleetServer, Health

RETURN_SECONDS = 1.0


class LostJobs(Protocol):
    @property
    def has_lost(self) -> bool: ...


class ServerAlerts:
    """An observer of the fleet."""

    def __init__(
        self,
        recorder: Recorder,
        recovery: LostJobs,
        signals: Signals,
        clock: Clock,
        forget_inputs: Callable[[str], None],
    ) -> None:
        """`forget_inputs`: a server may come back with other models, and without what it was given."""
        self._recorder = recorder
        self._recovery = recovery
        self._signals = signals
        self._clock = clock
        self._forget_inputs = forget_inputs
        self._tasks = BackgroundTasks("reporting on a server")

    def see_health(self, server: FleetServer, before: Health) -> None:
        self._signals.wake()
        self._forget_inputs(server.name)
        if server.answers and self._recovery.has_lost:
            # What it was lost with is looked up; others may be back any moment with what they have.
            server.rest(RETURN_SECONDS)
            self._signals.note_change()
            self._tasks.start(self._wake_later())
        match server.health:
            case Health.UP:
                if before is not Health.UNKNOWN:
                    self._note(Event(EventName.SERVER_UP, server=server.name))
            case Health.DOWN:
                self._note(Event(EventName.SERVER_DOWN, server=server.name, message=server.reason))
                count = server.report_loss()
                if count:
                    message = f"gone with {count} of our prompts: {server.reason}"
                    self._note(Event(EventName.ALERT_SERVER, server=server.name, message=message))
            case Health.ASIDE | Health.UNKNOWN:
                pass  # whoever set it aside has reported that
            case _:
                assert_never(server.health)

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _wake_later(self) -> None:
        await self._clock.sleep(RETURN_SECONDS)
        self._signals.wake()

    def _note(self, event: Event) -> None:
        self._tasks.start(self._recorder.note(event))

"""What follows when a server's health changes: events, alerts, and another look at what it was lost with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from typing_extensions import assert_never

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.recovery import Recovery
from comfyui_agent.engine.runs import Signals
from comfyui_agent.fleet.server import FleetServer, Health

RETURN_SECONDS = 1.0


@dataclass
class ServerAlerts:
    """An observer of the fleet."""

    recorder: Recorder
    recovery: Recovery
    signals: Signals
    clock: Clock
    forget_inputs: Callable[[str], None]
    """Called with a server that may come back with other models, and without what it was given."""
    _tasks: BackgroundTasks = field(default_factory=lambda: BackgroundTasks("reporting on a server"), init=False)

    def see_health(self, server: FleetServer, before: Health) -> None:
        self.signals.work.set()
        self.forget_inputs(server.name)
        if server.answers and self.recovery.has_lost:
            # What it was lost with is looked up; others may be back any moment with what they have.
            server.rest(RETURN_SECONDS)
            self.signals.change.set()
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
        await self.clock.sleep(RETURN_SECONDS)
        self.signals.work.set()

    def _note(self, event: Event) -> None:
        self._tasks.start(self.recorder.note(event))

"""How long renders take, and the failures that were asked for."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

from PIL import Image

from comfyui_agent.sim.settings import SimSettings

CRASHED = 70

Draw = Callable[[int], Image.Image]
"""Draws the preview of a step."""
Step = Callable[[str, int, int, Draw | None], None]


class InterruptProcessingException(Exception):
    """Someone has interrupted the running prompt."""


class SimulatedFailure(RuntimeError):
    """A node failed because the simulator was told to fail now and then."""


class RenderPace:
    """Decides how long each render takes and whether it fails, spends the time, and holds the interrupt flag.

    The samplers of a prompt share its time, and every step can be interrupted. A prompt without a sampler spends it in
    the first node that runs; one whose every node is cached spends none.
    """

    def __init__(self, settings: SimSettings, dice: random.Random) -> None:
        self._settings = settings
        self._dice = dice
        self.interrupted = threading.Event()
        self._renders = 0

    def start_prompt(self, samplers: int, step: Step) -> None:
        self._samplers = samplers
        self._step = step
        self._node_id = ""
        self._seconds: float | None = None
        self._fails = False

    def enter(self, node_id: str) -> None:
        self._node_id = node_id
        self.check_interrupt()
        if self._seconds is None and self._samplers == 0:
            self._spend(self._render_seconds(), 1)

    def work(self, steps: int, draw: Draw | None) -> None:
        """Spend this node's share of the render time in steps."""
        steps = max(1, steps)
        share = self._render_seconds() / max(1, self._samplers)
        self._spend(share, steps, lambda step: self._step(self._node_id, step, steps, draw))

    def load_model(self) -> None:
        self.sleep(self._settings.model_load_seconds.draw(self._dice))

    def sleep(self, seconds: float) -> None:
        if seconds > 0 and self.interrupted.wait(seconds):
            self.check_interrupt()

    def check_interrupt(self) -> None:
        if self.interrupted.is_set():
            self.interrupted.clear()
            raise InterruptProcessingException

    def begin_render(self) -> tuple[float, bool]:
        """The seconds of the next render, and whether it fails."""
        self._renders += 1
        fails = self._settings.failure_rate > 0 and self._dice.random() < self._settings.failure_rate
        return self._settings.render_seconds.draw(self._dice), fails

    def _render_seconds(self) -> float:
        if self._seconds is None:
            self._seconds, self._fails = self.begin_render()
        return self._seconds

    def _spend(self, seconds: float, steps: int, report: Callable[[int], None] | None = None) -> None:
        for step in range(1, steps + 1):
            self.sleep(seconds / steps)
            if step == (steps + 1) // 2:
                self._fail_halfway()
            self.check_interrupt()
            if report is not None:
                report(step)

    def _fail_halfway(self) -> None:
        """Crash, hang or fail, if that was asked for."""
        if self._settings.crash_after is not None and self._renders > self._settings.crash_after:
            os.write(2, f"e3: the simulator dies in render {self._renders}, as it was told\n".encode())
            os._exit(CRASHED)
        if self._settings.hang_after is not None and self._renders > self._settings.hang_after:
            while True:
                time.sleep(3600)
        if self._fails:
            self._fails = False
            raise SimulatedFailure(f"the simulator was told to fail, and node {self._node_id} was its choice")

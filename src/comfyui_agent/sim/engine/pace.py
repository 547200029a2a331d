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


class RenderRules:
    """Decides from render to render how long it takes and whether it fails, and holds the interrupt flag."""

    def __init__(self, settings: SimSettings, dice: random.Random) -> None:
        self.settings = settings
        self.dice = dice
        self.interrupted = threading.Event()
        self._renders = 0

    def check_interrupt(self) -> None:
        if self.interrupted.is_set():
            self.interrupted.clear()
            raise InterruptProcessingException

    def sleep(self, seconds: float) -> None:
        if seconds > 0 and self.interrupted.wait(seconds):
            self.check_interrupt()

    def begin_render(self) -> tuple[float, bool]:
        """The seconds of the next render, and whether it fails."""
        self._renders += 1
        fails = self.settings.failure_rate > 0 and self.dice.random() < self.settings.failure_rate
        return self.settings.render_seconds.draw(self.dice), fails

    def crash_or_hang(self) -> None:
        """Called in the middle of each render."""
        if self.settings.crash_after is not None and self._renders > self.settings.crash_after:
            os.write(2, f"e3: the simulator dies in render {self._renders}, as it was told\n".encode())
            os._exit(CRASHED)
        if self.settings.hang_after is not None and self._renders > self.settings.hang_after:
            while True:
                time.sleep(3600)


class RenderPace:
    """Spends the render time of one prompt. Its samplers share the time, and every step can be interrupted.

    A prompt without a sampler spends it in the first node that runs; one whose every node is cached spends none.
    """

    def __init__(self, rules: RenderRules, samplers: int, step: Step) -> None:
        self._rules = rules
        self._samplers = samplers
        self._step = step
        self._node_id = ""
        self._seconds: float | None = None
        self._fails = False
        self.sleep = rules.sleep

    def enter(self, node_id: str) -> None:
        self._node_id = node_id
        self._rules.check_interrupt()
        if self._seconds is None and self._samplers == 0:
            self._spend(self._render_seconds(), 1)

    def work(self, steps: int, draw: Draw | None) -> None:
        """Spend this node's share of the render time in steps."""
        steps = max(1, steps)
        share = self._render_seconds() / max(1, self._samplers)
        self._spend(share, steps, lambda step: self._step(self._node_id, step, steps, draw))

    def load_model(self) -> None:
        self.sleep(self._rules.settings.model_load_seconds.draw(self._rules.dice))

    def _render_seconds(self) -> float:
        if self._seconds is None:
            self._seconds, self._fails = self._rules.begin_render()
        return self._seconds

    def _spend(self, seconds: float, steps: int, report: Callable[[int], None] | None = None) -> None:
        for step in range(1, steps + 1):
            self.sleep(seconds / steps)
            if step == (steps + 1) // 2:
                self._rules.crash_or_hang()
                if self._fails:
                    self._fails = False
                    raise SimulatedFailure(f"the simulator was told to fail, and node {self._node_id} was its choice")
            self._rules.check_interrupt()
            if report is not None:
                report(step)

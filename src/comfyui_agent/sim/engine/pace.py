"""Time and trouble: how long renders take, and the failures that were asked for."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from comfyui_agent.sim.engine.node_run import InterruptProcessingException
from comfyui_agent.sim.settings import SimSettings

CRASHED = 70

Step = Callable[[str, int, int, Callable[[int], Any] | None], None]


class SimulatedFailure(RuntimeError):
    """A node failed because the simulator was told to fail now and then."""


class Whims:
    """What the switches of a simulator decide from render to render."""

    def __init__(self, settings: SimSettings, dice: random.Random) -> None:
        self._settings = settings
        self._dice = dice
        self._interrupted = threading.Event()
        self._renders = 0

    def interrupt(self) -> None:
        self._interrupted.set()

    def clear_interrupt(self) -> None:
        self._interrupted.clear()

    def check_interrupt(self) -> None:
        if self._interrupted.is_set():
            self._interrupted.clear()
            raise InterruptProcessingException

    def sleep(self, seconds: float) -> None:
        if seconds > 0 and self._interrupted.wait(seconds):
            self.check_interrupt()

    def begin_render(self) -> tuple[float, bool]:
        """The seconds of the next render, and whether it is to fail."""
        self._renders += 1
        fails = self._settings.failure_rate > 0 and self._dice.random() < self._settings.failure_rate
        return self._settings.render_seconds.draw(self._dice), fails

    def model_load_seconds(self) -> float:
        return self._settings.model_load_seconds.draw(self._dice)

    def halfway(self) -> None:
        """Called in the middle of each render: the place where a server dies or hangs."""
        if self._settings.crash_after is not None and self._renders > self._settings.crash_after:
            os.write(2, f"e3: the simulator dies in render {self._renders}, as it was told\n".encode())
            os._exit(CRASHED)
        if self._settings.hang_after is not None and self._renders > self._settings.hang_after:
            while True:
                time.sleep(3600)


class RenderPace:
    """Spends the time of one prompt. A render is one draw of render time, shared by the prompt's samplers.

    A prompt without a sampler spends it in the first node that runs; one whose every node is cached spends none.
    """

    def __init__(self, whims: Whims, samplers: int, step: Step) -> None:
        self._whims = whims
        self._samplers = samplers
        self._step = step
        self._node_id = ""
        self._render: tuple[float, bool] | None = None

    def enter(self, node_id: str) -> None:
        self._node_id = node_id
        self._whims.check_interrupt()
        if self._render is None and self._samplers == 0:
            self._spend(self._begin(), 1, None, tell=False)

    def leave(self) -> None:
        self._node_id = ""

    def work(self, steps: int, draw: Callable[[int], Any] | None) -> None:
        seconds = self._begin() if self._render is None else self._render[0]
        self._spend(seconds / max(1, self._samplers), max(1, steps), draw, tell=True)

    def load_model(self) -> None:
        self._whims.sleep(self._whims.model_load_seconds())

    def wait(self, seconds: float) -> None:
        self._whims.sleep(seconds)

    def _begin(self) -> float:
        self._render = self._whims.begin_render()
        return self._render[0]

    def _spend(self, seconds: float, steps: int, draw: Callable[[int], Any] | None, tell: bool) -> None:
        for step in range(1, steps + 1):
            self._whims.sleep(seconds / steps)
            if step == (steps + 1) // 2:
                self._trouble()
            self._whims.check_interrupt()
            if tell:
                self._step(self._node_id, step, steps, draw)

    def _trouble(self) -> None:
        self._whims.halfway()
        if self._render is not None and self._render[1]:
            self._render = (self._render[0], False)
            raise SimulatedFailure(f"the simulator was told to fail, and node {self._node_id} was its choice")

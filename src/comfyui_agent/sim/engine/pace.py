"""How long renders take, and the failures that were asked for."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

from PIL import Image

from comfyui_agent.sim.engine.card import Card
from comfyui_agent.sim.settings import SimSettings

CRASHED = 70
CUDA_LOST = (
    "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' in "
    "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)

Draw = Callable[[int], Image.Image]
"""Draws the preview of a step."""
Step = Callable[[str, int, int, Draw | None], None]


class InterruptProcessingException(Exception):
    """Someone has interrupted the running prompt."""


class SimulatedFailure(RuntimeError):
    """A node failed because the simulator was told to fail now and then."""


class AcceleratorError(RuntimeError):
    """The CUDA context is lost: nothing renders in this process any more."""


AcceleratorError.__module__ = "torch"


class RenderPace:
    """Decides how long each render takes and whether it fails, spends the time, and holds the interrupt flag.

    The samplers of a prompt share its time, and every step can be interrupted. A prompt without a sampler spends it in
    the first node that runs; one whose every node is cached spends none. On a shared card every step takes longer.
    """

    def __init__(self, settings: SimSettings, dice: random.Random, card: Card | None = None) -> None:
        self._settings = settings
        self._dice = dice
        self._card = card or Card()
        self.interrupted = threading.Event()
        self._renders = 0
        self.loads = 0
        self.load_seconds = 0.0

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

    def work(self, steps: int, draw: Draw | None, reported: int | None = None) -> None:
        """Spend this node's share of the render time in steps, of which only the first are reported if so told."""
        steps = max(1, steps)
        share = self._render_seconds() / max(1, self._samplers)
        self._spend(share, reported or steps, lambda step: self._step(self._node_id, step, steps, draw))

    def load_model(self, name: str) -> None:
        """Spend the time that a model takes. One that is interrupted does not count as loaded."""
        duration = self._settings.load_seconds_of.get(name, self._settings.model_load_seconds)
        seconds = duration.draw(self._dice)
        self.sleep(seconds)
        self.loads += 1
        self.load_seconds += seconds

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
        self._card.update(is_rendering=True)
        try:
            for step in range(1, steps + 1):
                self.sleep(seconds / steps * self._card.slowdown)
                if step == (steps + 1) // 2:
                    self._fail_halfway()
                self.check_interrupt()
                if report is not None:
                    report(step)
        finally:
            self._card.update(is_rendering=False)

    def _fail_halfway(self) -> None:
        """Crash, hang, lose the device or fail, if that was asked for."""
        if self._settings.crash_after is not None and self._renders > self._settings.crash_after:
            os.write(2, f"e3: the simulator dies in render {self._renders}, as it was told\n".encode())
            os._exit(CRASHED)
        if self._settings.hang_after is not None and self._renders > self._settings.hang_after:
            while True:
                time.sleep(3600)
        if self._settings.cuda_lost_after is not None and self._renders > self._settings.cuda_lost_after:
            os.write(2, f"!!! Exception during processing !!! {CUDA_LOST}".encode())
            raise AcceleratorError(CUDA_LOST)
        if self._fails:
            self._fails = False
            raise SimulatedFailure(f"the simulator was told to fail, and node {self._node_id} was its choice")

"""Video memory: models take it while they are loaded, pictures while they are made."""

from __future__ import annotations

from collections.abc import Collection

from comfyui_agent.sim.engine.card import Card

GIB = 1024**3
MODEL_BYTES = 4 * GIB
BYTES_PER_PIXEL = 1536


class OutOfMemoryError(RuntimeError):
    """A picture does not fit beside its model, even with all other models of this process unloaded."""


OutOfMemoryError.__module__ = "torch"


class VideoMemory:
    """The memory of one card. A model takes 4 GiB, or half of a small card.

    `held` gigabytes stay taken until `let_go`. What the other simulators on the card take is not free.
    """

    def __init__(self, gib: float, held: float = 0.0, card: Card | None = None) -> None:
        self.total = int(gib * GIB)
        self._held = int(held * GIB)
        self._model_bytes = min(MODEL_BYTES, self.total // 2)
        self._work = 0
        self.loaded: list[str] = []
        self._card = card or Card()
        self._publish()

    @property
    def free(self) -> int:
        return max(0, self.total - self._taken_by_others() - self.taken)

    @property
    def taken(self) -> int:
        """What this simulator takes."""
        return len(self.loaded) * self._model_bytes + self._held + self._work

    def reserve(self, model: str, pixels: int) -> None:
        """Load a model and take what its work needs until `release`; the models used longest ago make room."""
        self._work = work = pixels * BYTES_PER_PIXEL
        self.loaded = [*(name for name in self.loaded if name != model), model]
        while self._is_over() and len(self.loaded) > 1:
            self.loaded.pop(0)
        if not self._is_over():
            self._publish()
        if self._is_over():  # also when another simulator has taken the last of it at the same time
            self._work = 0
            free = self.free
            self.keep_only(())
            raise OutOfMemoryError(
                f"Allocation on device 0 would exceed allowed memory. (out of memory)\n"
                f"Requested               : {work / GIB:.2f} GiB\n"
                f"Device limit            : {self.total / GIB:.2f} GiB\n"
                f"Free (according to CUDA): {free / GIB:.2f} GiB"
            )

    def release(self) -> None:
        """Give back what the work took. The model stays."""
        self._work = 0
        self._publish()

    def keep_only(self, models: Collection[str]) -> None:
        self.loaded = [name for name in self.loaded if name in models]
        self._publish()

    def let_go(self) -> None:
        self._held = 0
        self._publish()

    def _publish(self) -> None:
        self._card.update(taken=self.taken)

    def _taken_by_others(self) -> int:
        return sum(other.taken for other in self._card.others())

    def _is_over(self) -> bool:
        return self.taken + self._taken_by_others() > self.total

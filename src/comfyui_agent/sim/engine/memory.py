"""Video memory: models take it while they are loaded, pictures while they are made."""

from __future__ import annotations

GIB = 1024**3
MODEL_BYTES = 4 * GIB
BYTES_PER_PIXEL = 1536


class OutOfMemoryError(RuntimeError):
    """A picture does not fit beside its model, even with all other models unloaded."""


OutOfMemoryError.__module__ = "torch"


class VideoMemory:
    """The memory of one device. A model takes 4 GiB, or half of a small device.

    `held` gigabytes stay taken until `let_go`.
    """

    def __init__(self, gib: float, held: float = 0.0) -> None:
        self.total = int(gib * GIB)
        self._held = int(held * GIB)
        self._model_bytes = min(MODEL_BYTES, self.total // 2)
        self._loaded: list[str] = []

    @property
    def free(self) -> int:
        return max(0, self.total - self._taken)

    @property
    def _taken(self) -> int:
        return len(self._loaded) * self._model_bytes + self._held

    def is_loaded(self, model: str) -> bool:
        return model in self._loaded

    def reserve(self, model: str, pixels: int) -> None:
        """Load a model and make room for its work; the models used longest ago are unloaded."""
        work = pixels * BYTES_PER_PIXEL
        self._loaded = [*(name for name in self._loaded if name != model), model]
        while self._taken + work > self.total and len(self._loaded) > 1:
            self._loaded.pop(0)
        if self._taken + work > self.total:
            free = self.free
            self.unload_all()
            raise OutOfMemoryError(
                f"Allocation on device 0 would exceed allowed memory. (out of memory)\n"
                f"Requested               : {work / GIB:.2f} GiB\n"
                f"Device limit            : {self.total / GIB:.2f} GiB\n"
                f"Free (according to CUDA): {free / GIB:.2f} GiB"
            )

    def unload_all(self) -> None:
        self._loaded.clear()

    def let_go(self) -> None:
        self._held = 0

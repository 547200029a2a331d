"""The card that a simulator renders on. Simulators of one user that name the same card share its speed and memory.

Models take memory while they are loaded, pictures while they are made.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import sys
import tempfile
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, NamedTuple

if sys.platform != "win32":
    import fcntl

SLOWER = 0.35
"""How much longer a render takes for each other one on its card, as measured on an H200."""
FORM = struct.Struct("<?q")
GIB = 1024**3
MODEL_BYTES = 4 * GIB
BYTES_PER_PIXEL = 1536


class Member(NamedTuple):
    """What one simulator does on its card."""

    is_rendering: bool = False
    taken: int = 0


class Card:
    """A simulator's place on a card; without a name, on a card of its own.

    A file says what the simulator does. The process locks it until it ends, so a file without a lock is a dead one's.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._me = Member()
        self._file: IO[bytes] | None = None
        if name is None:
            return
        if sys.platform == "win32":
            raise ValueError("a card cannot be shared on Windows: leave --card out")
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ValueError(f"{name!r} is not the name of a card: use letters, digits, dots, - and _")
        self._folder = Path(tempfile.gettempdir()) / f"e3-cards-{os.getuid()}" / name
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        new = self._folder / f"{os.getpid()}-{uuid.uuid4().hex}.new"
        self._file = new.open("xb", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.update()
        self._path = new.rename(new.with_suffix(".member"))  # others see it only now that it is locked

    def update(self, **changes: Any) -> None:
        """Let the others know what this simulator does: fields of a `Member`."""
        self._me = self._me._replace(**changes)
        if self._file is not None and not self._file.closed:
            self._file.seek(0)
            self._file.write(FORM.pack(*self._me))

    def others(self) -> list[Member]:
        """The other living simulators on this card. Files of dead ones are removed."""
        found: list[Member] = []
        paths = self._folder.glob("*.member") if self._file is not None else ()
        for path in paths:
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    path.unlink()
                except BlockingIOError:
                    if path != self._path:
                        found.append(Member(*FORM.unpack(file.read(FORM.size))))
        return found

    @property
    def slowdown(self) -> float:
        """How many times longer a render takes now than on a card of its own."""
        return 1 + SLOWER * sum(other.is_rendering for other in self.others())

    def close(self) -> None:
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            self._file.close()


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
        return max(0, self._room())

    @property
    def taken(self) -> int:
        """What this simulator takes."""
        return len(self.loaded) * self._model_bytes + self._held + self._work

    def reserve(self, model: str, pixels: int) -> None:
        """Load a model and take what its work needs until `release`; the models used longest ago make room."""
        self._work = work = pixels * BYTES_PER_PIXEL
        self.loaded = [*(name for name in self.loaded if name != model), model]
        while self._room() < 0 and len(self.loaded) > 1:
            self.loaded.pop(0)
        if self._room() >= 0:
            self._publish()
        if self._room() < 0:  # also when another simulator has taken the last of it at the same time
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

    def _room(self) -> int:
        """What is free, below 0 if more is taken than there is."""
        return self.total - self.taken - sum(other.taken for other in self._card.others())

"""Results on their way to this machine: whole, and with the bytes that E3 recorded, or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from urllib.parse import quote

from comfyui_agent.domain.results import Result
from comfyui_agent.remote.errors import DamagedResult


def grid_of(batch_id: str) -> Result:
    """The drawn grid of a batch, to be downloaded. It is there soon after the batch has ended."""
    return Result(0, "grid.png", f"/api/v1/batches/{quote(batch_id, safe='')}/grid", None, "image/png")


class Download:
    """A file that is being written beside its place. It gets its name when all of it is there."""

    def __init__(self, result: Result, target: Path) -> None:
        self._result = result
        self.path = target / result.name if target.is_dir() else target
        self._digest = hashlib.sha256()
        self._size = 0

    def __enter__(self) -> Download:
        folder = self.path.parent
        self._file = tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".e3part", delete=False)
        return self

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._size += len(data)
        self._file.write(data)

    def finish(self) -> Path:
        """DamagedResult if the bytes are not those that were recorded."""
        wanted = self._result
        if wanted.bytes is not None and self._size != wanted.bytes:
            raise DamagedResult(f"{wanted.name}: {self._size:,} of {wanted.bytes:,} bytes came")
        if wanted.sha256 is not None and self._digest.hexdigest() != wanted.sha256:
            raise DamagedResult(f"{wanted.name} came with other bytes than E3 recorded")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        Path(self._file.name).replace(self.path)
        return self.path

    def __exit__(self, *_: object) -> None:
        self._file.close()
        Path(self._file.name).unlink(missing_ok=True)

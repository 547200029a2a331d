"""The names of saved files: a prefix and a counter, never outside the folder."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class SavePlace:
    """Where one save node puts its files."""

    folder: Path
    subfolder: str
    stem: str
    counter: int

    def next_name(self, extension: str, batch_number: int | None = None) -> str:
        stem = self.stem if batch_number is None else self.stem.replace("%batch_num%", str(batch_number))
        name = f"{stem}_{self.counter:05}_.{extension}"
        self.counter += 1
        return name


def save_place(root: Path, prefix: str, width: int = 0, height: int = 0) -> SavePlace:
    """Fill in the placeholders of a prefix and continue after the highest counter in the folder."""
    prefix = os.path.normpath(_filled(prefix, width, height))
    subfolder, stem = os.path.split(prefix)
    folder = Path(os.path.normpath(root / subfolder))
    if not folder.is_relative_to(root):
        raise Exception(  # the class that clients of the real server see
            "**** ERROR: Saving image outside the output folder is not allowed."
            f"\n full_output_folder: {folder}\n         output_dir: {root}"
            f"\n         commonpath: {os.path.commonpath((root, folder))}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    highest = max((_counter(name, stem) for name in os.listdir(folder)), default=0)
    return SavePlace(folder, subfolder, stem, highest + 1)


def _counter(name: str, stem: str) -> int:
    if not name.startswith(f"{stem}_"):
        return 0
    digits = name[len(stem) + 1 :].split("_")[0]
    return int(digits) if digits.isdecimal() else 0


def _filled(prefix: str, width: int, height: int) -> str:
    if "%" not in prefix:
        return prefix
    now = time.localtime()
    fillings = {
        "width": str(width),
        "height": str(height),
        "year": str(now.tm_year),
        "month": f"{now.tm_mon:02}",
        "day": f"{now.tm_mday:02}",
        "hour": f"{now.tm_hour:02}",
        "minute": f"{now.tm_min:02}",
        "second": f"{now.tm_sec:02}",
    }
    for name, value in fillings.items():
        prefix = prefix.replace(f"%{name}%", value)
    return prefix

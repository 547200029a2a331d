"""Running `e3` as a person or a script would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def e3(*arguments: str, cwd: Path | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "comfyui_agent", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, timeout=timeout, env=environment, check=False
    )

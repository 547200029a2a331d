"""Making a workspace: folders, a configuration, sample workflows and jobs. Nothing is overwritten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from comfyui_agent.domain.kinds import FOLDERS

SAMPLES = Path(__file__).parent / "samples"
PLACES = {
    "global_config.yaml": "config/global_config.yaml",
    "workflows.yaml": "config/workflows.yaml",
    "env.example": ".env.example",
    "workflows": "workflows",
    "jobs": "examples",
    "pictures": "pictures",
}
ADDRESS = "http://127.0.0.1:8188"


def start_workspace(root: Path, server: str = "") -> Iterator[tuple[str, bool]]:
    """Make what is missing. Yields each file and whether it was made. OSError if one cannot be."""
    for base in ("jobs/processing", "jobs/finished"):
        for kind in dict.fromkeys(FOLDERS.values()):
            (root / base / kind).mkdir(parents=True, exist_ok=True)
    (root / "database").mkdir(0o700, exist_ok=True)
    is_elsewhere = (root / "comfyui_agent/config/global_config.yaml").exists()
    for sample, place in sorted(_samples()):
        if is_elsewhere and place.startswith("config/"):
            place = f"comfyui_agent/{place}"
        target = root / place
        if target.exists():
            yield place, False
            continue
        is_private = target.parent.name == "config" or target.name.startswith(".env")
        target.parent.mkdir(0o700 if is_private else 0o777, parents=True, exist_ok=True)
        data = sample.read_bytes()
        if server and sample.name == "global_config.yaml":
            data = data.replace(f'"{ADDRESS}"'.encode(), json.dumps(server).encode())
        target.touch(0o600 if is_private else 0o666)
        target.write_bytes(data)
        yield place, True


def _samples() -> Iterator[tuple[Path, str]]:
    for name, place in PLACES.items():
        source = SAMPLES / name
        if source.is_dir():
            yield from ((file, f"{place}/{file.name}") for file in source.iterdir() if file.is_file())
        else:
            yield source, place

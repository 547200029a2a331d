"""The sample payloads: one page of a picture book, small, medium and large."""

from __future__ import annotations

from pathlib import Path

SAMPLES = ("book_small", "book_medium", "book_large")
MODEL = "v1-5-pruned-emaonly-fp16.safetensors"
"""The checkpoint in the samples, which is that of ComfyUI's default workflow."""
SHIPPED = Path(__file__).with_name("sample_payloads")
CHECKOUT = Path(__file__).parents[3] / "infra" / "comfyui" / "samples"


def sample_path(name: str, root: Path) -> Path | None:
    """The file of a sample in the workspace, else the one that comes with E3; None if there is no such sample."""
    if name not in SAMPLES:
        return None
    places = [root / "infra" / "comfyui" / "samples", SHIPPED, CHECKOUT]
    return next((place / f"{name}.json" for place in places if (place / f"{name}.json").is_file()), None)

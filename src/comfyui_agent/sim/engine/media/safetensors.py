"""Latents on disk: a safetensors file with one tensor."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path


def write_latent(path: Path, shape: tuple[int, ...], seed: int, metadata: dict[str, str]) -> None:
    """Write a float32 tensor whose values follow from a seed."""
    size = 4
    for length in shape:
        size *= length
    dice = random.Random(seed)
    header = {
        "__metadata__": metadata,
        "latent_format_version_0": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
        "latent_tensor": {"dtype": "F32", "shape": list(shape), "data_offsets": [0, size]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = struct.pack(f"<{size // 4}f", *(dice.uniform(-1, 1) for _ in range(size // 4)))
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)

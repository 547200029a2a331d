"""Sizes of jobs and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyui_agent.domain.texts import json_text

KB = 1024


def too_large(inputs: Mapping[str, Any], metadata: Mapping[str, Any] | None, limit_kb: int) -> str:
    """A message if inputs and metadata take more JSON than the limit, else an empty text."""
    size = bytes_of(inputs) + (bytes_of(metadata) if metadata else 0)
    if size <= limit_kb * KB:
        return ""
    return (
        f"inputs and metadata take {-(-size // KB):,} KB, and a job may have {limit_kb:,} KB: "
        "shorten the longest of them, or raise job_limit_kb"
    )


def bytes_of(value: Any) -> int:
    """The size of a value in the database."""
    return len(json_text(value).encode("utf-8"))


def megabytes(size: int) -> str:
    """`1.5 MB`"""
    number = size / KB / KB
    return f"{number:.1f} MB" if 0 < number < 10 else f"{number:,.0f} MB"

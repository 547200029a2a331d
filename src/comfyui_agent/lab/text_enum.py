"""Enums whose members are the words that reports write."""

from __future__ import annotations

from enum import Enum


class TextEnum(str, Enum):
    """A member prints as its value, on every supported Python version."""

    def __str__(self) -> str:
        return str(self.value)

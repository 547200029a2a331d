"""Enumerations of texts. Runs on Python 3.9."""

from __future__ import annotations

from enum import Enum


class TextEnum(str, Enum):
    """Members print as their value, like `enum.StrEnum` of Python 3.11."""

    def __str__(self) -> str:
        return str(self.value)

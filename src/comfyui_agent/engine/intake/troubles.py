"""What is wrong at the moment, reported once."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


class Troubles:
    """Logs each trouble of a subject once, and again when it comes back after it was over."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}

    def report(self, subject: str, message: str) -> None:
        if self._reported.get(subject) != message:
            self._reported[subject] = message
            log.error("%s", message)

    def clear(self, *subjects: str) -> None:
        """These subjects are in no trouble any more."""
        for subject in subjects:
            self._reported.pop(subject, None)

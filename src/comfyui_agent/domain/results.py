"""Results as programs and pages see them."""

from __future__ import annotations

from dataclasses import dataclass

USUAL_WIDTH = 320
"""Of a thumbnail, in pixels."""


@dataclass(frozen=True)
class Result:
    """A result file that can be fetched."""

    number: int
    name: str
    url: str
    """It changes with the file, so that browsers can cache it for ever, like `thumbnail`."""
    thumbnail: str | None
    """None if the result is no picture."""
    media_type: str
    sha256: str | None = None
    """None if it is older than digests."""
    bytes: int | None = None

    def thumbnail_at(self, width: int) -> str:
        return (self.thumbnail or "").replace(f"?width={USUAL_WIDTH}&", f"?width={width}&")

"""What fits on a card at once. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FitsAtOnce:
    """How many servers that render this workflow fit on the card side by side; None if that is not known."""

    count: int | None
    sentence: str

    def as_json(self) -> dict[str, Any]:
        return {"count": self.count, "sentence": self.sentence}


def fits_at_once(peak_mb: int | None, total_mb: int | None) -> FitsAtOnce:
    """From what one server held at most and what the card has.

    ComfyUI renders one prompt at a time, so more at once means more servers, each with models of its own.
    """
    if not peak_mb or not total_mb:
        return FitsAtOnce(
            None, "How many such servers fit on one card is not known: the memory of a graphics card was not seen."
        )
    count = max(1, total_mb // peak_mb)
    room = f"{peak_mb:,} MB of {total_mb:,} MB"
    if count == 1:
        return FitsAtOnce(1, f"One such server fits on this card: it holds up to {room}, and renders one at a time.")
    return FitsAtOnce(
        count,
        f"{count} such servers fit on this card side by side: each holds up to {room}, and renders one at a time.",
    )

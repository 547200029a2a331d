"""How many servers fit on one card."""

from __future__ import annotations

from comfyui_agent.lab.reports.profile import FitsAtOnce

UNKNOWN = "How many such servers fit on one card is not known: the memory of a graphics card was not seen."


def fits_at_once(peak_mb: float | None, total_mb: float | None) -> FitsAtOnce:
    """From what one server held at most and what the card has.

    ComfyUI renders one prompt at a time, so more at once means more servers, each with models of its own.
    """
    if not peak_mb or not total_mb:
        return FitsAtOnce(count=None, sentence=UNKNOWN)
    count = max(1, int(total_mb // peak_mb))
    room = f"{peak_mb:,} MB of {total_mb:,} MB"
    if count == 1:
        sentence = f"One such server fits on this card: it holds up to {room}, and renders one at a time."
    else:
        each = f"each holds up to {room}, and renders one at a time."
        sentence = f"{count} such servers fit on this card side by side: {each}"
    return FitsAtOnce(count=count, sentence=sentence)

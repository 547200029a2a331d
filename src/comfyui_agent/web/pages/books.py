"""Books, the newest first: how each stands, and its first pages."""

from __future__ import annotations

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.web.pages.batches import listed, summed
from comfyui_agent.web.screens import Screen, View


async def build(view: View) -> Screen:
    found, fragments = await listed(view, BatchKind.BOOK)
    words = summed(found, "book", "books") if found else "No books yet."
    return Screen("books.html", "Books", words, fragments, {}, "books")

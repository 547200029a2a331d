"""The thread pools of the page. They are separate from the agent's, and a slow disk does not stop rendering."""

from __future__ import annotations

from comfyui_agent.pools import Pool

RENDERING = Pool("e3-render", 2)
"""Pages, and large answers."""
FILES = Pool("e3-files", 4)
"""Reading results, previews, reports and live files."""
REQUESTS = Pool("e3-requests", 2)
"""Parsing large bodies."""
THUMBNAILS = Pool("e3-thumbnails", 2)
"""Making thumbnails."""

"""The threads of the page. None of them does work of the agent, and a slow disk stops no rendering."""

from __future__ import annotations

from comfyui_agent.pools import Pool

RENDERING = Pool("e3-render", 2)
"""Pages, and large answers."""
FILES = Pool("e3-files", 4)
"""Looking at results, previews, reports and live files."""
REQUESTS = Pool("e3-requests", 2)
"""Reading what is handed in."""

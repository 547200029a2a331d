"""The thread pools of the page. They are separate from the agent's, and a slow disk does not stop rendering."""

from __future__ import annotations

from comfyui_agent.pools import Pool

RENDERING = Pool("e3-render", 2)
FILES = Pool("e3-files", 4)
REQUESTS = Pool("e3-requests", 2)
THUMBNAILS = Pool("e3-thumbnails", 2)

"""`python -m comfyui_agent.execute`: work the queue off, as `e3 execute` does."""

from __future__ import annotations

from comfyui_agent.cli.execute import main

if __name__ == "__main__":
    main()

"""`python -m comfyui_agent.run`: the same as `e3 run`."""

from __future__ import annotations

from comfyui_agent.cli.agents import main

if __name__ == "__main__":
    main("run")

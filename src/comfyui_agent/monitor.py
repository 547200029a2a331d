"""`python -m comfyui_agent.monitor`: the same as `e3 monitor`."""

from comfyui_agent.cli.agents import main

if __name__ == "__main__":
    main("monitor")

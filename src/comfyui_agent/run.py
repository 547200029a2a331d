"""`python -m comfyui_agent.run`: the same as `e3 run`."""

from comfyui_agent.cli.agents import main

if __name__ == "__main__":
    main("run")

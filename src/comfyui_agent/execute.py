"""`python -m comfyui_agent.execute`: the same as `e3 execute`."""

from comfyui_agent.cli.agents import main

if __name__ == "__main__":
    main("execute")

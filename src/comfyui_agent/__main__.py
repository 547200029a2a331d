"""`python -m comfyui_agent` is `e3`."""

from comfyui_agent.cli.app import main

if __name__ == "__main__":
    main()

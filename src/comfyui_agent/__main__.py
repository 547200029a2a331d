"""`python -m comfyui_agent`, and the command `e3`."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run `e3`. Ctrl-C while it is being loaded ends it like any other."""
    try:
        from comfyui_agent.cli.app import main as e3
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    e3()


if __name__ == "__main__":
    main()

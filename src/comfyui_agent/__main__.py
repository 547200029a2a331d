"""`python -m comfyui_agent`, and the command `e3`."""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED)


def main() -> None:
    """Run `e3`. Ctrl-C while it is being loaded ends it at once: an exception could get lost in an import."""
    signal.signal(signal.SIGINT, _leave)
    from comfyui_agent.cli.app import main as e3

    signal.signal(signal.SIGINT, signal.default_int_handler)
    e3()


if __name__ == "__main__":
    main()

"""How a child of our own is started."""

from __future__ import annotations

import sys

START = "import sys; sys.path.pop(0); import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
"""As `-m` does it, but nothing in the current folder is taken for a module."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours with the interpreter of this process."""
    return [sys.executable, "-c", START.format(module), *arguments]

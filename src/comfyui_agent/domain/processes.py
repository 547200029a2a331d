"""The command line of our own child processes."""

from __future__ import annotations

import sys

START = "import sys; sys.path.pop(0); import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
"""Like `-m`, but without the current folder in the module path."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with the interpreter of this process."""
    return [sys.executable, "-c", START.format(module), *arguments]

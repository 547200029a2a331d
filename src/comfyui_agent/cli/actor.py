"""Who uses a terminal, in the audit trail."""

from __future__ import annotations

import getpass
import os

import typer

from comfyui_agent.domain.events import Event
from comfyui_agent.store.errors import StoreError
from comfyui_agent.usecases.actor import Actor


def terminal_actor() -> Actor:
    """Whoever runs a command may change everything."""
    return Actor(f"cli ({_user()})", on_unaudited=_say_unaudited)


def _say_unaudited(_: Event, error: StoreError) -> None:
    typer.echo(f"e3: done, but it is missing in the audit trail: {error}", err=True)


def _user() -> str:
    """The user that the system names; the environment is not believed."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # Windows, or a container whose user has no name
        try:
            return getpass.getuser()
        except (OSError, KeyError, ImportError):
            return "unknown"

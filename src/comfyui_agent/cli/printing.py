"""Words on the terminal: errors as one line on stderr, JSON as one document on stdout."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import typer


def fail(message: str, code: int = 1) -> NoReturn:
    """Say in one line what happened and what to do, and leave."""
    typer.echo(f"e3: {message}", err=True)
    raise typer.Exit(code)


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def on_terminal() -> bool:
    """Whether a person is watching: progress bars there, plain lines elsewhere."""
    return sys.stdout.isatty()


def gigabytes(number: float) -> str:
    return f"{number / 1024**3:.1f} GB"

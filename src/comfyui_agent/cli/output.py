"""Printing: errors as one line on stderr, JSON as one document on stdout."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import textwrap
from typing import Any, NoReturn

import typer

from comfyui_agent.domain.texts import printable


def fail(message: str, code: int = 1) -> NoReturn:
    """Say in one line what happened and what to do, and leave."""
    warn(message)
    raise typer.Exit(code)


def warn(message: str) -> None:
    """Say something in one line on stderr."""
    typer.echo(one_line(f"e3: {message}"), err=True)


def one_line(text: str) -> str:
    """The text on one line, with control characters made visible."""
    return printable(text).replace("\n", "\\n").replace("\t", " ")


def print_problem(name: str, problem: str) -> None:
    """Print what is wrong with something, a line for each mistake."""
    first, *more = problem.splitlines() or [""]
    for line in (f"e3: {name}: {first}", *more):
        typer.echo(one_line(line), err=True)


def print_json(document: Any) -> None:
    """Print one document. Characters that would do something to a terminal are escaped."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    for letter in set(text) - {"\n"}:
        if printable(letter) != letter:
            text = text.replace(letter, json.dumps(letter)[1:-1] if letter != "\x7f" else "\\u007f")
    typer.echo(text)


def on_terminal() -> bool:
    """Whether a person is watching: progress bars there, plain lines elsewhere."""
    return sys.stdout.isatty()


class _OneLine(logging.Formatter):
    """One line for each record, and an indented traceback below it if there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of logging
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return textwrap.indent(printable(super().formatException(ei)), "    ")


class _Stderr(logging.Handler):
    """Writes to the current stderr: a live board replaces it while it runs."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # no room, or nobody listens: no reason to stop working
            typer.echo(self.format(record), err=True)


def log_for_people(verbose: bool) -> None:
    """Log to stderr: warnings, or with `verbose` everything."""
    handler = _Stderr()
    handler.setFormatter(_OneLine("%(asctime)s  %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    logging.getLogger("watchfiles").setLevel(logging.WARNING)


def describe_maker(token_id: int | None, name: str | None) -> str:
    """Which token made something; empty if none did."""
    return "" if token_id is None else f"token {token_id} ({name})" if name else f"token {token_id}"

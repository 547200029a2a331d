"""The progress of a long command: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from comfyui_agent.cli.output import on_terminal, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress
    from rich.text import Text

REFRESHES_PER_SECOND = 8


@dataclass(frozen=True)
class Status:
    """What a live view shows: a line, with a bar before it where the share that is done is known, and rows below."""

    text: str
    share: float | None = None
    bar_width: int = 30
    rows: Sequence[Sequence[Text]] = ()


class ProgressView:
    """Shows `status` and keeps it current while it is entered. What was said scrolls by above.

    Where no person watches, or with `err`, only what is said is written, in plain lines; with `err` to stderr.
    """

    def __init__(self, status: Callable[[], Status], *, err: bool = False) -> None:
        self._status = status
        self._err = err
        self._progress: Progress | None = None
        self.is_live = on_terminal() and not err

    @property
    def width(self) -> int:
        return self._progress.console.width if self._progress is not None else 0

    def __enter__(self) -> ProgressView:
        if self.is_live:
            self._progress = _live(self._status)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def say(self, text: str) -> None:
        if self._progress is not None:
            from rich.text import Text

            self._progress.console.print(Text(one_line(text)), soft_wrap=True)
            return
        with contextlib.suppress(OSError):  # nobody reads any more: the work goes on
            typer.echo(one_line(text), err=self._err)


def bar(share: float, width: int) -> str:
    filled = round(width * min(1.0, share))
    return "━" * filled + "─" * (width - filled)


def _live(status: Callable[[], Status]) -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    class StatusProgress(Progress):
        """Asks for the status at every refresh."""

        def get_renderables(self) -> Iterable[RenderableType]:
            return _drawn(status())

    console = Console(highlight=False)
    return StatusProgress(console=console, refresh_per_second=REFRESHES_PER_SECOND, transient=True)


def _drawn(status: Status) -> Iterable[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    line = Text(status.text)
    if status.share is not None:
        drawn = bar(status.share, status.bar_width)
        filled = drawn.rstrip("─")
        line = Text(filled, "cyan") + Text(drawn[len(filled) :], "dim") + line
    table = Table.grid(padding=(0, 2))
    for row in status.rows:
        table.add_row(*row)
    return line, table

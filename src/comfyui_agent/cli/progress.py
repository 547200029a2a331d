"""The progress of a long command: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from comfyui_agent.cli.output import on_terminal, one_line

REFRESHES_PER_SECOND = 8


@dataclass(frozen=True)
class Status:
    """What a live view shows: a line, with a bar before it where the share that is done is known, and rows below."""

    text: str
    share: float | None = None
    bar_width: int = 30
    rows: Sequence[Sequence[Text]] = ()

    def drawn(self) -> Group:
        line = Text(self.text)
        if self.share is not None:
            drawn = bar(self.share, self.bar_width)
            filled = drawn.rstrip("─")
            line = Text(filled, "cyan") + Text(drawn[len(filled) :], "dim") + line
        table = Table.grid(padding=(0, 2))
        for row in self.rows:
            table.add_row(*row)
        return Group(line, table)


class ProgressView:
    """Shows `status` and keeps it current while it is entered. What was said scrolls by above.

    Where no person watches, or with `err`, only what is said is written, in plain lines; with `err` to stderr.
    """

    def __init__(self, status: Callable[[], Status], *, err: bool = False) -> None:
        self._status = status
        self._err = err
        self._live: Live | None = None
        self.is_live = on_terminal() and not err

    @property
    def width(self) -> int:
        return self._live.console.width if self._live is not None else 0

    def __enter__(self) -> ProgressView:
        if self.is_live:
            self._live = Live(
                console=Console(highlight=False),
                get_renderable=lambda: self._status().drawn(),
                refresh_per_second=REFRESHES_PER_SECOND,
                transient=True,
            )
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(Text(one_line(text)), soft_wrap=True)
            return
        with contextlib.suppress(OSError):  # nobody reads any more: the work goes on
            print(one_line(text), file=sys.stderr if self._err else sys.stdout, flush=True)


def bar(share: float, width: int) -> str:
    filled = round(width * min(1.0, share))
    return "━" * filled + "─" * (width - filled)

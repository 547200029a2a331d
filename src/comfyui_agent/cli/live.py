"""Live progress: a board of bars for a person at a terminal, plain lines for anything else."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from comfyui_agent.comfy.watch import Progress, Stage

BAR = 24


class Board:
    """One row a prompt: Pending ○, Rendering ◐, Needs attention △, Done ●."""

    def __init__(self, names: list[str], live: bool) -> None:
        self._console = Console(highlight=False)
        self._rows: dict[str, tuple[str, Text]] = {name: ("○", Text("Pending")) for name in names}
        self._ended = 0
        self._live = Live(self._table(), console=self._console, refresh_per_second=12) if live else None

    def __enter__(self) -> Board:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, name: str, progress: Progress) -> None:
        if progress.stage is Stage.WAITING and progress.ahead:
            self._set(name, "○", Text(f"Pending, {progress.ahead} ahead"))
        elif progress.stage is Stage.RUNNING:
            self._set(name, "◐", rendering(progress))

    def done(self, name: str, file: Path, seconds: float | None) -> None:
        took = "" if seconds is None else f" in {seconds:.1f} s"
        self._end(name, "●", Text(f"Done{took}: {file}", "green"))

    def failed(self, name: str, reason: str) -> None:
        self._end(name, "△", Text(f"Needs attention: {reason}", "yellow"))

    def _end(self, name: str, mark: str, text: Text) -> None:
        self._ended += 1
        self._set(name, mark, text)
        if self._live is None:
            line = f"{self._ended}/{len(self._rows)}  {mark} {name}  {text.plain}"
            self._console.print(line, soft_wrap=True, markup=False)

    def _set(self, name: str, mark: str, text: Text) -> None:
        self._rows[name] = (mark, text)
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for name, (mark, text) in self._rows.items():
            table.add_row(mark, name, text)
        return table


def rendering(progress: Progress) -> Text:
    if not progress.steps:
        return Text(f"Rendering, {progress.node_type}" if progress.node_type else "Rendering")
    filled = round(BAR * min(1.0, progress.step / progress.steps))
    bar = "━" * filled + "─" * (BAR - filled)
    return Text(f"{bar} {progress.node_type}, step {progress.step} of {progress.steps}", "cyan")

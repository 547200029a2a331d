"""`e3 sla check`: holds reports against the targets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import fail, on_terminal, one_line, print_json
from comfyui_agent.lab.files import Unwritable, write_text
from comfyui_agent.lab.reports.reading import BadReport
from comfyui_agent.lab.reports.sla import Finding
from comfyui_agent.lab.sla.review import Review, as_junit, gather, review

MARKS = {"met": "●", "missed": "△", "not measured": "○"}
COLOURS = {"met": "green", "missed": "yellow", "not measured": "dim"}

app = command_group("Targets, and whether they are met.")


@workspace_command(app, options=("workspace", "config", "as_json"))
async def check(
    call: Invocation,
    reports: Annotated[
        list[Path],
        typer.Argument(
            metavar="REPORT…", help="Reports of e3 loadtest and e3 chaos, or the folder of a baseline.", readable=False
        ),
    ],
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="The metrics log; else the one beside the report, or its own."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="What was not measured fails, too.")] = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdicts there as JUnit XML.")
    ] = None,
) -> int:
    """Say for each target whether it is met, missed or not measured. The targets are the settings below sla.

    Several reports are judged together: what more than one of them measures, the worst decides.
    Exit 1 if a target is missed.
    """
    try:
        found = review(gather(reports, log, call.workspace.root), call.workspace.settings.sla)
    except BadReport as error:
        fail(str(error), code=2)
    if call.as_json:
        print_json(found.as_json())
    else:
        _print(found)
    if junit is not None:
        try:
            junit.parent.mkdir(parents=True, exist_ok=True)
            write_text(junit, as_junit(found, strict=strict))
        except (Unwritable, OSError) as error:
            reason = str(error) if isinstance(error, Unwritable) else f"cannot write {junit}: {error.strerror}"
            fail(f"{reason}; give another place with --junit")
    return 1 if found.fails(strict=strict) else 0


def _print(review: Review) -> None:
    typer.echo(one_line(review.sentence))
    rows = [_cells(finding) for finding in review.findings]
    if on_terminal():
        _print_table(review, rows)
    else:
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        for row in rows:
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            typer.echo(one_line("  ".join([*padded, row[4]])))
    if review.advice:
        typer.echo(one_line(review.advice))
    for each in review.reports:
        for note in each.notes:
            typer.echo(one_line(f"{each.name}: {note}"))


def _cells(finding: Finding) -> list[str]:
    verdict = str(finding.verdict)
    cells = [f"{MARKS[verdict]} {verdict}", finding.target.label, finding.measured_text, finding.wanted_text]
    return [one_line(cell) for cell in [*cells, finding.sentence]]


def _print_table(review: Review, rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False)
    for heading in ("Verdict", "Target", "Measured", "Wanted"):
        table.add_column(heading, no_wrap=True)
    table.add_column("Why", ratio=1, overflow="fold")
    for finding, (word, *rest) in zip(review.findings, rows, strict=True):
        table.add_row(Text(word, COLOURS[str(finding.verdict)]), *(Text(cell) for cell in rest))
    Console().print(table)

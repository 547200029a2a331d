"""`e3 loadtest` measures ComfyUI under load; `e3 loadtest compare` compares two reports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.chaos import press_with_scenario
from comfyui_agent.cli.completion import workflow_names
from comfyui_agent.cli.load_view import LoadView, summary_lines
from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.cli.workflow import payload_named
from comfyui_agent.cli.workspace import HERE, AsJson, ConfigOption, Folder, check_addresses, servers_of, workspace_at
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.lab import files
from comfyui_agent.lab.files import Unwritable, page_beside, write_json, write_text
from comfyui_agent.lab.load.comparison import compare as compared
from comfyui_agent.lab.load.document import build_report
from comfyui_agent.lab.load.files import LoadLog, write_baseline
from comfyui_agent.lab.load.plan import BadPlan, LoadPlan, Mode, level_text, read_levels, read_rates
from comfyui_agent.lab.load.run import load_test
from comfyui_agent.lab.pages.compare_page import compare_page
from comfyui_agent.lab.pages.load_page import load_page
from comfyui_agent.lab.payloads import PayloadError
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.reading import BadReport, read_report

DEFAULT_WORKFLOW = "book_medium"
DEFAULT_LEVEL = "4"
Finish = Callable[[LoadReport, Path, str], None]
app = typer.Typer(add_completion=False, invoke_without_command=True, no_args_is_help=False)


@app.callback()
def loadtest(
    context: typer.Context,
    server: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="A server to press on; may be given several times.")
    ] = None,
    workflow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORKFLOW",
            help="A file, an id of workflows.yaml, or book_small, book_medium, book_large; several take turns.",
            autocompletion=workflow_names,
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", min=1, help="How many prompts, at each level.")] = None,
    concurrency: Annotated[
        str | None, typer.Option(metavar="N", help="So many prompts at once: 4; a ramp: 1,2,4,8 or 1..8.")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="R", help="Prompts that arrive whatever happens: 20/min or 0.5/s; a ramp: 10..60:10."),
    ] = None,
    books: Annotated[
        str | None, typer.Option(metavar="N", help="So many books at once; a ramp: 1..8. Measures concurrent_books.")
    ] = None,
    pages: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="The pages of such a book.")] = 12,
    parallel_pages: Annotated[
        bool | None,
        typer.Option(
            "--parallel-pages/--serial-pages",
            help="With --books: all pages of a book at once, as the agent works (the default), or one after another.",
        ),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="S", min=0.1, max=604_800, help="Seconds of pressing, at each level.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", min=0.1, max=604_800, help="Seconds after which a prompt is given up.")
    ] = 420.0,
    warmup: Annotated[
        int, typer.Option(metavar="N", min=0, max=1000, help="Prompts per server and workflow before anything counts.")
    ] = 1,
    same_seeds: Annotated[
        bool, typer.Option("--same-seeds", help="Do not vary the seeds: measures the server's cache.")
    ] = False,
    even: Annotated[
        bool, typer.Option("--even", help="With --rate: arrivals at even distances instead of by chance.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Makes seeds and arrivals repeatable; the server may know them.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The report; else infra/observability/load_TIME.json in the workspace."),
    ] = None,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Keep it as a baseline, with the metrics log of its time and a README.")
    ] = False,
    scenario: Annotated[
        str | None, typer.Option(metavar="NAME", help="Break something meanwhile: a scenario of e3 chaos.")
    ] = None,
    start_command: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="With --scenario comfyui-crash: starts the server again."),
    ] = None,
    folder: Folder = HERE,
    config: ConfigOption = "",
    as_json: AsJson = False,
) -> None:
    """Press on ComfyUI servers, measure every prompt, and write a report with a page."""
    if context.invoked_subcommand is not None:
        return

    workspace = workspace_at(folder, servers=server, config=config)
    check_addresses(workspace, are_given=bool(server))
    payloads = tuple(payload_named(name, workspace, folder) for name in workflow or [DEFAULT_WORKFLOW])
    try:
        mode, levels = _levels(concurrency, rate, books)
        for flag, is_given, other, goes_with in (
            ("--even", even, "--rate", rate),
            ("--parallel-pages", parallel_pages is True, "--books", books),
            ("--serial-pages", parallel_pages is False, "--books", books),
            ("--start-command", start_command is not None, "--scenario", scenario),
        ):
            if is_given and goes_with is None:
                raise BadPlan(f"{flag} does nothing here: it goes with {other}")
        if duration is not None and books is not None:
            raise BadPlan("--books ends when the books are done: leave --duration out")
        if jobs is not None and books is not None:
            raise BadPlan("--books sends --pages of each book: leave --jobs out")
    except BadPlan as error:
        fail(str(error), code=2)
    plan = LoadPlan(
        servers_of(workspace),
        payloads,
        mode,
        levels,
        jobs=jobs,
        duration=duration,
        timeout=timeout,
        warmup=warmup,
        same_seeds=same_seeds,
        even_arrivals=even,
        pages=pages,
        parallel_pages=parallel_pages is not False,
        **({} if seed is None else {"seed": seed}),
    )
    finish = partial(_finish, *_check_places(workspace, output, is_baseline=baseline), as_json)
    if scenario is not None:
        run_until_signal(_press_with(scenario, start_command, plan, workspace, finish))
    run_until_signal(_press(plan, workspace, finish, as_json))


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The report to compare with.", exists=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="The report that is compared.", exists=False)],
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page of it there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two reports: what became better or worse, and what is noise."""
    try:
        comparison = compared(read_report(a), read_report(b))
        if output is not None:
            write_text(output, compare_page(comparison))
    except (BadReport, Unwritable) as error:
        fail(str(error), code=2)
    if as_json:
        print_json(comparison.as_json())
        return
    typer.echo(one_line(comparison.verdict))
    for caution in comparison.cautions:
        typer.echo(one_line(f"△ {caution}"))
    width = max(len(each.metric) for each in comparison.metrics)
    for each in comparison.metrics:
        typer.echo(one_line(f"  {each.metric:<{width}}  {each.verdict!s:<12}  {each.sentence}"))
    if output is not None:
        typer.echo(f"Page: {output}")


def _levels(concurrency: str | None, rate: str | None, books: str | None) -> tuple[Mode, tuple[float, ...]]:
    options = {"--concurrency": concurrency, "--rate": rate, "--books": books}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise BadPlan(f"{given[0]} and {given[1]} do not go together: give one of them")
    if rate is not None:
        return Mode.OPEN, read_rates(rate)
    if books is not None:
        return Mode.BOOKS, read_levels(books, "--books", whole=True)
    return Mode.CLOSED, read_levels(DEFAULT_LEVEL if concurrency is None else concurrency, "--concurrency", whole=True)


def _check_places(workspace: Workspace, output: Path | None, *, is_baseline: bool) -> tuple[Path | None, Path | None]:
    """The report's file and the folder of the baseline. Fails before any load if nothing can be written there."""
    folder = workspace.root / "infra" / "observability"
    if output is None and not is_baseline:
        output = folder / f"{files.unused(folder, f'load_{files.this_moment()}', ('.json', '.html'))}.json"
    baseline = folder / "baselines" / files.today() if is_baseline else None
    try:
        if output is not None:
            files.check_report(output)
        if baseline is not None:
            files.check_writable(baseline, "-C")
    except files.Unwritable as error:
        fail(str(error), code=2)
    return output, baseline


def _finish(
    place: Path | None, baseline: Path | None, as_json: bool, report: LoadReport, log: Path, run_id: str
) -> None:
    """Print the report and write its files: to a place with its page beside it, to the baseline, or to both."""
    with contextlib.suppress(OSError):  # nobody listens any more: the report is written all the same
        if as_json:
            print_json(report.as_json())
        else:
            for line in summary_lines(report.summary):
                typer.echo(one_line(line))
        for warning in report.summary.warnings:
            typer.echo(one_line(f"△ {warning}"), err=True)
    page = load_page(report, place.name if place is not None else "")
    written = []
    try:
        if place is not None:
            write_json(place, report.as_json())
            write_text(page_beside(place), page)
            written += [place, page_beside(place)]
        if baseline is not None:
            written.append(write_baseline(baseline, report, page, log, run_id))
    except Unwritable as error:
        fail(str(error))
    with contextlib.suppress(OSError):
        for path in written:
            typer.echo(f"Written: {path}", err=as_json)


async def _press(plan: LoadPlan, workspace: Workspace, finish: Finish, as_json: bool) -> int:
    log = LoadLog(workspace.metrics_log)
    view = LoadView(plan, log, err=as_json)
    try:
        with view:
            view.say(f"Warming up, then {_shown(plan)}. Ctrl-C stops; what was measured is reported.")
            run = await load_test(plan, view)
    except PayloadError as error:
        fail(str(error))
    except ComfyError as error:
        fail(error.message)
    finally:
        log.finish()
    if log.trouble is not None:
        run.warnings.append(log.trouble)
    report = build_report(run, workspace.settings.sla)
    report.environment.metrics_log = str(log.path) if log.trouble is None else None
    report.environment.load_test = log.run_id
    await asyncio.to_thread(finish, report, log.path, log.run_id)
    if run.was_stopped:
        raise asyncio.CancelledError
    return 0 if report.summary.completed else 1


async def _press_with(
    scenario: str, start_command: str | None, plan: LoadPlan, workspace: Workspace, finish: Finish
) -> int:
    report = await press_with_scenario(scenario, plan, workspace, start_command)
    await asyncio.to_thread(finish, report, workspace.metrics_log, "")
    result = report.summary.scenario
    return 0 if result is not None and result.verdict == "passed" else 1


def _shown(plan: LoadPlan) -> str:
    *lower, last = plan.levels
    levels = ", ".join([*(f"{level:g}" for level in lower), level_text(last, plan.mode.unit)])
    names = " and ".join(payload.name for payload in plan.payloads)
    where = plan.servers[0] if len(plan.servers) == 1 else f"{len(plan.servers)} servers"
    return f"{levels} of {names} at {where.rpartition('@')[2]}"

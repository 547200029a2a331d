"""`e3 chaos`: break something on purpose in front of an agent, and judge what it does."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.workflow import payload_named
from comfyui_agent.cli.workspace import check_addresses, with_servers
from comfyui_agent.config.settings import Sla
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.texts import suggest
from comfyui_agent.lab.chaos.load_scenario import load_test_with_scenario
from comfyui_agent.lab.chaos.plan import ChaosPlan
from comfyui_agent.lab.chaos.sandbox import Sandbox
from comfyui_agent.lab.chaos.suite import SCENARIOS, SETS, Scenario, Suite, facts_of, find_scenarios, run_scenario
from comfyui_agent.lab.files import Unwritable, check_report, page_beside, this_moment, write_json, write_text
from comfyui_agent.lab.load.plan import LoadPlan
from comfyui_agent.lab.pages.chaos_page import chaos_page
from comfyui_agent.lab.reports.chaos import ScenarioResult
from comfyui_agent.lab.reports.load import LoadReport

MARKS = {"passed": "●", "failed": "△", "skipped": "○"}
DEFAULT_WORKFLOW = "book_small"


@workspace_command(options=("workspace", "config", "as_json"), until_signal=True)
async def chaos(
    call: Invocation,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="SCENARIO…",
            help="prompt-validation, gpu-oom, network-blip, comfyui-crash, artificial-latency; all; or quick, a set "
            "that takes less than a minute.",
        ),
    ],
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="A ComfyUI to stand behind the faults; else a simulator.")
    ] = None,
    start_command: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Starts that ComfyUI, so that it can be killed and started again."),
    ] = None,
    workflow: Annotated[
        str,
        typer.Option(metavar="WORKFLOW", help="The pages: a file, an id of workflows.yaml, or a sample."),
    ] = DEFAULT_WORKFLOW,
    pages: Annotated[int | None, typer.Option(metavar="N", min=2, max=10_000, help="Pages of each scenario.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The short form of each scenario.")] = False,
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="S", min=1, max=86_400, help="Give up after S seconds without progress; else sla.recovery_seconds."
        ),
    ] = None,
    netem: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="network-blip: lose packets there with tc netem (root), not by the proxy."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--in", metavar="DIR", help="Where the agent under test works, kept; else a throw-away folder."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The report; else infra/observability/chaos_TIME.json in the workspace."),
    ] = None,
) -> int:
    """Break something in front of an agent, and judge what it does about it."""
    workspace = with_servers(call.workspace, [server] if server else None)
    if server is not None:
        check_addresses(workspace, are_given=True)
    elif start_command is not None:
        fail("--start-command starts the ComfyUI at --server: give its address too", code=2)
    scenarios = _scenarios(names)
    sla = workspace.settings.sla
    plan = ChaosPlan(
        payload_named(workflow, workspace, call.folder),
        server,
        _command(start_command),
        pages=pages,
        patience=patience or sla.recovery_seconds,
        is_quick=quick or "quick" in names,
        netem=netem,
    )
    report = output or workspace.root / "infra" / "observability" / f"chaos_{this_moment()}.json"
    return await _run(scenarios, plan, sla, keep, report, call.as_json)


def _scenarios(names: list[str]) -> list[Scenario]:
    try:
        return find_scenarios(names)
    except KeyError as error:
        fail(f"there is no scenario {error.args[0]!r}; {suggest(error.args[0], [*SCENARIOS, *SETS])}", code=2)


def _command(text: str | None) -> tuple[str, ...] | None:
    """The start command as a shell splits it."""
    if text is None:
        return None
    try:
        parts = shlex.split(text)
    except ValueError as error:
        fail(f"--start-command {text!r} cannot be read: {error}", code=2)
    return tuple(parts) or fail("--start-command is empty: give the command that starts ComfyUI", code=2)


@contextlib.contextmanager
def _sandbox_folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="e3-chaos-", ignore_cleanup_errors=True) as place:
            yield Path(place)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        fail(f"{keep} is not an empty folder: give a new one with --in", code=2)
    yield keep.absolute()


async def _run(
    scenarios: list[Scenario], plan: ChaosPlan, sla: Sla, keep: Path | None, place: Path, as_json: bool
) -> int:
    try:
        check_report(place)
    except Unwritable as error:
        fail(str(error), code=2)
    suite = Suite(plan, sla)

    async def learn(sandbox: Sandbox) -> None:
        if not suite.servers:
            suite.servers.append(await facts_of(sandbox))

    try:
        with _sandbox_folder(keep) as folder:
            for scenario in scenarios:
                typer.echo(f"○ {scenario.name}: {scenario.trigger}", err=as_json)
                suite.results.append(await run_scenario(scenario, plan, folder / scenario.name, sla, learn))
                _print_result(suite.results[-1], err=as_json)
    except asyncio.CancelledError:
        suite.is_partial = True
        if suite.results:
            _keep(suite, place, as_json)
        else:
            typer.echo("Stopped before anything was judged.", err=True)
        raise
    return _keep(suite, place, as_json)


async def press_with_scenario(name: str, plan: LoadPlan, workspace: Workspace, start_command: str | None) -> LoadReport:
    """A load test whose rows are the pages of a scenario."""
    if name in SETS:
        fail(f"--scenario takes one scenario, not {name!r}: e3 chaos runs sets of them", code=2)
    if len(plan.servers) > 1:
        fail("--scenario stands in front of one server: give one --server", code=2)
    scenario = _scenarios([name])[0]
    sla = workspace.settings.sla
    chaos_plan = ChaosPlan(
        plan.payloads[0],
        plan.servers[0],
        _command(start_command),
        pages=None if plan.jobs is None else max(2, plan.jobs),
        patience=max(plan.timeout, sla.recovery_seconds),
    )
    typer.echo(f"○ {scenario.name}: {scenario.trigger}", err=True)
    with _sandbox_folder(None) as folder:
        parameters = {**plan.as_json(), "scenario": scenario.name}
        report = await load_test_with_scenario(scenario, chaos_plan, folder, sla, parameters)
    assert report.summary.scenario is not None
    _print_result(report.summary.scenario, err=True)
    return report


def _print_result(result: ScenarioResult, *, err: bool) -> None:
    typer.echo(one_line(f"{MARKS[result.verdict]} {result.scenario}: {result.verdict}, {result.reason}"), err=err)
    for check in result.checks:
        if not check.passed:
            typer.echo(one_line(f"    {check.what}: expected {check.expected}, saw {check.seen}"), err=err)
    for stage in result.stages:
        typer.echo(one_line(f"    {stage.seconds:7.2f} s  {stage.stage:<11}  {stage.what}"), err=err)


def _keep(suite: Suite, place: Path, as_json: bool) -> int:
    report = suite.report()
    page = page_beside(place)
    if as_json:
        print_json(report.as_json())
    try:
        write_json(place, report.as_json())
        write_text(page, chaos_page(report, place.name))
    except Unwritable as error:
        fail(str(error))
    summary = report.summary
    text = f"{summary.passed} of {summary.total} passed"
    text += f", {summary.skipped} skipped" if summary.skipped else ""
    if summary.recovery_sec is not None:
        text += f", slowest recovery {summary.recovery_sec:.1f} s"
    typer.echo(f"{text}, in {summary.wall_clock_sec:.0f} s.", err=as_json)
    typer.echo(f"Written: {place}\nWritten: {page}", err=as_json)
    return 0 if summary.verdict == "passed" else 1

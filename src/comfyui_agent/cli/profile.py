"""`e3 profile`: measures the time and the memory of workflows, and writes reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.completion import workflow_names
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.output import fail, log_for_people, one_line, print_json, warn
from comfyui_agent.cli.progress import ProgressView, Status
from comfyui_agent.cli.workflow import payload_named
from comfyui_agent.cli.workspace import check_addresses, servers_of, with_servers
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError, Unreachable
from comfyui_agent.lab.files import Unwritable, check_writable, today, unused, write_text
from comfyui_agent.lab.measurement.machine import server_facts
from comfyui_agent.lab.pages.profile_page import profile_page
from comfyui_agent.lab.payloads import Payload, PayloadError
from comfyui_agent.lab.profiling.profile import Profiling, RunFailed
from comfyui_agent.lab.profiling.report import report_of, write_profile
from comfyui_agent.lab.profiling.runs import Kind
from comfyui_agent.lab.quantities import short_seconds
from comfyui_agent.lab.reports.environment import ServerFacts
from comfyui_agent.lab.reports.profile import NodeCost, ProfileReport, RunFigures

NODES_SHOWN = 6
BAR_WIDTH = 24


@workspace_command(options=("workspace", "config", "as_json"), until_signal=True)
async def profile(
    call: Invocation,
    workflow: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKFLOW…",
            help="Files, ids of workflows.yaml, or book_small, book_medium, book_large.",
            autocompletion=workflow_names,
        ),
    ],
    runs: Annotated[int, typer.Option(min=1, max=1000, help="So many warm runs, after the cold one.")] = 3,
    server: Annotated[str, typer.Option("--server", metavar="URL", help="The ComfyUI to measure.")] = "",
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where reports go; else infra/comfyui/profiling/YYYY-MM-DD in the workspace."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="Give a run up after so long; else comfyui.timeout_seconds."),
    ] = None,
) -> int:
    """Measure workflows on one server: a cold run after freeing its memory, then warm ones with new seeds.

    The report has the time of every node, model load apart from sampling, waiting, execution and transfer apart, the
    graphics card over time, and what fits at once. Models of all users are unloaded: take a server that is idle.
    See docs/profiling.md.
    """
    log_for_people(False)
    workspace = with_servers(call.workspace, [server] if server else None)
    check_addresses(workspace, are_given=bool(server))
    payloads = [payload_named(name, workspace, call.folder, code=1) for name in workflow]
    folder = output or workspace.root / "infra" / "comfyui" / "profiling" / today()
    try:
        check_writable(folder)
    except Unwritable as error:
        fail(str(error))
    limit = timeout or workspace.settings.comfyui.timeout_seconds
    return await ProfileSession(folder, runs, limit, call.as_json).profile(servers_of(workspace)[0], payloads)


@dataclass
class ProfileSession:
    """The options of one call, and its results."""

    folder: Path
    runs: int
    timeout: float
    as_json: bool
    reports: list[ProfileReport] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    failed: bool = False

    async def profile(self, server: str, payloads: list[Payload]) -> int:
        """Measure all that the server can run. Returns the exit code."""
        async with ComfyClient(server) as client:
            try:
                await client.system_stats()
            except Unreachable as error:
                fail(f"{error.message} Start it, or name another with --server")
            except ComfyError as error:
                fail(error.message)
            facts = await server_facts(client)
            work = [Profiling(client, each, runs=self.runs, timeout=self.timeout) for each in payloads]
            try:
                ready = [each for each in work if await self._prepare(each)]
                if ready:
                    await self._measure(ready, facts)
            finally:
                self._end()
        return 1 if self.failed else 0

    async def _prepare(self, work: Profiling) -> bool:
        try:
            await work.prepare()
        except (PayloadError, ComfyError, OSError) as error:
            self._complain(f"{work.payload.name}: {getattr(error, 'message', error)}")
            return False
        return True

    async def _measure(self, work: list[Profiling], facts: ServerFacts) -> None:
        view = ProfileView(err=self.as_json)
        view.say(f"Profiling on {facts.server}. Ctrl-C stops; what was measured until then is kept.")
        with view:
            for each in work:
                view.follow(each)
                try:
                    await each.measure(view)
                except RunFailed as error:
                    self._complain(f"{each.payload.name}: {error}")
                finally:
                    self._keep(each, facts)

    def _keep(self, work: Profiling, facts: ServerFacts) -> None:
        """Write what was measured, all or a part; nothing if no run ended."""
        if not work.runs:
            return
        report = report_of(work, facts)
        self.reports.append(report)
        try:
            self.files.append(write_profile(self.folder, work, report))
        except Unwritable as error:
            self._complain(str(error))

    def _end(self) -> None:
        """Write the page and print the summaries."""
        if self.reports:
            page = self.folder / f"{unused(self.folder, 'report', ('.html',))}.html"
            try:
                write_text(page, profile_page(self.reports, [path.name for path in self.files]))
                self.files.append(page)
            except Unwritable as error:
                self._complain(str(error))
        if self.as_json:
            print_json([report.as_json() for report in self.reports])
            return
        for report in self.reports:
            typer.echo()
            for line in summary_of(report):
                typer.echo(one_line(line))
        if self.files:
            typer.echo(f"\nReport: {self.files[-1]}")
        elif not self.reports:
            typer.echo("Nothing was measured.")

    def _complain(self, message: str) -> None:
        self.failed = True
        warn(message)


class ProfileView(ProgressView):
    """Says when each run ends, and shows the step of the current one, or in plain lines when it begins."""

    def __init__(self, *, err: bool) -> None:
        super().__init__(self._step, err=err)
        self._work: Profiling | None = None
        self._run = ""

    def follow(self, work: Profiling) -> None:
        self._work, self._run = work, ""

    def began(self, name: str, kind: Kind, number: int, total: int) -> None:
        self._run = f"{name}  {kind} run {number} of {total}" if number else f"{name}  {kind} run"
        if not self.is_live:
            self.say(f"◐ Rendering  {self._run}")

    def ended(self, name: str, run: RunFigures) -> None:
        cached = "  from the cache" if run.cached else ""
        self.say(f"● Done  {name}  {run.kind} run  {short_seconds(run.duration_sec)}{cached}")

    def _step(self) -> Status:
        run, progress = one_line(self._run), self._work.progress if self._work else None
        if progress is None or not progress.node_type:
            return Status(f"◐ {run}" if run else "○ Freeing the server's memory")
        node = one_line(progress.node_type)
        if not progress.steps:
            return Status(f"◐ {run}  {node}")
        step = f"step {progress.step} of {progress.steps}"
        return Status(f" {run}  {node}, {step}", progress.step / progress.steps, BAR_WIDTH)


def summary_of(report: ProfileReport) -> list[str]:
    """A profile in a few lines: how long, where the time goes, how much memory, and warnings."""
    mark = "△" if report.partial or report.warnings else "●"
    times = f"{short_seconds(report.duration_sec)} warm, {short_seconds(report.cold_duration_sec)} cold"
    first = f"{mark} {report.workflow.name}: {times}{', partial' if report.partial else ''}"
    if report.nodes and report.nodes[0].share:
        node = report.nodes[0]
        first += f". Node {node.node_id} ({node.class_type}) takes {_percent(node)} of a warm run"
    load, sampling, transfer = map(short_seconds, (report.model_load_sec, report.sampling_sec, report.transfer_sec))
    memory = "Video memory was not seen."
    if report.peak_vram_mb is not None:
        idle = "." if report.idle_vram_mb is None else f", {report.idle_vram_mb:,} MB idle."
        memory = f"Video memory {report.peak_vram_mb:,} MB at most{idle}"
    return [
        f"{first}.",
        f"  Model load {load} (cold), sampling {sampling}, transfer {transfer}. {memory}",
        f"  {report.fits_at_once.sentence}",
        *(["", *_table(report.nodes)] if report.nodes else []),
        *(f"  △ {warning}" for warning in report.warnings),
    ]


def _table(nodes: list[NodeCost]) -> list[str]:
    rows = [["Node", "Class", "Cold", "Warm", "Share"]]
    for node in nodes[:NODES_SHOWN]:
        names = [one_line(node.node_id), one_line(node.class_type)]
        rows.append([*names, short_seconds(node.cold_sec), short_seconds(node.warm_sec), _percent(node)])
    first, second, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = []
    for name, kind, *numbers in rows:
        right = [number.rjust(width) for number, width in zip(numbers, others, strict=True)]
        lines.append("  " + "  ".join([name.ljust(first), kind.ljust(second), *right]))
    more = len(nodes) - NODES_SHOWN
    return lines + ([f"  and {more} more"] if more > 0 else [])


def _percent(node: NodeCost) -> str:
    return "-" if node.share is None else f"{node.share * 100:.0f} %"

"""`e3 profile`: measures the time and the memory of workflows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.cli.completion import workflow_names
from comfyui_agent.cli.output import fail, log_for_people, one_line, print_json
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.cli.workflows import payload_named
from comfyui_agent.cli.workspace import HERE, AsJson, ConfigOption, Folder, check_addresses, workspace_at

if TYPE_CHECKING:
    from comfyui_agent.comfy.client import ComfyClient
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.lab.payloads import Payload
    from comfyui_agent.lab.profiling.profile import Profiling
    from comfyui_agent.lab.reports.environment import ServerFacts
    from comfyui_agent.lab.reports.profile import ProfileReport


def profile(
    workflow: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKFLOW…",
            help="Files in API format, ids of workflows.yaml, or book_small, book_medium, book_large.",
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
    workspace: Folder = HERE,
    config: ConfigOption = "",
    as_json: AsJson = False,
) -> None:
    """Measure workflows on one server: a cold run after freeing its memory, then warm ones with new seeds.

    The report has the time of every node, model load apart from sampling, waiting, execution and transfer apart, the
    graphics card over time, and what fits at once. Models of all users are unloaded: take a server that is idle.
    See docs/profiling.md.

    [bold]Examples[/bold]

    e3 profile book_medium
        A sample page of a book, on the ComfyUI of this workspace.

    e3 profile my_workflow.json --output profiles
        A file, with the reports in a folder of your own.

    e3 profile wf_realistic_portrait wf_text_to_video --runs 5 --server http://gpu1:8188
        Two of workflows.yaml, on another server.

    e3 profile book_small book_medium book_large --json
        One document for a script: a list of reports.
    """
    from comfyui_agent.lab.files import Unwritable, check_writable
    from comfyui_agent.lab.profiling.report_files import folder_of_today

    log_for_people(False)
    place = workspace_at(workspace, servers=[server] if server else None, config=config)
    check_addresses(place, are_given=bool(server))
    payloads = [payload_named(name, place, workspace, code=1) for name in workflow]
    folder = output or folder_of_today(place.root)
    try:
        check_writable(folder)
    except Unwritable as error:
        fail(str(error))
    limit = timeout or place.settings.comfyui.timeout_seconds
    run_until_signal(_profile(place, payloads, folder, _Session(runs, limit, as_json)))


@dataclass
class _Session:
    """One call of the command: its options and its results."""

    runs: int
    timeout: float
    as_json: bool
    reports: list[ProfileReport] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    failed: bool = False

    def complain(self, message: str) -> None:
        self.failed = True
        typer.echo(one_line(f"e3: {message}"), err=True)


async def _profile(workspace: Workspace, payloads: list[Payload], folder: Path, session: _Session) -> int:
    from comfyui_agent.comfy.client import ComfyClient
    from comfyui_agent.comfy.errors import ComfyError, Unreachable
    from comfyui_agent.lab.measurement.machine import server_facts
    from comfyui_agent.lab.profiling.profile import Profiling

    async with ComfyClient(workspace.settings.comfyui.urls[0]) as client:
        try:
            await client.system_stats()
        except Unreachable as error:
            fail(f"{error.message} Start it, or name another with --server")
        except ComfyError as error:
            fail(error.message)
        facts = await server_facts(client)
        work = [Profiling(client, each, runs=session.runs, timeout=session.timeout) for each in payloads]
        try:
            ready = [each for each in work if await _prepared(each, session)]
            if ready:
                await _measure(client, ready, folder, facts, session)
        finally:
            _end(folder, session)
    return 1 if session.failed else 0


async def _prepared(work: Profiling, session: _Session) -> bool:
    from comfyui_agent.comfy.errors import ComfyError
    from comfyui_agent.lab.payloads import PayloadError

    try:
        await work.prepare()
    except (PayloadError, ComfyError, OSError) as error:
        session.complain(f"{work.payload.name}: {getattr(error, 'message', error)}")
        return False
    return True


async def _measure(
    client: ComfyClient, work: list[Profiling], folder: Path, facts: ServerFacts, session: _Session
) -> None:
    from comfyui_agent.cli.profile_view import ProfileView
    from comfyui_agent.lab.profiling.runner import RunFailed

    view = ProfileView(err=session.as_json)
    view.progress.say(f"Profiling on {client.address}. Ctrl-C stops; what was measured until then is kept.")
    with view.progress:
        for each in work:
            view.follow(each)
            try:
                await each.measure(view)
            except RunFailed as error:
                session.complain(f"{each.payload.name}: {error}")
            finally:
                _keep(each, folder, facts, session)


def _keep(work: Profiling, folder: Path, facts: ServerFacts, session: _Session) -> None:
    """Write what was measured, all or a part; nothing if no run ended."""
    from comfyui_agent.lab.files import Unwritable
    from comfyui_agent.lab.measurement.machine import this_machine
    from comfyui_agent.lab.profiling.report import environment_of, raw_lines, report_of
    from comfyui_agent.lab.profiling.report_files import write_profile

    if not work.runs:
        return
    report = report_of(work, environment_of(work, this_machine(), facts))
    session.reports.append(report)
    try:
        session.files.append(write_profile(folder, work.payload.name, report, raw_lines(work)))
    except Unwritable as error:
        session.complain(str(error))


def _end(folder: Path, session: _Session) -> None:
    from comfyui_agent.cli.profile_view import summary_of
    from comfyui_agent.lab.files import Unwritable
    from comfyui_agent.lab.pages.profile_page import profile_page
    from comfyui_agent.lab.profiling.report_files import write_page

    if session.reports:
        try:
            names = [path.name for path in session.files]
            session.files.append(write_page(folder, profile_page(session.reports, names)))
        except Unwritable as error:
            session.complain(str(error))
    if session.as_json:
        print_json([report.as_json() for report in session.reports])
        return
    for report in session.reports:
        typer.echo()
        for line in summary_of(report):
            typer.echo(one_line(line))
    if session.files:
        typer.echo(f"\nReport: {session.files[-1]}")
    elif not session.reports:
        typer.echo("Nothing was measured.")

"""`e3 profile`: measures the time and the memory of workflows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.completion import workflow_names
from comfyui_agent.cli.output import fail, log_for_people
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.cli.workflow import payload_named
from comfyui_agent.cli.workspace import HERE, AsJson, ConfigOption, Folder, check_addresses, servers_of, workspace_at


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
    from comfyui_agent.cli.profile_session import ProfileSession
    from comfyui_agent.lab.files import Unwritable, check_writable, today

    log_for_people(False)
    place = workspace_at(workspace, servers=[server] if server else None, config=config)
    check_addresses(place, are_given=bool(server))
    payloads = [payload_named(name, place, workspace, code=1) for name in workflow]
    folder = output or place.root / "infra" / "comfyui" / "profiling" / today()
    try:
        check_writable(folder)
    except Unwritable as error:
        fail(str(error))
    limit = timeout or place.settings.comfyui.timeout_seconds
    session = ProfileSession(folder, runs, limit, as_json)
    run_until_signal(session.profile(servers_of(place)[0], payloads))

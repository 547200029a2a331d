"""The `e3` command."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from comfyui_agent import __version__
from comfyui_agent.cli.lazy_group import LazyGroup
from comfyui_agent.cli.signals import INTERRUPTED

USAGE = 2


class Commands(LazyGroup):
    summaries: ClassVar[Mapping[str, str]] = {
        "init": "Make a workspace: folders for job files and results, a configuration, three workflows "
        "and jobs to try.",
        "doctor": "Check configuration, folders, workflows, database, disk, servers, models and rejected files; "
        "say what to do.",
        "demo": "See it work: twelve job files become pictures and a film, a sweep becomes a grid, "
        "a book gets its pages.",
        "run": "Watch the folder of job files and work the queue off, in one process.",
        "monitor": "Watch the folder of job files and queue what is dropped there; another process renders it.",
        "execute": "Work the queue off: lease jobs, have ComfyUI render them, bring the results home.",
        "serve": "Serve the web page and the API of a workspace, whether or not an agent works there.",
        "show": "Show one job: its state, its results, every run and what went wrong.",
        "add": "Queue jobs from files now, whether or not anyone watches the folder.",
        "retry": "Submit failed jobs again, with a fresh count of retries. A job file that is still there is read "
        "anew.",
        "cancel": "Cancel jobs that wait or render. A prompt at a server is taken back by the agent; "
        "other prompts are not touched.",
        "dismiss": "Put failed jobs out of what needs attention. They stay in the history, and a retry brings them "
        "back.",
        "sweep": "Queue a workflow for every combination of some values, and print the id of the batch.",
        "burst": "Render the next prompts of a folder, then leave; killed at any moment, nothing is lost or rendered "
        "twice.",
        "sim": "Run a ComfyUI without a GPU, for trying things out and for tests.",
        "profile": "Measure workflows on one server: a cold run after freeing its memory, then warm ones with new "
        "seeds.",
        "chaos": "Break something in front of an agent, and judge what it does about it.",
        "tune": "Find out how many ComfyUI processes each card is worth, by rendering a workflow with one, two, three "
        "of them.",
        "audit": "Show who asked for which change, when, and from where; the newest last.",
        "queue": "The queue.",
        "batch": "Batches.",
        "book": "Books.",
        "db": "The database.",
        "loadtest": "Press on ComfyUI servers, measure every prompt, and write a report with a page.",
        "sla": "Targets, and whether they are met.",
        "servers": "Look at ComfyUI servers, and take one out of work.",
        "comfyui": "ComfyUI processes on this machine, started and supervised by E3.",
        "workflow": "Workflows.",
        "token": "Tokens for the web page and the API.",
        "nodes": "E3's nodes inside ComfyUI.",
    }
    modules: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("run", "monitor", "execute"), "agents"),
        **dict.fromkeys(("add", "retry", "cancel", "dismiss"), "job_commands"),
        "show": "queue",
    }


app = typer.Typer(
    name="e3",
    cls=Commands,
    help="E3, the ComfyUI Agent: ComfyUI renders, E3 sees to it that nothing gets lost.",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"e3 {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None and not version:
        typer.echo(context.get_help())


def main() -> None:
    """Run `e3`. A usage error is one line on stderr, like every other error."""
    try:
        code = typer.main.get_command(app).main(prog_name="e3", standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "e3"
        message = " ".join(error.format_message().split())
        message = re.sub(r"Value error, |Input should be (a )?|, unable to parse string as an? \w+", "", message)
        if not message:  # a group without a command: its help was shown
            sys.exit(USAGE)
        typer.echo(f"e3: {message.rstrip('.')}. See: {command} --help", err=True)
        sys.exit(USAGE)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    sys.exit(code)

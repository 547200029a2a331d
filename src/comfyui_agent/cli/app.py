"""The `e3` command."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from comfyui_agent import __version__
from comfyui_agent.cli.lazy_group import SUMMARIES, LazyGroup
from comfyui_agent.cli.signals import INTERRUPTED

USAGE = 2


class Commands(LazyGroup):
    summaries: ClassVar[Mapping[str, str]] = SUMMARIES["e3"]
    modules: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("run", "monitor", "execute"), "agents"),
        **dict.fromkeys(("add", "retry", "cancel", "dismiss", "star"), "job_commands"),
        **dict.fromkeys(("again", "vary", "use", "takes"), "onward"),
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

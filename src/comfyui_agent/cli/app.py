"""The `e3` command."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from comfyui_agent import __version__
from comfyui_agent.cli.agents import execute, monitor, run
from comfyui_agent.cli.audit import audit
from comfyui_agent.cli.batch import app as batch_app
from comfyui_agent.cli.book import app as book_app
from comfyui_agent.cli.burst import burst
from comfyui_agent.cli.chaos import chaos
from comfyui_agent.cli.database import app as database_app
from comfyui_agent.cli.demo import demo
from comfyui_agent.cli.dismissal import dismiss, rm
from comfyui_agent.cli.doctor import doctor
from comfyui_agent.cli.init import init
from comfyui_agent.cli.job_commands import add, cancel, retry, set_priority
from comfyui_agent.cli.loadtest import app as loadtest_app
from comfyui_agent.cli.nodes import app as nodes_app
from comfyui_agent.cli.profile import profile
from comfyui_agent.cli.queue import app as queue_app
from comfyui_agent.cli.queue import show
from comfyui_agent.cli.serve import serve
from comfyui_agent.cli.servers import app as servers_app
from comfyui_agent.cli.signals import INTERRUPTED
from comfyui_agent.cli.sim import sim
from comfyui_agent.cli.sla import app as sla_app
from comfyui_agent.cli.sweep import sweep
from comfyui_agent.cli.token import app as token_app
from comfyui_agent.cli.workflow import app as workflow_app

USAGE = 2

app = typer.Typer(
    name="e3",
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


app.command()(init)
app.command()(doctor)
app.command()(demo)
app.command()(run)
app.command()(monitor)
app.command()(execute)
app.command()(serve)
queue_app.command("set-priority")(set_priority)
queue_app.command("rm")(rm)
app.add_typer(queue_app, name="queue")
app.command()(show)
app.command()(add)
app.command()(retry)
app.command()(cancel)
app.command()(dismiss)
app.command()(sweep)
app.command()(burst)
app.add_typer(batch_app, name="batch")
app.add_typer(book_app, name="book")
app.add_typer(database_app, name="db")
app.command()(sim)
app.command()(profile)
app.add_typer(loadtest_app, name="loadtest")
app.command()(chaos)
app.add_typer(sla_app, name="sla")
app.add_typer(servers_app, name="servers")
app.add_typer(workflow_app, name="workflow")
app.add_typer(token_app, name="token")
app.command()(audit)
app.add_typer(nodes_app, name="nodes")


def main() -> None:
    """Run `e3`. A wrong word is one line on stderr, like every other error."""
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

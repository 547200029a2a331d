"""The `e3` command."""

from __future__ import annotations

from typing import Annotated

import typer

from comfyui_agent import __version__
from comfyui_agent.cli.demo import demo
from comfyui_agent.cli.servers import app as servers_app
from comfyui_agent.cli.simulate import sim

app = typer.Typer(
    name="e3",
    help="E3, the ComfyUI Agent: ComfyUI renders, E3 sees to it that nothing gets lost.",
    no_args_is_help=True,
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
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """E3, the ComfyUI Agent."""


app.command()(sim)
app.command()(demo)
app.add_typer(servers_app, name="servers")


def main() -> None:
    """Run `e3`."""
    app()

"""Groups of commands. A lazy one imports each command only when it is called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

HELP = json.loads(Path(__file__).with_name("help.json").read_text(encoding="utf-8"))
SUMMARIES: dict[str, dict[str, str]] = HELP["summaries"]
"""The first sentence of the help of each command, by group."""
EXAMPLES: dict[str, dict[str, str]] = HELP["examples"]
"""What to type and what it does, by command."""


class LazyGroup(TyperGroup):
    """Listing the commands imports none of them.

    A command is the `app` or the function in the module of its name, or the function in the one that `modules` names.
    """

    summaries: ClassVar[Mapping[str, str]]
    modules: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=summary) for name, summary in self.summaries.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, self.load(listed.name) if listed and listed.name else None, rest

    def load(self, name: str) -> Any:
        """Import a command."""
        module = import_module(f"{__package__}.{self.modules.get(name, name)}")
        app = getattr(module, "app", None) if name not in self.modules else None
        if app is None:
            app = typer.Typer(add_completion=False, rich_markup_mode="rich")
            app.command(name)(getattr(module, name.replace("-", "_")))
        command: Any = typer.main.get_command(app)
        command.name = name
        _add_examples(command, f"{self.name} {name}".removeprefix("e3 "))
        return command


def _add_examples(command: Any, path: str) -> None:
    """Give a command and those below it the examples of their help."""
    if found := EXAMPLES.get(path):
        lines = "\n\n".join(f"{line}\n    {about}".rstrip() for line, about in found.items())
        command.help = f"{command.help}\n\n[bold]Examples[/bold]\n\n{lines}"
    for name, inner in getattr(command, "commands", {}).items():
        _add_examples(inner, f"{path} {name}")


def command_group(summary: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """A group that shows its help when no command is given, even if it has only one."""
    group = typer.Typer(cls=cls, add_completion=False, help=summary, no_args_is_help=True, rich_markup_mode="rich")
    group.callback()(lambda: None)
    return group

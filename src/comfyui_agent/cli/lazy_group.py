"""Groups of commands. A lazy one imports each command only when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


class LazyGroup(TyperGroup):
    """Listing the commands imports none of them.

    A command is the `app` or the function in the module of its name, or the function in the one that `modules` names.
    """

    summaries: ClassVar[Mapping[str, str]]
    """The first sentence of each command's help."""
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
        return command


def command_group(summary: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """A group that shows its help when no command is given, even if it has only one."""
    group = typer.Typer(cls=cls, add_completion=False, help=summary, no_args_is_help=True, rich_markup_mode="rich")
    group.callback()(lambda: None)
    return group

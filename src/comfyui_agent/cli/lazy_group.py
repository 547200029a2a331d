"""A group of commands that imports each command only when it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class LazyCommand:
    """Where a command is, as `module:name`, and the first sentence of its help."""

    target: str
    summary: str

    def load(self, name: str) -> Any:
        """The command of a function, or the group of a Typer app."""
        module, _, attribute = self.target.partition(":")
        found = getattr(import_module(f"{__package__}.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False, rich_markup_mode="rich")
            app.command(name)(found)
            found = app
        command: Any = typer.main.get_command(found)
        command.name = name
        return command


class LazyCommands(Mapping[str, Any]):
    """Commands by name, each imported when it is first looked up."""

    def __init__(self, table: Mapping[str, LazyCommand]) -> None:
        self._table = table
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._table[name].load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class LazyGroup(TyperGroup):
    """The base of a group whose `table` names its commands. Listing them imports none."""

    table: ClassVar[Mapping[str, LazyCommand]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = LazyCommands(self.table)
        self._is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if self._is_listing and cmd_name in self.table:
            return TyperCommand(cmd_name, help=self.table[cmd_name].summary)
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self._is_listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._is_listing = False

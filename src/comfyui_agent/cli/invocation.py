"""Commands on a workspace: the options that they share, and how their errors are shown."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, NoReturn, ParamSpec, get_type_hints

import typer

from comfyui_agent.batches.name_lookup import NotFound
from comfyui_agent.cli.actor import terminal_actor
from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.cli.workspace import HERE, AsJson, ConfigOption, DatabaseOption, Folder, opened, workspace_at
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import Invalid, UseCaseError

P = ParamSpec("P")
USAGE = 2


@dataclass(frozen=True)
class Invocation:
    """One run of a command: where it works, and whether it answers in JSON."""

    folder: Path
    workspace: Workspace
    as_json: bool

    @property
    def actor(self) -> Actor:
        return terminal_actor()

    def opened(self, *, create: bool = False) -> AbstractAsyncContextManager[Store]:
        """The store of the workspace, closed at the end."""
        return opened(self.workspace, create=create)

    def show(self, document: Any, line: str) -> None:
        """Print JSON if that is wanted, else a line."""
        if self.as_json:
            print_json(document)
        else:
            typer.echo(one_line(line))


Work = Callable[Concatenate[Invocation, P], Coroutine[Any, Any, int | None]]
SHARED = {
    "workspace": (Folder, HERE),
    "config": (ConfigOption, ""),
    "database": (DatabaseOption, ""),
    "as_json": (AsJson, False),
}


def workspace_command(*, until_signal: bool = False, has_json: bool = True) -> Callable[[Work[P]], Callable[..., None]]:
    """Make a command of an async function, which may return an exit code.

    Options for the workspace and `--json` come behind its own. Ctrl-C ends it at once; with `until_signal`, signals
    let it clean up first.
    """

    def decorate(work: Work[P]) -> Callable[..., None]:
        def command(workspace: Path, config: str, database: str, as_json: bool = False, **options: Any) -> None:
            invocation = Invocation(workspace, workspace_at(workspace, database, config=config), as_json)
            coroutine = show_errors(work(invocation, **options))  # type: ignore[call-arg]
            if until_signal:
                run_until_signal(coroutine)
            else:
                raise typer.Exit(asyncio.run(coroutine) or 0)

        shared = {name: option for name, option in SHARED.items() if has_json or name != "as_json"}
        return with_options(command, work, shared)

    return decorate


def with_options(
    command: Callable[..., None], work: Callable[..., Any], shared: Mapping[str, tuple[Any, Any]]
) -> Callable[..., None]:
    """Give a command the name, the help and the options of `work`, and shared options behind them.

    The first parameter of `work` is no option. A shared option is an annotation and a default.
    """
    hints = get_type_hints(work, include_extras=True)
    _, *own = inspect.signature(work).parameters.values()
    parameters = [each.replace(annotation=hints[each.name], kind=each.KEYWORD_ONLY) for each in own]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in shared.items()
    ]
    functools.update_wrapper(command, work)
    del command.__wrapped__  # type: ignore[attr-defined]  # Typer shall see the signature below
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


async def show_errors(work: Coroutine[Any, Any, int | None]) -> int | None:
    """What is refused is an error for people, and an exit code."""
    try:
        return await work
    except (NotFound, StoreError) as error:
        fail(str(error))
    except Complaints as error:
        show_refusal(Invalid.of(error))
    except UseCaseError as error:
        show_refusal(error)


def show_refusal(error: UseCaseError) -> NoReturn:
    """The first mistake as the error, the others below it; then leave."""
    typer.echo(one_line(f"e3: {error}"), err=True)
    if not isinstance(error, Invalid):
        raise typer.Exit(1)
    for complaint in error.found[1:]:
        typer.echo(one_line(f"    {complaint}"), err=True)
    raise typer.Exit(USAGE)

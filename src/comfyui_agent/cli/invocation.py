"""Commands on a workspace: the options that they share, and how their errors are shown."""

from __future__ import annotations

import asyncio
import functools
import getpass
import inspect
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import typer

from comfyui_agent.batches.name_lookup import NotFound
from comfyui_agent.cli.output import fail, log_for_people, one_line, print_json, warn
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.cli.workspace import (
    HERE,
    AsJson,
    ConfigOption,
    DatabaseOption,
    Folder,
    Servers,
    Verbose,
    check_addresses,
    opened,
    workspace_at,
)
from comfyui_agent.config.validation import Complaints
from comfyui_agent.files.port import BadLocation
from comfyui_agent.store.agent_lock import is_attended_here
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.liveness import is_attended
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import Invalid, UseCaseError

if TYPE_CHECKING:  # with YAML, which no help needs
    from comfyui_agent.config.workspace import Workspace

P = ParamSpec("P")
USAGE = 2
NOBODY = "no agent runs here: start one with e3 run"


@dataclass(frozen=True)
class Invocation:
    """One run of a command: where it works, and whether it answers in JSON."""

    folder: Path
    workspace: Workspace
    as_json: bool

    @property
    def actor(self) -> Actor:
        """Whoever runs a command may change everything."""
        return Actor(
            f"cli ({_user()})",
            on_unaudited=lambda _, error: warn(f"done, but it is missing in the audit trail: {error}"),
        )

    def opened(self, *, create: bool = False, is_patient: bool = False) -> AbstractAsyncContextManager[Store]:
        """The store of the workspace, closed at the end."""
        return opened(self.workspace, create=create, is_patient=is_patient)

    def show(self, document: Any, line: str) -> None:
        """Print JSON if that is wanted, else a line."""
        if self.as_json:
            print_json(document)
        else:
            typer.echo(one_line(line))

    def show_list(self, found: Sequence[Any], line: Callable[[Any], str], empty: str) -> None:
        """Print JSON if that is wanted, else a line for each, or a sentence if there is nothing."""
        if self.as_json:
            print_json([each.as_json() for each in found])
            return
        for each in found:
            typer.echo(one_line(line(each)))
        if not found:
            typer.echo(empty)

    def warn_if_unattended_here(self) -> None:
        """Say on stderr that no agent of this workspace works the queue off."""
        if not is_attended_here(self.workspace.locks):
            warn(NOBODY)

    async def warn_if_unattended(self, store: Store) -> None:
        """Say on stderr that no agent works the queue off."""
        if not await is_attended(store, self.workspace.locks):
            warn(NOBODY)


def _user() -> str:
    """The user that the system names; the environment is not believed."""
    with suppress(ImportError, KeyError):  # Windows, or a container whose user has no name
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return "unknown"


Work = Callable[Concatenate[Invocation, P], Coroutine[Any, Any, int | None]]
SHARED = {
    "workspace": (Folder, HERE),
    "config": (ConfigOption, ""),
    "server": (Servers, None),
    "database": (DatabaseOption, ""),
    "as_json": (AsJson, False),
    "verbose": (Verbose, False),
}
USUAL = ("workspace", "config", "database", "as_json")


def workspace_command(
    app: typer.Typer | None = None,
    name: str | None = None,
    *,
    options: Sequence[str] = USUAL,
    until_signal: bool = False,
) -> Callable[[Work[P]], Callable[..., None]]:
    """Make a command, of a group if one is given, of an async function, which may return an exit code.

    Its own options come first, then `options` in that order: shared ones, or own ones that stand among them. Ctrl-C
    ends it at once; with `until_signal`, signals let it clean up first.
    """

    def decorate(work: Work[P]) -> Callable[..., None]:
        def command(**values: Any) -> None:
            shared = {each: values.pop(each) for each in options if each in SHARED}
            if "verbose" in shared:
                log_for_people(shared["verbose"])
            folder, server = shared["workspace"], shared.get("server")
            workspace = workspace_at(folder, shared.get("database", ""), server, shared["config"])
            if "server" in shared:
                check_addresses(workspace, are_given=bool(server))
            call = Invocation(folder, workspace, shared.get("as_json", False))
            coroutine = show_errors(work(call, **values))  # type: ignore[call-arg]
            if until_signal:
                run_until_signal(coroutine)
            else:
                raise typer.Exit(asyncio.run(coroutine) or 0)

        made = with_options(command, work, {each: SHARED.get(each, ()) for each in options})
        return app.command(name)(made) if app else made

    return decorate


def with_options(
    command: Callable[..., None], work: Callable[..., Any], shared: Mapping[str, tuple[Any, ...]]
) -> Callable[..., None]:
    """Give a command the name, the help and the options of `work`, and shared options behind them.

    The first parameter of `work` is no option. A shared option is an annotation and a default; a name of an own one
    puts that one there.
    """
    _, *own = inspect.signature(work, eval_str=True).parameters.values()
    parameters = {each.name: each.replace(kind=each.KEYWORD_ONLY) for each in own}
    for name, option in shared.items():
        moved = parameters.pop(name, None)
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters[name] = moved or inspect.Parameter(name, kind, annotation=option[0], default=option[1])
    functools.update_wrapper(command, work)
    del command.__wrapped__  # type: ignore[attr-defined]  # Typer shall see the signature below
    command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters.values()}
    return command


async def show_errors(work: Coroutine[Any, Any, int | None]) -> int | None:
    """Await a coroutine. What it refuses is shown on stderr, the first mistake as the error, and is an exit code."""
    try:
        return await work
    except (BadLocation, NotFound, StoreError) as error:
        fail(str(error))
    except (Complaints, UseCaseError) as error:
        refusal = Invalid.of(error) if isinstance(error, Complaints) else error
        warn(str(refusal))
        if not isinstance(refusal, Invalid):
            raise typer.Exit(1) from None
        for complaint in refusal.found[1:]:
            typer.echo(one_line(f"    {complaint}"), err=True)
        raise typer.Exit(USAGE) from None

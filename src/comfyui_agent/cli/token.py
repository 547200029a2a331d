"""`e3 token`: who may look at the page and use the API, and who may steer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comfyui_agent.cli.printing import fail, print_json
from comfyui_agent.cli.workspace import HERE, AsJson, ConfigOption, DatabaseOption, Folder, opened, workspace_at
from comfyui_agent.domain.texts import printable
from comfyui_agent.domain.tokens import Role

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.domain.tokens import Token

app = typer.Typer(help="Tokens for the web page and the API.", no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def token() -> None:
    """Tokens for the web page and the API."""


@app.command()
def create(
    role: Annotated[Role, typer.Option(help="user: look, submit, retry, cancel; admin: steer, too.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Whose it is, to tell them apart.")] = "",
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Make a token and print it. It is shown this once: only its hash is kept.

    From the first token on, the page and the API ask for one.

    [bold]Examples[/bold]

    e3 token create --role admin --name studio
        For whoever steers.

    e3 token create --role user --json
        For a script.
    """
    if len(name) > 100:
        fail("--name is too long: at most 100 characters", code=2)
    asyncio.run(_create(workspace_at(workspace, database, config=config), role, name, as_json))


async def _create(workspace: Workspace, role: Role, name: str, as_json: bool) -> None:
    from comfyui_agent.domain.tokens import hash_of, mint_token

    secret = mint_token()
    async with opened(workspace, create=True) as store:
        made = await store.create_token(name or role.value, role, hash_of(secret))
    if as_json:
        print_json(_facts(made) | {"token": secret})
        return
    typer.echo(secret)
    words = (
        f"Token {made.id} ({made.name}, {made.role}). It is not shown again. Take it back: e3 token revoke {made.id}"
    )
    typer.echo(printable(words), err=True)


@app.command()
def ls(
    workspace: Folder = HERE, config: ConfigOption = "", database: DatabaseOption = "", as_json: AsJson = False
) -> None:
    """List tokens: id, name, role, when they were made. What they are cannot be read back.

    [bold]Examples[/bold]

    e3 token ls --json
        For a script.
    """
    asyncio.run(_ls(workspace_at(workspace, database, config=config), as_json))


async def _ls(workspace: Workspace, as_json: bool) -> None:
    async with opened(workspace) as store:
        found = await store.tokens()
    if as_json:
        print_json([_facts(each) for each in found])
        return
    for each in found:
        typer.echo(printable(f"{each.id:>4}  {each.role.value:<5}  {each.created_at[:19]}  {each.name}"))
    if not found:
        typer.echo("There are no tokens: only this machine reaches the page, and everyone here is an admin.")


@app.command()
def revoke(
    number: Annotated[int, typer.Argument(metavar="ID", min=1, help="The id, as e3 token ls shows it.")],
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Take a token back: whoever has it is asked for another at once.

    [bold]Examples[/bold]

    e3 token revoke 2
        The second one.
    """
    asyncio.run(_revoke(workspace_at(workspace, database, config=config), number, as_json))


async def _revoke(workspace: Workspace, number: int, as_json: bool) -> None:
    async with opened(workspace) as store:
        found = next((each for each in await store.tokens() if each.id == number), None)
        if found is None or not await store.revoke_token(number):
            fail(f"there is no token {number}: see e3 token ls")
        are_left = bool(await store.tokens())
    if as_json:
        print_json(_facts(found))
        return
    typer.echo(printable(f"Token {found.id} ({found.name}, {found.role}) is worth nothing now."))
    if not are_left:
        typer.echo("It was the last: only this machine reaches the page now, and everyone here is an admin.", err=True)


def _facts(found: Token) -> dict[str, Any]:
    return {"id": found.id, "name": found.name, "role": found.role.value, "created_at": found.created_at}

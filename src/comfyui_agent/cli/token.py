"""`e3 token`: who may look at the page and use the API, and who may steer."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from comfyui_agent.access.listen_address import is_loopback
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.texts import counted
from comfyui_agent.domain.tokens import Role, Token, hash_of, mint_token, proxy_hash, seconds_in
from comfyui_agent.store import operations as ops

OPEN = "There are no tokens: only this machine reaches the page, and everyone here is an admin."
CLOSED = (
    "No token is left: nobody reaches the page. Make one with e3 token create, or let this machine in: e3 token open."
)

app = command_group("Tokens for the web page and the API.")


@workspace_command(app)
async def create(
    call: Invocation,
    role: Annotated[
        Role,
        typer.Option(
            help="read: look; user: submit, retry, cancel, too; admin: steer, too; metrics: ask for /metrics only."
        ),
    ] = Role.USER,
    name: Annotated[str, typer.Option(metavar="NAME", help="Whose it is, to tell them apart.")] = "",
    expires: Annotated[
        str, typer.Option(metavar="TIME", help="After how long it ends: 30d, 12h, 90m, 2w; else never.")
    ] = "",
    shared: Annotated[
        bool, typer.Option("--shared", help="Whoever has it may change what others have queued, too.")
    ] = False,
    proxy_user: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="For somebody whom the proxy logs in under this name (ui.proxy_user_header): nothing to print. "
            "Run it again to change their role, or to let them in again.",
        ),
    ] = "",
) -> None:
    """Make a token and print it. It is shown this once: only its hash is kept.

    From the first token on, the page and the API ask for one, until e3 token open.
    """
    if len(name) > 100 or len(proxy_user) > 100:
        fail("--name and --proxy-user have at most 100 characters", code=2)
    try:
        seconds = seconds_in(expires) if expires else None
    except ValueError as error:
        fail(f"--expires {error}", code=2)
    secret = "" if proxy_user else mint_token()
    hash_ = proxy_hash(proxy_user) if proxy_user else hash_of(secret)
    called = proxy_user or name or role.value
    async with call.opened(create=True) as store:
        made = await store.run(ops.create_token, called, role, hash_, is_shared=shared, seconds=seconds)
        await call.actor.audit(store, EventName.AUDIT_TOKEN_CREATE, message=_described(made))
    if call.as_json:
        print_json(_facts(made) | ({"token": secret} if secret else {}))
        return
    if secret:
        typer.echo(secret)
    ends = f" It ends {made.expires_at[:16]} UTC." if made.expires_at else ""
    shown = " It is not shown again." if secret else " The proxy logs them in: there is no secret."
    line = f"Token {made.id} ({made.name}, {made.role}).{shown}{ends} Take it back: e3 token revoke {made.id}"
    typer.echo(one_line(line), err=True)


@workspace_command(app)
async def ls(call: Invocation) -> None:
    """List tokens: id, role, when they were made, end and were last used, name. What they are cannot be read back."""
    async with call.opened() as store:
        access, found = await store.run(ops.read_access), await store.run(ops.list_tokens)
    if call.as_json:
        print_json([_facts(each) for each in found])
        return
    valid = [_line(each) for each in found if each.revoked_at is None]
    revoked = [_line(each) for each in found if each.revoked_at is not None]
    heading = f"{'ID':>4}  {'ROLE':<7}  {'MADE':<16}  {'ENDS':<16}  {'LAST USED':<16}  NAME"
    typer.echo(heading if valid else _without_tokens(call.workspace, is_closed=access.is_closed))
    for line in (*valid, *(["Revoked:"] if revoked else []), *revoked):
        typer.echo(line)


def _line(each: Token) -> str:
    ends, used = each.revoked_at or each.expires_at or "never", each.last_used_at or "never"
    name = f"{each.name} (shared)" if each.is_shared else each.name
    times = f"{each.created_at[:16]}  {ends[:16]:<16}  {used[:16]:<16}"
    return one_line(f"{each.id:>4}  {each.role.value:<7}  {times}  {name}")


@workspace_command(app)
async def revoke(
    call: Invocation,
    number: Annotated[int, typer.Argument(metavar="ID", min=1, help="The id, as e3 token ls shows it.")],
) -> None:
    """Take a token back: whoever has it, or has logged in with it, is asked for another at once."""
    async with call.opened() as store:
        before = next((each for each in await store.run(ops.list_tokens) if each.id == number), None)
        if before is None:
            fail(f"there is no token {number}: see e3 token ls")
        if not await store.run(ops.revoke_token, number):
            fail(f"token {number} was revoked already: see e3 token ls")
        await call.actor.audit(store, EventName.AUDIT_TOKEN_REVOKE, message=_described(before))
        left = await store.run(ops.list_tokens)
    found = next(each for each in left if each.id == number)
    if call.as_json:
        print_json(_facts(found))
        return
    typer.echo(one_line(f"Token {found.id} ({found.name}, {found.role}) is worth nothing now."))
    if all(each.revoked_at for each in left):
        typer.echo(f"It was the last. {_without_tokens(call.workspace, is_closed=True)}", err=True)


@workspace_command(app, "open")
async def open_to_all(
    call: Invocation,
    yes: Annotated[bool, typer.Option("--yes", help="Revoke the tokens that there are without asking.")] = False,
) -> None:
    """Let everyone on this machine in without a token, as before the first one. Tokens are revoked, sessions end.

    Refused where the page asks for a token all the same: with ui.trusted_proxies, or a ui.host that others reach.
    """
    why = _why_needed(call.workspace)
    if why:
        fail(f"nothing was changed, because it would let nobody in: {why}. Change that setting first")
    async with call.opened() as store:
        found = await store.run(ops.open_access, revoke=yes)
        if found and not yes:
            count = counted(len(found), "token")
            if not sys.stdin.isatty():
                fail(f"{count} would be revoked: say so with e3 token open --yes, or leave access closed")
            typer.confirm(f"Revoke {count} and let everyone on this machine in as an admin?", abort=True, err=True)
            found = await store.run(ops.open_access, revoke=True)
        await call.actor.audit(store, EventName.AUDIT_TOKEN_OPEN, message=f"{counted(len(found), 'token')} revoked")
    if call.as_json:
        print_json({"access": "open", "revoked": [_facts(each) for each in found]})
        return
    typer.echo("Access is open: whoever reaches the page on this machine is an admin, until the next e3 token create.")


def _why_needed(workspace: Workspace) -> str:
    """Why the settings require a token even on this machine; empty if they do not."""
    ui = workspace.settings.ui
    if ui.trusted_proxies:
        named = " or a name from a proxy" if ui.proxy_user_header else ""
        return f"with ui.trusted_proxies nobody is let in without a token{named}"
    if not is_loopback(ui.host):
        return f"ui.host {ui.host} can be reached from other machines, so that nobody is let in without a token"
    return ""


def _without_tokens(workspace: Workspace, *, is_closed: bool) -> str:
    """Who reaches the page while there is no token."""
    why = _why_needed(workspace)
    if why:
        return one_line(f"There is no token, and {why}. Make one with e3 token create.")
    return CLOSED if is_closed else OPEN


def _described(found: Token) -> str:
    return f"{found.id} ({found.name}, {found.role}{', shared' if found.is_shared else ''})"


def _facts(found: Token) -> dict[str, Any]:
    keys = ("id", "name", "role", "is_shared", "created_at", "expires_at", "last_used_at", "revoked_at")
    return {key: getattr(found, key) for key in keys}

"""`e3 webhooks`: who is told of events over HTTP, and what did not arrive."""

from __future__ import annotations

from typing import Annotated

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import one_line, print_json, warn
from comfyui_agent.domain.texts import counted
from comfyui_agent.domain.webhooks import WebhookKind
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases import webhooks as usecases

app = command_group("Webhooks: programs that are told of events over HTTP.")

Name = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its id or name, as e3 webhooks ls shows it.")]


@workspace_command(app)
async def ls(call: Invocation) -> None:
    """List webhooks: id, name, events, how many messages wait and are dead, address. Secrets cannot be read back."""
    async with call.opened() as store:
        found = await usecases.shown_webhooks(store)
    if call.as_json:
        print_json(found)
        return
    for each in found:
        words = f"{each['waiting']:,} waiting, {each['dead']:,} dead"
        events = ",".join(each["events"])
        typer.echo(one_line(f"{each['id']:>4}  {each['name'] or '':<12}  {events:<20}  {words}  {each['url']}"))
    if not found:
        typer.echo("Nobody is told over HTTP. Make a webhook: e3 webhooks add URL, or write it into the configuration.")


@workspace_command(app)
async def add(
    call: Invocation,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where messages go.")],
    event: Annotated[
        list[WebhookKind] | None, typer.Option("--event", help="What it is told of; several times.")
    ] = None,
    allow: Annotated[list[str] | None, typer.Option("--allow", help="A host that may have a private address.")] = None,
) -> None:
    """Have a program told of what happens from now on, and print its secret, once. Without --event: of all."""
    async with call.opened(create=True) as store:
        kinds = event or list(WebhookKind)
        made, secret = await usecases.create_webhook(
            store, call.workspace, call.actor, url, kinds, allow=[each.lower() for each in allow or ()]
        )
    if call.as_json:
        print_json(made.as_json() | {"secret": secret})
        return
    typer.echo(secret)
    warn(f"webhook {made.label}. Its secret is not shown again. Try it: e3 webhooks test {made.id}")


@workspace_command(app)
async def rm(call: Invocation, name: Name) -> None:
    """Remove a webhook, its secret and what did not arrive. One of the configuration comes back with the next agent."""
    async with call.opened() as store:
        found = await usecases.find_webhook(store, name)
        await usecases.remove_webhook(store, call.actor, found)
    call.show(found.as_json(), f"Webhook {found.label} is removed.")


@workspace_command(app)
async def test(call: Invocation, name: Name) -> None:
    """Send a signed test from here, now. Exit 1 if it is not taken."""
    async with call.opened() as store:
        found = await usecases.find_webhook(store, name)
        status = await usecases.send_test(store, call.workspace, call.actor, found)
    call.show({"status": status}, f"Webhook {found.label} answered HTTP {status}.")


@workspace_command(app)
async def deliveries(
    call: Invocation,
    name: Name,
    dead: Annotated[bool, typer.Option("--dead", help="Only those that did not arrive for a day.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
) -> None:
    """List messages of a webhook, newest first: id, event, state, attempts, subject, what went wrong."""
    async with call.opened() as store:
        found = await usecases.find_webhook(store, name)
        rows = await store.run(ops.list_deliveries, found.id, state="dead" if dead else "", most=limit)
    call.show_list(
        rows,
        lambda row: (
            f"{row.id:>6}  {row.event_id:>8}  {row.state:<9}  {row.attempts:>2}  {row.subject}  {row.problem or ''}"
        ),
        "There are none.",
    )


@workspace_command(app)
async def repeat(
    call: Invocation,
    name: Name,
    delivery: Annotated[int, typer.Argument(metavar="[ID]", min=0, show_default=False, help="One; else all dead.")] = 0,
) -> None:
    """Send dead messages again, for another day: one, or all of a webhook."""
    async with call.opened() as store:
        found = await usecases.find_webhook(store, name)
        repeated = await usecases.repeat_deliveries(store, call.actor, found, delivery or None)
        call.show(
            {"repeated": repeated}, f"{counted(repeated, 'message')} to webhook {found.label} will be sent again."
        )
        await call.warn_if_unattended(store)

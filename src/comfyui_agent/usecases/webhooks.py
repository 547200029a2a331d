"""Webhooks: made, tried, removed, and dead messages sent again."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from comfyui_agent.config.sealing import CannotOpen, SecretBox
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.texts import counted
from comfyui_agent.domain.webhooks import (
    MOST_WEBHOOKS,
    Webhook,
    WebhookKind,
    checked_secret,
    checked_url,
    mint_secret,
    refusal_of,
)
from comfyui_agent.engine.webhook_receiver import Receiver
from comfyui_agent.pools import REQUESTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import Invalid, NotFound, NotPossible

TEST = json.dumps({"type": "webhook.test", "data": {"words": "A test of E3: messages arrive here."}})


async def shown_webhooks(store: Store) -> list[dict[str, Any]]:
    """Every webhook as admins see it, with how many messages are `waiting` and `dead`."""
    counts, found = await store.run(ops.count_deliveries), await store.run(ops.list_webhooks)
    return [each.as_json() | counts.get(each.id, {"waiting": 0, "dead": 0}) for each in found]


async def find_webhook(store: Store, name: str) -> Webhook:
    """The webhook of an id or a name."""
    for each in await store.run(ops.list_webhooks):
        if name in (str(each.id), each.name):
            return each
    raise NotFound(f"there is no webhook {name[:100]!r}", "See e3 webhooks ls.")


async def create_webhook(
    store: Store,
    workspace: Workspace,
    actor: Actor,
    url: str,
    events: Sequence[WebhookKind],
    secret: str | None = None,
    allow: Sequence[str] = (),
) -> tuple[Webhook, str]:
    """Make a webhook that is told of what happens from now on. Returns it and its secret, which nobody shows again."""
    secret = mint_secret() if secret is None else secret
    for key, check, value in (("url", checked_url, url), ("secret", checked_secret, secret)):
        try:
            check(value)
        except ValueError as error:
            raise Invalid.of_key(key, f"{key}: {error}", "Change it, and ask again.") from None
    host = (urlsplit(url).hostname or "").lower()
    if host not in allow and (refusal := refusal_of(host)):
        raise Invalid.of_key("url", f"url: {refusal}", "Only the configuration and e3 webhooks add --allow can do so.")
    if len(await store.run(ops.list_webhooks)) >= MOST_WEBHOOKS:
        raise NotPossible(f"there are {MOST_WEBHOOKS} webhooks already", "Remove one that nobody needs.")
    sealed = await REQUESTS.run(SecretBox(workspace.secrets_key).seal, {"secret": secret, "allow": list(allow)})
    kinds = list(dict.fromkeys(events))
    made = await store.run(ops.put_webhook, url, kinds, sealed, by=actor.token_id)
    found = await find_webhook(store, str(made))
    await actor.audit(store, EventName.AUDIT_WEBHOOK_CREATE, message=f"{found.label}: {', '.join(kinds)}")
    return found, secret


async def remove_webhook(store: Store, actor: Actor, found: Webhook) -> None:
    """Forget a webhook and what did not arrive there."""
    if await store.run(ops.remove_webhook, found.id):
        await actor.audit(store, EventName.AUDIT_WEBHOOK_REMOVE, message=found.label)


async def repeat_deliveries(store: Store, actor: Actor, found: Webhook, delivery_id: int | None = None) -> int:
    """Send dead messages again: one, or all of them. NotPossible if there is none."""
    repeated = await store.run(ops.repeat_deliveries, found.id, delivery_id)
    if not repeated:
        what = "has no dead messages" if delivery_id is None else f"has no dead message {delivery_id}"
        raise NotPossible(f"webhook {found.label} {what}", "What waits is sent again by itself.")
    words = f"{found.label}: {counted(repeated, 'message')}"
    await actor.audit(store, EventName.AUDIT_WEBHOOK_REPEAT, message=words)
    return repeated


async def send_test(store: Store, workspace: Workspace, actor: Actor, found: Webhook) -> int:
    """Send a test now, from here. Returns the status of the answer; NotPossible unless it is a good one."""
    try:
        opened = await REQUESTS.run(SecretBox(workspace.secrets_key).open, found.sealed)
    except CannotOpen as error:
        raise NotPossible(f"webhook {found.label} is of another workspace: {error}", "Test it there.") from None
    receiver = Receiver(found.url, opened)
    try:
        answer = await receiver.send(f"e3_{store.identity}_{found.id}_test_{secrets.token_hex(8)}", TEST)
    finally:
        await receiver.close()
    await actor.audit(store, EventName.AUDIT_WEBHOOK_TEST, message=f"{found.label}: {answer.words}")
    if answer.status is None or not answer.is_success:
        raise NotPossible(f"the test did not arrive at webhook {found.label}: {answer.words}", "Mend that, then retry.")
    return answer.status

"""/api/v1/webhooks: who is told of events over HTTP, and what did not arrive. All of it is for admins."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field

from comfyui_agent.domain.webhooks import LONGEST_URL, Webhook, WebhookKind
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases import webhooks as usecases
from comfyui_agent.web.api.event_routes import LARGEST_ID
from comfyui_agent.web.api.models import (
    DeliveriesRepeated,
    DeliveryPage,
    WebhookMade,
    WebhookShown,
    WebhookTested,
)
from comfyui_agent.web.api.parameters import PREFIX, Admin, ByAdmin, Here, Limit, Said
from comfyui_agent.web.openapi import problems

router = APIRouter(prefix=f"{PREFIX}/webhooks", tags=["webhooks"])


class NewWebhookSaid(Said):
    url: str = Field(max_length=LONGEST_URL, description="Where messages go: a public address.")
    events: list[Annotated[WebhookKind, Field(strict=False)]] = Field(min_length=1, max_length=10)
    secret: str | None = Field(None, max_length=200, description="whsec_ and base64; null: one is made.")


async def webhook_of(
    context: Here, _: Admin, name: Annotated[str, Path(min_length=1, max_length=100, description="Its id or name.")]
) -> Webhook:
    return await usecases.find_webhook(context.store, name)


Named = Annotated[Webhook, Depends(webhook_of)]
DeliveryId = Annotated[int | None, Field(ge=1, le=LARGEST_ID, description="The id of a message.")]
REPEATING: dict[str, Any] = {"status_code": 202, "response_model": DeliveriesRepeated, "responses": problems(404, 409)}


@router.get("", response_model=list[WebhookShown], responses=problems())
async def list_webhooks(context: Here, _: Admin) -> Any:
    """Every webhook, with how many messages wait and are dead. For admins."""
    return await usecases.shown_webhooks(context.store)


@router.post("", status_code=201, response_model=WebhookMade, responses=problems(409, sends=True))
async def create(context: Here, by: ByAdmin, said: NewWebhookSaid) -> Any:
    """Have a program told of what happens from now on. The answer has the secret, once. For admins."""
    made, secret = await usecases.create_webhook(
        context.store, context.workspace, by, said.url, said.events, said.secret
    )
    return made.as_json() | {"waiting": 0, "dead": 0, "secret": secret}


@router.post("/{name}/remove", status_code=204, responses=problems(404))
async def remove(context: Here, by: ByAdmin, found: Named) -> None:
    """Forget a webhook and what did not arrive. The next agent brings back one of its configuration. For admins."""
    await usecases.remove_webhook(context.store, by, found)


@router.post("/{name}/test", response_model=WebhookTested, responses=problems(404, 409))
async def test(context: Here, by: ByAdmin, found: Named) -> Any:
    """Send a signed test now. For admins."""
    return {"status": await usecases.send_test(context.store, context.workspace, by, found)}


@router.get("/{name}/deliveries", response_model=DeliveryPage, responses=problems(404))
async def deliveries(
    context: Here,
    found: Named,
    state: Annotated[Literal["", "waiting", "delivered", "dead"], Query()] = "",
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="Only older ones.")] = None,
    limit: Limit = 50,
) -> Any:
    """Messages of a webhook, newest first. They are kept for a week, dead ones for a month. For admins."""
    rows = await context.store.run(ops.list_deliveries, found.id, state=state, before=before, most=limit + 1)
    return {
        "deliveries": [each.as_json() for each in rows[:limit]],
        "next": rows[limit - 1].id if len(rows) > limit else None,
    }


@router.post("/{name}/repeat", **REPEATING)
@router.post("/{name}/deliveries/{delivery}/repeat", **REPEATING)
async def repeat(context: Here, by: ByAdmin, found: Named, delivery: DeliveryId = None) -> Any:
    """Send one dead message again, or all of them. For admins."""
    return {"repeated": await usecases.repeat_deliveries(context.store, by, found, delivery)}

"""A backend that sells picture books: an order becomes a book in E3, and a webhook says when it has ended.

    RENDER_URL=http://127.0.0.1:8190 RENDER_TOKEN=… WEBHOOK_SECRET=whsec_… uvicorn book_backend:app --port 8300

It keeps nothing itself: the number of the order is the `external_id` of its book, so E3 remembers for it, also if this
process is killed between any two lines.
"""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel
from standardwebhooks import Webhook, WebhookVerificationError

from comfyui_agent.remote import AsyncClient, IdTaken, Refused

app = FastAPI(title="Picture books")
e3 = AsyncClient(os.environ.get("RENDER_URL", "http://127.0.0.1:8190"), os.environ.get("RENDER_TOKEN"))
webhook = Webhook(os.environ["WEBHOOK_SECRET"])
seen: set[str] = set()
"""Messages that came; one that comes again has the same id. A real shop keeps them in its database."""
finished: dict[str, str] = {}


class Order(BaseModel):
    hero: str
    scenes: list[str]


@app.put("/orders/{number}", status_code=202)
async def order(number: str, wanted: Order) -> dict[str, Any]:
    """Order a book. The same number again is the same book."""
    pages = [{"inputs": {"prompt": f"{wanted.hero}, {scene}, picture book"}} for scene in wanted.scenes]
    for_all = {"seed": 7, "steps": 20}
    try:
        book = await e3.book(
            "wf_realistic_portrait", pages, inputs=for_all, title=f"Order {number}", external_id=number
        )
    except IdTaken as taken:
        if taken.made is None:
            raise
        return {"order": number, "book": taken.made.id}
    return {"order": number, "book": book.id}


@app.get("/orders/{number}")
async def status(number: str) -> dict[str, Any]:
    """How an order stands: the truth is what E3 says."""
    try:
        made = await e3.find(number)
    except Refused:
        raise HTTPException(404, "there is no such order") from None
    book = await e3.batch(made.id)
    standing = {"status": book.status, "done": book.done, "of": book.total, "attention": book.attention}
    return {"order": number, **standing, "told_at": finished.get(book.id)}


@app.post("/webhooks/e3", status_code=204)
async def told(request: Request) -> None:
    """E3 says that something has happened. What is not signed by it is refused."""
    body = await request.body()
    try:
        message = webhook.verify(body, dict(request.headers))
    except WebhookVerificationError:
        raise HTTPException(401, "not signed by E3") from None
    if request.headers["webhook-id"] in seen:
        return
    seen.add(request.headers["webhook-id"])
    if message["type"] == "batch.completed":
        finished[message["data"]["batch_id"]] = message["timestamp"]

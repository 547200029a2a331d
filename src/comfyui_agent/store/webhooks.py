"""Webhooks and their messages: each is written down once, and sent by one agent until it has arrived."""

from __future__ import annotations

from collections.abc import Sequence

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.texts import json_text
from comfyui_agent.domain.webhooks import GIVE_UP_SECONDS, Delivery, ResultDigest, Webhook
from comfyui_agent.store.event_log import add_event, newest_event
from comfyui_agent.store.operation import Operation, figure, listing, query, statement, transition
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import paths_in, record

list_webhooks: Operation[[], list[Webhook]] = listing(Webhook, "webhooks")
"""Oldest first, without counts."""
count_waiting: Operation[[int, int], int] = figure(int, "count_waiting", "id", "most")
"""How many messages of a webhook wait, counted up to `most`."""
note_delivered: Operation[[int], int] = statement("note_delivered", "id")
repeat_deliveries: Operation[[int, int | None], int] = statement("repeat_deliveries", "webhook_id", "id")
"""Has dead messages sent again: one, or all of a webhook. Returns how many."""
forget_deliveries: Operation[[], int] = statement("forget_deliveries")
"""Removes messages that arrived a week ago or died a month ago, some at a time."""


@query
def count_deliveries(session: Session) -> dict[int, dict[str, int]]:
    """How many messages are `waiting` and `dead`, by webhook. One that has neither is left out."""
    found: dict[int, dict[str, int]] = {}
    for row in session.rows("undelivered"):
        counts = found.setdefault(row["webhook_id"], {"waiting": 0, "dead": 0})
        found[row["webhook_id"]] = {key: counts[key] + row[key] for key in counts}
    return found


@transition
def put_webhook(
    session: Session, url: str, events: Sequence[str], sealed: str, *, name: str | None = None, by: int | None = None
) -> int:
    """Make a webhook that is told of what happens from now on, or change the one of this name. Returns its id."""
    facts = {"url": url, "events": json_text(list(events)), "sealed": sealed, "name": name, "created_by": by}
    return int(session.value("create_webhook", last_event=newest_event(session), **facts))


@transition
def remove_webhook(session: Session, webhook_id: int) -> bool:
    """Forget a webhook, its secret and whatever did not arrive."""
    session.run("drop_deliveries", id=webhook_id)
    return session.run("remove_webhook", id=webhook_id) > 0


@transition
def hold_webhooks(session: Session, worker: str, host: str, ids: Sequence[int], seconds: float) -> frozenset[int]:
    """Those of some webhooks that an agent delivers to for so long. No other one does."""
    facts = {"worker": worker, "host": host, "ids": list(ids), "seconds": seconds}
    return frozenset(row["id"] for row in session.rows("hold_webhooks", **facts))


@transition
def add_deliveries(
    session: Session, webhook: Webhook, worker: str, until: int, messages: Sequence[tuple[int, str, str]]
) -> bool:
    """Write down the messages for all events up to one: event, subject and body. False if that is done already."""
    facts = {"id": webhook.id, "before": webhook.last_event, "last": until, "worker": worker}
    if not session.run("move_webhook", **facts):
        return False
    for event_id, subject, body in messages:
        session.send("add_delivery", webhook_id=webhook.id, event_id=event_id, subject=subject, body=body)
    return True


@query
def results_of_jobs(session: Session, ids: Sequence[int]) -> dict[int, tuple[str | None, list[ResultDigest]]]:
    """What programs know jobs by, and the digests of their results. A job that is gone is left out."""
    rows = session.rows("outputs_of_jobs", ids=list(ids))
    paths = {row["id"]: paths_in(row["outputs"]) for row in rows}
    found = session.rows("result_digests", paths=[path for each in paths.values() for path in each])
    known = {row["path"]: record(ResultDigest, row) for row in found}
    return {
        row["id"]: (row["external_id"], [known.get(path, ResultDigest(path)) for path in paths[row["id"]]])
        for row in rows
    }


@query
def next_deliveries(session: Session, webhook_id: int, most: int) -> list[tuple[Delivery, float]]:
    """The oldest message of each subject, with the seconds until it is due. Those that are due come first."""
    rows = session.rows("next_deliveries", id=webhook_id, most=most)
    return [(record(Delivery, row), float(row["wait"])) for row in rows]


@transition
def note_undelivered(session: Session, delivery: Delivery, worker: str, problem: str, pause: float | None) -> None:
    """Note why a message did not arrive. It is due again after a pause, or dead if it is too old.

    Without a pause the receiver is away, and all that are too old are dead. People are told of the first.
    """
    facts = {"id": delivery.id, "worker": worker, "problem": problem, "webhook_id": delivery.webhook_id}
    session.run("note_undelivered", pause=pause or 0.0, **facts)
    died = session.run("bury_delivery" if pause else "bury_deliveries", seconds=GIVE_UP_SECONDS, **facts)
    if died and session.value("deaths_since_success", webhook_id=delivery.webhook_id) == died:
        words = f"messages to webhook {delivery.webhook_id} did not arrive for a day, and are dead: {problem}"
        add_event(session, Event(EventName.ALERT_WEBHOOK, message=words))


@query
def list_deliveries(
    session: Session, webhook_id: int, *, state: str = "", before: int | None = None, most: int = 50
) -> list[Delivery]:
    """Messages of a webhook, newest first."""
    rows = session.rows("deliveries_before", webhook_id=webhook_id, state=state, before=before, most=most)
    return [record(Delivery, row) for row in rows]

"""The page for admins: everything that needs attention with raw errors, alerts, servers, tokens and changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Attempt, Job
from comfyui_agent.domain.texts import counted
from comfyui_agent.engine.delivery import shown
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.usecases.webhooks import shown_webhooks
from comfyui_agent.web.explanations import explain
from comfyui_agent.web.pages.cells import jobs_here, looks
from comfyui_agent.web.pages.servers import servers_part
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View

ON_A_PAGE = 25
SHOWN = 5
"""Runs per job. The page of the job has all."""
DAY = 24 * 3600.0
CHANGES, DEAD = 30, 10
"""Entries of the audit trail, which `e3 audit` has all of, and dead messages of a webhook."""


async def build(view: View) -> Screen:
    store = view.context.store
    asked = view.asked("class")
    if asked and asked not in set(FailureClass):
        raise NoScreen(f"there is no failure class {asked[:40]!r}: see /admin")
    page = await jobs_here(view, JobFilter(attention=True, failure_class=asked or None), ON_A_PAGE, "/admin")
    attempts = await asyncio.gather(*(store.run(ops.list_attempts, job.id) for job in page.jobs))
    rows = [
        Fragment(
            f"trouble-{number}",
            {"job": job, "explanation": explain(job, runs), "runs": runs, "errors": _errors(job, runs)},
            key=(looks(job, None), len(runs)),
            template="admin_trouble.html",
        )
        for number, (job, runs) in enumerate(zip(page.jobs, attempts, strict=True))
    ]
    troubles = {"rows": rows, "is_whole": page.is_whole, "cursor": page.cursor}
    listed = (tuple(job.id for job in page.jobs), page.cursor)
    alerts = await store.run(ops.alerts, DAY)
    changes = await store.run(ops.audit_trail, most=CHANGES)
    access = await store.run(ops.read_access)
    tokens = [token for token in access.tokens if token.revoked_at is None]
    servers = await servers_part(view)
    counts = await store.run(ops.count_jobs)
    hooks = await shown_webhooks(store)
    dead = {
        each["id"]: await store.run(ops.list_deliveries, each["id"], state="dead", most=DEAD)
        for each in hooks
        if each["dead"]
    }
    fragments = (
        Fragment("troubles", troubles, listed, "admin_troubles.html"),
        *rows,
        Fragment("alerts", {"alerts": alerts}, tuple(alert.id for alert in alerts), "admin_alerts.html"),
        servers,
        Fragment("tokens", {"tokens": tokens, "is_closed": access.is_closed}, template="admin_tokens.html"),
        Fragment("webhooks", {"webhooks": hooks, "dead": dead}, template="admin_webhooks.html"),
        Fragment("audit", {"rows": changes}, tuple(each.id for each in changes), "admin_audit.html"),
    )
    out = sum(report.state != "up" for report, _ in servers.values["servers"])
    classes = [each.value for each in FailureClass if each is not FailureClass.CANCELLED]
    findings = [f"{counted(counts.attention, 'job needs', 'jobs need')} attention"]
    findings += [f"{counted(len(alerts), 'alert')} in the last day"] if alerts else []
    died = sum(each["dead"] for each in hooks)
    findings += [f"{counted(died, 'message')} to webhooks dead"] if died else []
    findings += [f"{counted(out, 'server')} not at work"] if out else []
    told = [shown(url) for url in view.context.workspace.settings.notify.urls]
    values = {"classes": classes, "told": told}
    return Screen("admin.html", "Admin", f"{', '.join(findings)}.", fragments, values, "admin")


def _errors(job: Job, attempts: Sequence[Attempt]) -> list[Any]:
    """The recorded errors of the last attempts, oldest first."""
    found = [attempt.as_json() for attempt in attempts if attempt.error][-SHOWN:]
    return found or [{"failure_class": job.failure_class, "error_trace": job.error_trace}]

"""Notifications: seeing that they arrive."""

from __future__ import annotations

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.notifications import TEST
from comfyui_agent.engine.delivery import deliver, failures, shown
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import NotPossible

NOBODY = "nobody is to be told: notify.urls is empty"


async def send_test(store: Store, workspace: Workspace, actor: Actor) -> list[str]:
    """Send a test to every address, and return their schemes. NotPossible unless all of them took it."""
    urls = workspace.settings.notify.urls
    if not urls:
        raise NotPossible(NOBODY, "Write an address into the configuration: docs/notifications.md has examples.")
    failed = failures(urls, await deliver(urls, TEST))
    names = [shown(url) for url in urls]
    await actor.audit(store, EventName.AUDIT_NOTIFY_TEST, message=", ".join(names))
    if failed:
        raise NotPossible(
            f"the test was not delivered: {'; '.join(failed)}", "Correct notify.urls, then start E3 again."
        )
    return names

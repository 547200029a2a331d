"""Telling people what has happened, by whichever agent of a database is quickest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pydantic import SecretStr

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.address import name_of
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain import notifications
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.notifications import EVENTS, Message, NotificationKind
from comfyui_agent.engine.delivery import deliver, failures
from comfyui_agent.files.connect import open_files
from comfyui_agent.files.port import BadLocation
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.notifications import Untold
from comfyui_agent.store.operation import OperationRunner
from comfyui_agent.store.rows import time_text

log = logging.getLogger(__name__)

PAUSE, LONGEST_PAUSE = 1.0, 600.0
"""Between two looks."""
GRID_SECONDS = 120.0
"""How long a message waits for the grid that it shows."""
EMPTY_SECONDS = 10.0
"""How long the queue is empty before anyone is told: a script may be about to queue its next job."""
AGAIN = (5.0, 30.0)
LARGEST_FILES = 5 * 1024**2
PICTURES = (".png", ".jpg", ".jpeg", ".webp")


@dataclass
class Notifier:
    """Tells of each kind in `notify.on`, at most one message in `notify.quiet_seconds`.

    What happened and what was told stands in the database: each event goes into one message of one agent, and is
    noted as told before that is sent. An event that is heard only makes it look.
    """

    store: OperationRunner
    workspace: Workspace
    clock: Clock
    note: Callable[[Event], Awaitable[None]]
    deliver: Callable[[Sequence[SecretStr], Message], Awaitable[list[str]]] = deliver
    _due: dict[NotificationKind, asyncio.Event] = field(init=False)
    _turns: dict[NotificationKind, asyncio.Lock] = field(init=False)
    _is_failing: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._due = {kind: asyncio.Event() for kind in self.workspace.settings.notify.on}
        self._turns = {kind: asyncio.Lock() for kind in self._due}

    def see_event(self, event: Event) -> None:
        for kind, due in self._due.items():
            if event.name in EVENTS[kind]:
                due.set()

    async def follow(self) -> None:
        await asyncio.gather(*map(self._follow, self._due))

    async def finish(self) -> None:
        """Tell what is left before the agent ends. What may not be told yet, the next agent tells."""
        await asyncio.gather(*(self._look(kind, is_last=True) for kind in self._due))

    async def _follow(self, kind: NotificationKind) -> None:
        while True:
            self._due[kind].clear()
            await self.clock.wait_for(self._due[kind], await self._look(kind))
            await self.clock.sleep(PAUSE)

    async def _look(self, kind: NotificationKind, *, is_last: bool = False) -> float:
        """Tell what there is to tell. Returns after how many seconds to look again at the latest."""
        longest = self.workspace.settings.notify.quiet_seconds
        try:
            async with self._turns[kind]:
                found = await self.store.run(ops.untold, kind)
                quiet = min(longest, found.told_at + longest - found.now)
                if quiet > 0:
                    return quiet
                message = await self._message(kind, found, is_last) if found.noted else None
                if isinstance(message, float):
                    return message
                is_ours = await self.store.run(ops.claim_notification, kind, found, is_message=message is not None)
                if message is not None and is_ours:
                    await self._send(message)
        except StoreError as error:
            log.warning("it is not known what people are to be told: %s", error)
        except Exception:
            log.exception("telling people (%s) failed", kind)
        return LONGEST_PAUSE

    async def _message(self, kind: NotificationKind, found: Untold, is_last: bool) -> Message | float | None:
        """What to tell; None if there is nothing, or the seconds after which there may be."""
        if kind is NotificationKind.NIGHT:
            return await self._night(found, is_last)
        events = await self.store.run(ops.events_between, found, EVENTS[kind])
        if kind is NotificationKind.SERVER:
            lost = {name_of(each.server): each.message or "" for each in events if each.server}
            return notifications.of_servers(lost) if lost else None
        if kind is NotificationKind.ATTENTION:
            needy = (await self.store.run(ops.count_jobs)).attention
            reasons = {each.config_name or "": self.workspace.without_root(each.message or "") for each in events}
            return notifications.of_failures(reasons, needy) if reasons and needy else None
        ids = dict.fromkeys(each.batch_id for each in events if bool(each.book_id) is (kind is NotificationKind.BOOK))
        batches = [each for id_ in ids if id_ and (each := await self.store.run(ops.find_batch, id_)) is not None]
        lately = time_text(datetime.fromtimestamp(found.now, timezone.utc) - timedelta(seconds=GRID_SECONDS))
        if not is_last and any(each.is_grid_due and (each.completed_at or "") > lately for each in batches):
            return PAUSE
        files = await OBJECTS.run(self._grids, batches)
        return replace(notifications.of_batches(kind, batches), files=files) if batches else None

    async def _night(self, found: Untold, is_last: bool) -> Message | float | None:
        if not await self.store.run(ops.is_queue_idle):  # a last grid may be under way, and its end is no event
            return EMPTY_SECONDS
        jobs = await self.store.run(ops.jobs_ended_between, found)
        if jobs.began is None or jobs.ended is None:
            return None
        if jobs.ended < EMPTY_SECONDS and not is_last:
            return EMPTY_SECONDS - jobs.ended
        needy = (await self.store.run(ops.count_jobs)).attention
        return notifications.of_night(jobs.done, jobs.began - jobs.ended, needy)

    def _grids(self, batches: Sequence[Batch]) -> tuple[Path, ...]:
        """The pictures of their grids, as far as they are not too much for a message."""
        files, left = [], LARGEST_FILES
        for batch in batches:
            with suppress(OSError, ValueError, BadLocation):  # there is none, or it is kept elsewhere
                name = self.workspace.shown(self.workspace.inside(batch.grid or ""))
                path = open_files(self.workspace.results, name).local(name)
                size = path.stat().st_size
                if path.suffix in PICTURES and size <= left:
                    files.append(path)
                    left -= size
        return tuple(files)

    async def _send(self, message: Message) -> None:
        """Send a message; again where it was not delivered, without pictures; then drop it."""
        left = list(self.workspace.settings.notify.urls)
        problems = await self.deliver(left, message)
        for pause in AGAIN:
            if not any(problems):
                break
            left = [url for url, problem in zip(left, problems, strict=True) if problem]
            await self.clock.sleep(pause)
            problems = await self.deliver(left, replace(message, files=()))
        failed = failures(left, problems)
        if failed:
            words = f"a notification was not delivered ({message.title}): {', '.join(failed)}"
            log.error("%s", words)
            if not self._is_failing:
                await self.note(Event(EventName.ALERT_NOTIFY, message=words))
        self._is_failing = bool(failed)

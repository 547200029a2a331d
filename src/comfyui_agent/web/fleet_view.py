"""The servers as the page shows them: probed every few seconds while someone watches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator

from comfyui_agent.comfy.address import address_of, name_of
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.engine.live_runs import LiveRun, read_live, want_previews
from comfyui_agent.engine.server_reports import ServerReport, look_at
from comfyui_agent.fleet.launch.state import server_urls, slot_folders
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import PART, living, this_host
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.servers import ProcessReport, judge_reports, known_servers, report_of

log = logging.getLogger(__name__)

LIVE_SECONDS = 0.4
LOOK_SECONDS = 3.0
OLDEST_SECONDS = 5.0
STALE_SECONDS = 12.0
PATIENCE = 1.5
NOT_YET = "it has not answered yet"


class FleetView:
    """Reports of servers, the runs of agents there, and how many agents work."""

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store = store
        self._workspace = workspace
        self._reports: list[ServerReport] = []
        self._looked_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._live: list[LiveRun] = []
        self._live_at = float("-inf")
        self._agents = 0
        self._watchers = 0
        self.version = 0
        """Goes up whenever something looks different."""

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Keep it fresh meanwhile, because someone watches."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1

    async def keep_fresh(self) -> None:
        while True:
            if self._watchers:
                try:
                    await self.look_at_live()
                    if time.monotonic() - self._looked_at > LOOK_SECONDS:
                        self._begin_look()
                except Exception:
                    log.exception("looking at what is at work failed")
            await asyncio.sleep(LIVE_SECONDS)

    async def look_at_live(self) -> None:
        folder = self._workspace.locks
        runs = await FILES.run(read_live, folder)
        agents = sum(not name.endswith(PART) for name in await FILES.run(living, folder))
        if self._watchers:
            await FILES.run(want_previews, folder)
        if (runs, agents) != (self._live, self._agents):
            self._live, self._agents = runs, agents
            self.version += 1
        self._live_at = time.monotonic()

    async def live(self) -> list[LiveRun]:
        """The runs of all agents of this machine."""
        if time.monotonic() - self._live_at > 2 * LIVE_SECONDS:
            await self.look_at_live()
        return self._live

    async def agents(self) -> int:
        """How many agents work the whole queue off, on this machine and on others."""
        await self.live()
        with contextlib.suppress(StoreError):
            others = await self._store.run(ops.agents_elsewhere, this_host())
            return self._agents + sum(not name.endswith(PART) for name in others)
        return self._agents

    async def reports(self) -> list[ServerReport]:
        """Every server of the workspace, as it was a few seconds ago. One that hangs is not waited for twice."""
        age = time.monotonic() - self._looked_at
        if age > OLDEST_SECONDS:
            look = self._begin_look()
            if age > STALE_SECONDS:
                await asyncio.wait({look}, timeout=PATIENCE)
        return await judge_reports(self._store, self._reports)

    async def processes(self) -> dict[str, ProcessReport]:
        """The processes that E3 supervises here, by the address of their server."""
        if not self._workspace.settings.comfyui.launch:
            return {}
        reports = await FILES.run(lambda: [report_of(folder) for folder in slot_folders(self._workspace)])
        return {report.state.url: report for report in reports}

    async def known(self) -> list[str]:
        """The address of every server that has to do with this queue."""
        return await known_servers(self._store, self._workspace)

    def _begin_look(self) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return self._looking

    async def _look(self) -> None:
        urls = list(server_urls(self._workspace))
        with contextlib.suppress(StoreError):
            configured = {address_of(url) for url in urls}
            urls += [address for address in await self.known() if address not in configured]
        addresses = [address_of(url) for url in urls]
        known = {report.url: report for report in self._reports}
        self._show([known.get(each, ServerReport(name_of(each), each, error=NOT_YET)) for each in addresses])
        self._looked_at = time.monotonic()
        await asyncio.gather(*(self._look_at(number, url) for number, url in enumerate(urls)))
        self._looked_at = time.monotonic()

    async def _look_at(self, number: int, url: str) -> None:
        """Show each server as soon as it has answered: one that hangs delays no other."""
        report = await look_at(url)
        self._show([*self._reports[:number], report, *self._reports[number + 1 :]])

    def _show(self, reports: list[ServerReport]) -> None:
        if reports != self._reports:
            self.version += 1
        self._reports = reports

    async def close(self) -> None:
        await end_tasks([self._looking] if self._looking else [])

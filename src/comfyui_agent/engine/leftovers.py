"""Files that dead agents left: fetched and never named, and what they showed of their work."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from comfyui_agent.comfy.downloads import remove_leftovers
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.kinds import FOLDERS
from comfyui_agent.engine.live_files import remove_stale
from comfyui_agent.engine.result_names import stem_of
from comfyui_agent.engine.thread_pools import PUBLISHING
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.records import Leased

log = logging.getLogger(__name__)


class LeftoverFiles:
    """Removes them. A living agent removes its own."""

    def __init__(
        self, workspace: Workspace, lock: AgentLock, remove: Callable[[Sequence[str]], Awaitable[None]]
    ) -> None:
        self._workspace = workspace
        self._lock = lock
        self.remove = remove
        """Removes results that are nobody's any more."""

    async def remove_fetched(self, leased: Leased) -> None:
        """Remove what the agent before had fetched for a run and not named."""
        worker = leased.previous_worker
        if not worker or not self._lock.is_dead(worker):
            return
        try:
            folder = stem_of(leased, self._workspace).parent
            await PUBLISHING.run(remove_leftovers, folder, worker)
        except (OSError, ValueError) as error:
            log.warning("leftovers of %s could not be removed: %s", worker, error)

    async def sweep(self) -> None:
        """Remove the lock files of dead agents, and with each what it left where results usually go."""
        for worker in self._lock.sweep():
            await PUBLISHING.run(self._remove_staged, worker)
            remove_stale(self._workspace.locks, worker)

    def _remove_staged(self, worker: str) -> None:
        for kind in sorted(set(FOLDERS.values())):
            try:
                folder = self._workspace.finished(kind)
                for place in (folder, *(each for each in folder.glob("*") if each.is_dir())):
                    remove_leftovers(place, worker)
            except (OSError, ValueError) as error:
                log.warning("leftovers of %s could not be removed: %s", worker, error)

"""Finds the number of ComfyUI processes for each card with `per_gpu: auto`, by measuring while they render."""

from __future__ import annotations

import contextlib
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.texts import counted
from comfyui_agent.fleet.launch.plan import Slot
from comfyui_agent.fleet.launch.state import write_note
from comfyui_agent.fleet.launch.tuning import MEASURING, Findings, Sample, Step, Tuning
from comfyui_agent.fleet.routing import RoutedFleet
from comfyui_agent.fleet.server import Health
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import NamedLock
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)

TUNING = "tuning.json"
FINDINGS = TypeAdapter(dict[str, Findings])


class Processes(Protocol):
    """What tuning needs of the supervisor."""

    @property
    def slots(self) -> Sequence[Slot]: ...

    def processes(self, card: str) -> int: ...

    def failure(self, card: str) -> str: ...

    async def grow(self, card: str) -> str | None: ...

    async def shrink(self, card: str) -> str | None: ...


@dataclass
class Tuner:
    """Tunes the cards of this machine. Of several agents, one does it at a time."""

    supervisor: Processes
    fleet: RoutedFleet
    store: OperationRunner
    clock: Clock
    note: Callable[[Event], Awaitable[None]]
    folder: Path
    tunings: dict[str, Tuning] = field(default_factory=dict, init=False)
    _reference: dict[str, float] = field(default_factory=dict, init=False)
    _process_memory: dict[str, int] = field(default_factory=lambda: defaultdict(int), init=False)
    _shown: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.lock = NamedLock(self.folder / "tuner.lock")
        self._is_ours = False
        cards = [slot.card for slot in self.supervisor.slots if slot.is_tuned]
        self.tunings = {card: Tuning(card, most=cards.count(card)) for card in dict.fromkeys(cards)}

    async def look(self) -> None:
        """Look at every card once, and start or stop a process where that is due."""
        if not self.tunings or not (self._is_ours or self.lock.take()):
            return
        if not self._is_ours:
            self._is_ours = True
            self._resume()
        waiting = (await self.store.run(ops.count_jobs)).pending
        for card, tuning in self.tunings.items():
            before = tuning.found.decision
            step = tuning.see(await self._sample(card, waiting))
            if step is Step.GROW:
                await self.supervisor.grow(card)
            elif step is Step.SHRINK:
                await self.supervisor.shrink(card)
            if tuning.found.decision not in (before, MEASURING):
                log.info("%s: %s", card, tuning.found.decision)
                await self.note(Event(EventName.SERVER_TUNED, message=f"{card}: {tuning.found.decision}"))
        await self._show()

    def _resume(self) -> None:
        """Go on where an agent ended that may have been killed."""
        self._shown = read_tunings(self.folder)
        for card, facts in self._shown.items():
            self._reference |= facts["reference"]
            if card in self.tunings:
                self.tunings[card].found = Findings(**deepcopy(facts))

    async def _sample(self, card: str, waiting: int) -> Sample:
        urls = [slot.url for slot in self.supervisor.slots if slot.card == card]
        known = [server for url in urls if (server := self.fleet.servers.get(url))]
        servers = [server for server in known if server.is_employed]
        rows = await self.store.run(ops.renders_at, urls)
        for each in rows:
            self._reference.setdefault(each.needs, each.seconds)
        renders = sum(each.renders for each in rows)
        up = [server for server in servers if server.health is Health.UP]
        free = []
        for server in up:
            with contextlib.suppress(ComfyError):
                stats = await server.client.system_stats()
                self._process_memory[card] = max(self._process_memory[card], stats.reserved)
                free.append(stats.free_memory)
        rendering = [server for server in up if len(server.at_work) > len(server.fetching)]
        number = self.supervisor.processes(card)
        return Sample(
            at=self.clock.now(),
            processes=number,
            is_busy=len(rendering) == len(servers) == number,
            renders=renders,
            work=sum(each.renders * self._reference[each.needs] for each in rows),
            waiting=waiting,
            render_seconds=sum(each.renders * each.seconds for each in rows) / max(1, renders),
            free_memory=min(free, default=None),
            process_memory=self._process_memory[card],
            oom_failures=sum(server.oom_failures for server in known),
            failure=self.supervisor.failure(card),
            is_idle=not waiting and not any(server.at_work for server in servers),
        )

    async def _show(self) -> None:
        """Leave what was found for those who look from other processes."""
        shown = {}
        for card, tuning in self.tunings.items():
            facts = asdict(tuning.found)
            if not tuning.found.per_minute:  # people still want to see what was found before
                facts |= self._shown.get(card, {}) | {"rates": {}}
            shown[card] = facts | {"processes": self.supervisor.processes(card), "reference": dict(self._reference)}
        if shown != self._shown:
            self._shown = shown
            await FILES.run(write_note, self.folder / TUNING, json.dumps(shown).encode())


def read_tunings(folder: Path) -> dict[str, dict[str, Any]]:
    """What was found for each card, by any agent of this machine. Empty if none was tuned."""
    try:
        found = FINDINGS.validate_json((folder / TUNING).read_bytes())
        return {card: asdict(each) for card, each in found.items()}
    except (OSError, ValueError):  # there is none, or it was written by hand
        return {}


def tuning_lines(workspace: Workspace) -> dict[str, str]:
    """A sentence for each card whose number of processes is found by measuring."""
    lines = {}
    for card, facts in (read_tunings(workspace.processes) if workspace.settings.comfyui.launch else {}).items():
        number, per_minute = facts["processes"], sorted(facts["per_minute"].items())
        rates = " → ".join(f"{rate:.0f}" for key, rate in per_minute if key <= number)
        measured = f": {rates} a minute" if rates else ""
        lines[card] = f"{card}: {counted(number, 'process', 'processes')}{measured}; {facts['decision']}"
    return lines

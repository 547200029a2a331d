"""The options of a chaos run, and the server that they choose."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.domain.processes import module_command
from comfyui_agent.lab.chaos.findings import Skipped
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.sim.process import ServerProcess, answers, simulator

START_SECONDS = 300.0


@dataclass(frozen=True)
class ChaosPlan:
    """What is broken in front of which agent. Without a server a simulator stands in."""

    payload: Payload
    url: str | None = None
    start_command: tuple[str, ...] | None = None
    agent: Sequence[str] = field(default_factory=lambda: module_command("comfyui_agent", "run"))
    """The agent under test, as a command; `-C DIR` is added."""
    pages: int | None = None
    patience: float = 120.0
    """Seconds without any progress after which a scenario is given up."""
    is_quick: bool = False
    netem: str | None = None
    """A network device to lose packets on with `tc netem`, instead of the proxy."""

    @property
    def is_simulated(self) -> bool:
        return self.url is None

    def amount(self, quick: int, full: int) -> int:
        return self.pages or (quick if self.is_quick else full)


class Server:
    """The server behind the fault proxy: a simulator, the user's own, or one that is started here and can be killed."""

    def __init__(self, plan: ChaosPlan, folder: Path, flags: Sequence[str]) -> None:
        self._plan = plan
        self._process: ServerProcess | None = None
        self.url = plan.url or ""
        if plan.url is None:
            self._process = simulator(folder, *flags)
            self.url = self._process.url
        elif plan.start_command:
            folder.mkdir(parents=True, exist_ok=True)
            log = folder / "server.log"
            bare = str(ServerAddress.parse(plan.url))
            self._process = ServerProcess([*plan.start_command], bare, folder, log, start_seconds=START_SECONDS)
        self.address = ServerAddress.parse(self.url)
        if self.address.url.scheme != "http":
            raise Skipped(f"{self.address} is not plain http: faults are made in front of plain http only")

    @property
    def can_be_killed(self) -> bool:
        return self._process is not None

    async def start(self) -> None:
        """RuntimeError if it does not come up."""
        if self._process is None:
            return
        if self._plan.url is not None and await asyncio.to_thread(answers, str(self.address)):
            raise Skipped(
                f"something answers at {self.address} already: stop it, so that the one that --start-command starts "
                "is the one that is killed"
            )
        self._process.launch()
        await asyncio.to_thread(self._process.wait_until_up)

    async def kill(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(self._process.kill)

    async def stop(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(self._process.stop)

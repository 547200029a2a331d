"""A whole simulated ComfyUI: the wire in front of the simulated engine."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from types import TracebackType

from aiohttp import web

from comfyui_agent.sim.engine.simulated import SimulatedEngine
from comfyui_agent.sim.settings import Folders, SimSettings
from comfyui_agent.sim.wire.application import FEATURES, application
from comfyui_agent.sim.wire.sockets import Sockets


class Simulator:
    """A server in this process: `async with Simulator(settings) as sim: sim.url`. Port 0 takes a free one."""

    def __init__(self, settings: SimSettings | None = None, host: str = "127.0.0.1", port: int = 0) -> None:
        self.settings = settings or SimSettings()
        self.host = host
        self.port = port
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._runner: web.AppRunner | None = None
        self._sockets: Sockets | None = None
        self._engine: SimulatedEngine | None = None
        self.output_dir = Path()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Open the port; nothing is left behind when that fails."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        output = self.settings.output_dir
        if output is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="e3-sim-", ignore_cleanup_errors=True)
            output = Path(self._temporary.name)
        folders = Folders.below(output)
        self.output_dir = folders.output
        self._sockets = Sockets(FEATURES)
        self._engine = SimulatedEngine(self.settings, folders, self._sockets)
        self._engine.start()
        logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
        app = application(self._engine, self._sockets)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port).start()
        self.port = self._runner.addresses[0][1]

    async def serve(self) -> None:
        """Serve until cancelled; raises what the server died of."""
        if self._sockets is not None:
            await self._sockets.ended()

    async def stop(self) -> None:
        """End as a killed server does: nobody hears or reads what becomes of the prompt that runs."""
        if self._sockets is not None:
            await self._sockets.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._engine is not None:
            await asyncio.to_thread(self._engine.stop)
        if self._temporary is not None:
            self._temporary.cleanup()

    async def __aenter__(self) -> Simulator:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

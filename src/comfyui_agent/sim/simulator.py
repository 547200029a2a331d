"""A whole simulated ComfyUI: the wire in front of the simulated engine."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web

from comfyui_agent.sim.backend import SimulatedBackend
from comfyui_agent.sim.delivery import OneSender
from comfyui_agent.sim.editor_routes import EditorRoutes
from comfyui_agent.sim.engine.simulated import SimulatedEngine
from comfyui_agent.sim.settings import Folders, SimSettings
from comfyui_agent.wire.application import application


class Simulator:
    """A server in this process: `async with Simulator(settings) as sim: sim.url`. Port 0 takes a free one."""

    def __init__(self, settings: SimSettings | None = None, host: str = "127.0.0.1", port: int = 0) -> None:
        self.settings = settings or SimSettings()
        self.host = host
        self.port = port
        self.output_dir = Path()
        self._sockets: OneSender
        self._started = AsyncExitStack()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Open the port. If that fails, nothing is left behind."""
        async with AsyncExitStack() as stack:
            output = self.settings.output_dir
            if output is None:
                temporary = tempfile.TemporaryDirectory(prefix="e3-sim-", ignore_cleanup_errors=True)
                output = Path(stack.enter_context(temporary))
            folders = Folders.below(output)
            self.output_dir = folders.output
            self._sockets = OneSender()
            stack.push_async_callback(self._sockets.close)
            engine = SimulatedEngine(self.settings, folders, self._sockets)
            engine.start()
            stack.push_async_callback(asyncio.to_thread, engine.stop)
            logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
            backend = SimulatedBackend(engine)
            editor = EditorRoutes(engine, self.settings.frontend)
            app = application(engine.dialect, lambda _: backend, self._sockets, editor.table())
            editor.add_others(app)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            await web.TCPSite(runner, self.host, self.port).start()
            self.port = runner.addresses[0][1]
            self._started = stack.pop_all()

    async def serve(self) -> None:
        """Serve until cancelled; raises the error that the server died of."""
        await self._sockets.ended()

    async def stop(self) -> None:
        """End as a killed server does: clients hear nothing of the prompt that runs."""
        await self._sockets.close()
        await self._started.aclose()

    async def __aenter__(self) -> Simulator:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

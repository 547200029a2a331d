"""ComfyUI's clients as their authors publish them, each in a folder of its own below E3_CLIENTS_DIR."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

CLIENTS_DIR = os.environ.get("E3_CLIENTS_DIR", "")
DRIVERS = Path(__file__).parents[1] / "clients" / "drivers"
PATIENCE = 60


@dataclass(frozen=True)
class Ended:
    """How a program of a client ended."""

    status: int
    output: str
    errors: str

    @property
    def facts(self) -> Any:
        """The JSON that it printed."""
        assert self.output, f"nothing was printed, exit status {self.status}\n{self.errors[-3000:]}"
        return json.loads(self.output)


@dataclass(frozen=True)
class Client:
    """An installed client, with a home of its own, that is told the address of a server."""

    name: str
    url: str
    home: Path

    @property
    def folder(self) -> Path:
        return Path(CLIENTS_DIR) / self.name

    def options(self, **environment: str) -> dict[str, Any]:
        """How a program of it is started: as text, at home, and printing at once."""
        settings = {**os.environ, "HOME": str(self.home), "PYTHONUNBUFFERED": "1", **environment}
        return {"cwd": self.home, "env": settings, "text": True, "encoding": "utf-8"}

    async def call(self, program: str | Path, *arguments: str, told: str = "", **environment: str) -> Ended:
        """Run a program to its end, with this on its standard input."""
        command, options = [str(program), *arguments], self.options(**environment)
        run = partial(subprocess.run, command, input=told, capture_output=True, timeout=PATIENCE, check=False)
        ended = await asyncio.to_thread(run, **options)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    async def drive(self, scenario: str, **wanted: Any) -> Any:
        """Let the driver of this client play a scenario with the client's own interpreter; what it found."""
        driver = next(DRIVERS.glob(f"drive_{self.name.replace('-', '_')}.*"))
        program = "node" if driver.suffix == ".mjs" else self.folder / "bin" / "python"
        told = json.dumps({"url": self.url, "folder": str(self.folder), **wanted})
        ended = await self.call(program, str(driver), scenario, "found.json", told=told)
        assert ended.status == 0, f"{ended.output[-1000:]}\n{ended.errors[-3000:]}"
        return json.loads((self.home / "found.json").read_text(encoding="utf-8"))


def required(name: str) -> str:
    """This name, for a module of tests that is skipped where the client is not installed."""
    if not CLIENTS_DIR:
        pytest.skip("E3_CLIENTS_DIR names no folder of clients", allow_module_level=True)
    if not Path(CLIENTS_DIR, name).is_dir():
        pytest.skip(f"{name} is not installed in {CLIENTS_DIR}", allow_module_level=True)
    return name
